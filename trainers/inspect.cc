#include "belfry/trainers/inspect.h"

#include "belfry/trainers/evaluator.h"
#include "belfry/trainers/flag_values.h"

namespace belfry {

Json dry_run(Trainer& trainer, bool predicts, Console& console) {
  Session& session = trainer.session();
  if (predicts)
    prepare_predictors(session, trainer.towers().predictors, trainer.options().batch_size);
  Json devices = Json::array();
  for (const DeviceUse& use : session.device_use()) {
    console.line(use.str());
    devices.push(Json::object()
                     .set("device", use.device.str())
                     .set("variables", use.variables)
                     .set("variable_bytes", use.variable_bytes)
                     .set("peak_bytes", use.peak_bytes));
  }
  return Json::object().set("devices", std::move(devices));
}

Explanation explain_node(Trainer& trainer, std::string_view name) {
  const Node* node = nullptr;
  try {
    node = &trainer.graph().find(name);
  } catch (const NotFound& error) {
    throw FlagError(cat("--explain=", name, ": ", error.what()));
  }
  return trainer.session().explain(node->output());
}

Json to_json(const Explanation& explanation) {
  Json scopes = Json::array(), candidates = Json::array(), load = Json::object();
  for (const Explanation::Scope& scope : explanation.scopes)
    scopes.push(
        Json::object().set("file", scope.file).set("line", scope.line).set("what", scope.what));
  for (const Explanation::Candidate& candidate : explanation.candidates)
    candidates.push(Json::object()
                        .set("device", candidate.device)
                        .set("kept", candidate.kept)
                        .set("reason", candidate.reason));
  for (const auto& [device, elements] : explanation.load) load.set(device, elements);
  return Json::object()
      .set("node", explanation.node)
      .set("type", explanation.type)
      .set("requested", explanation.requested)
      .set("device", explanation.device)
      .set("scopes", std::move(scopes))
      .set("colocation", Json::array(explanation.colocation))
      .set("candidates", std::move(candidates))
      .set("load", std::move(load))
      .set("fallback", explanation.fallback.empty() ? Json() : Json(explanation.fallback));
}

}  // namespace belfry
