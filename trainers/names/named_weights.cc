#include "belfry/trainers/names/named_weights.h"

#include <charconv>
#include <optional>

#include "belfry/framework/base/require.h"
#include "belfry/framework/checkpoint/given_values.h"
#include "belfry/trainers/util/flag_values.h"

namespace belfry {
namespace {

constexpr char kNeeds[] = "needs";

std::optional<double> number_in(const std::string& text) {
  double number = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  return error == std::errc() && stop == end ? std::optional(number) : std::nullopt;
}

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
  require(!renamed.tensors().empty(), stored.path(),
          ": no tensor of it becomes a weight of the model by ", rules.name,
          "; name the rules of these weights, and build the model in their size");
  GivenWeights given{.value = [&](const std::string& name) { return renamed.value(name); }};
  for (const auto& [name, target] : renamed.tensors()) given.types.emplace(name, target.type);
  LoadedWeights loaded = load_weights(session, given);
  loaded.initial = renamed.missing();
  loaded.unlike = renamed.unlike();
  loaded.left_out = renamed.left_out();
  return loaded;
}

void note_needs(const std::map<std::string, std::string>& needs, JsonValue& extra) {
  if (needs.empty()) return;
  JsonValue noted = JsonValue::object();
  for (const auto& [option, value] : needs) noted.set(option, value);
  extra.set(kNeeds, noted);
}

std::map<std::string, std::string> needs_in(const JsonValue& extra) {
  std::map<std::string, std::string> needs;
  const JsonValue* const noted = extra.find(kNeeds);
  if (!noted || noted->kind() != JsonValue::Kind::kObject) return needs;
  for (const auto& [option, value] : noted->members())
    if (value.kind() == JsonValue::Kind::kString) needs.emplace(option, value.text());
  return needs;
}

bool is_needed_value(const JsonValue& now, const std::string& wanted) {
  switch (now.kind()) {
    case JsonValue::Kind::kBool: return parse_switch(wanted) == (now.str() == "true");
    case JsonValue::Kind::kInteger:
    case JsonValue::Kind::kUnsigned:
    case JsonValue::Kind::kDouble: return number_in(wanted) == now.number();
    case JsonValue::Kind::kString: return now.text() == wanted;
    default: return false;
  }
}

}  // namespace belfry
