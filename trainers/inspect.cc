#include "belfry/trainers/inspect.h"

namespace belfry {

Json print_device_use(const Session& session, Console& console) {
  Json devices = Json::array();
  for (const DeviceUse& use : session.device_use()) {
    console.line(use.str());
    devices.push(Json::object()
                     .set("device", use.device.str())
                     .set("variables", use.variables)
                     .set("variable_bytes", use.variable_bytes)
                     .set("peak_bytes", use.peak_bytes));
  }
  console.line(
      "(of a training step and, if there are test data, of evaluating whole batches; a shorter "
      "last "
      "batch adds its own)");
  return devices;
}

const Node& node_to_explain(Trainer& trainer, const TrainFlags& flags) {
  try {
    return trainer.graph().find(flags.explain);
  } catch (const NotFound& error) {
    throw FlagError(cat("--explain=", flags.explain, ": ", error.what()));
  }
}

Json to_json(const Explanation& explanation) {
  Json scopes = Json::array(), pulls = Json::array(), candidates = Json::array();
  Json load = Json::object();
  for (const Explanation::Scope& scope : explanation.scopes)
    scopes.push(
        Json::object().set("file", scope.file).set("line", scope.line).set("what", scope.what));
  for (const Explanation::Pull& pull : explanation.pulls)
    pulls.push(Json::object().set("who", pull.who).set("whom", pull.whom).set("why", pull.why));
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
      .set("pulls", std::move(pulls))
      .set("candidates", std::move(candidates))
      .set("load", std::move(load))
      .set("fallback", explanation.fallback.empty() ? Json() : Json(explanation.fallback));
}

}  // namespace belfry
