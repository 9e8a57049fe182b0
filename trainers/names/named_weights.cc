#include "belfry/trainers/names/named_weights.h"

#include "belfry/framework/checkpoint/given_values.h"

namespace belfry {
namespace {

constexpr char kNeeds[] = "needs";

}  // namespace

TensorSource source_in(const TensorFiles& files) {
  TensorSource source{.read = [&files](const std::string& name) { return files.read(name); },
                      .place = [&files](const std::string& name) { return files.place_of(name); }};
  for (const auto& [name, tensor] : files.tensors())
    source.types.emplace(name, TensorType{tensor.shape, tensor.dtype});
  return source;
}

LoadedWeights load_named_weights(Session& session, const std::string& path, const NameRules& rules,
                                 bool partial, FileSystem& files) {
  const TensorFiles stored(path, files);
  const std::map<std::string, TensorType> model = weight_types(session.graph());
  const RenamedTensors renamed(source_in(stored), rules, {.model = &model, .partial = partial});
  GivenWeights given{.value = [&](const std::string& name) { return renamed.value(name); }};
  for (const auto& [name, target] : renamed.tensors()) given.types.emplace(name, target.type);
  LoadedWeights loaded = load_weights(session, given);
  loaded.initial = renamed.missing();
  loaded.left_out = renamed.left_out();
  return loaded;
}

void note_needs(const NameRules& rules, JsonValue& extra) {
  JsonValue needs = JsonValue::object();
  for (const auto& [option, value] : rules.needs) needs.set(option, value);
  if (!rules.needs.empty()) extra.set(kNeeds, needs);
}

std::map<std::string, std::string> needs_in(const JsonValue& extra) {
  std::map<std::string, std::string> needs;
  const JsonValue* const noted = extra.find(kNeeds);
  if (!noted || noted->kind() != JsonValue::Kind::kObject) return needs;
  for (const auto& [option, value] : noted->members())
    if (value.kind() == JsonValue::Kind::kString) needs.emplace(option, value.text());
  return needs;
}

}  // namespace belfry
