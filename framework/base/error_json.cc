#include "belfry/framework/base/error_json.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "belfry/framework/base/require.h"

namespace belfry {
namespace {

constexpr std::pair<ErrorKind, std::string_view> kErrorKinds[] = {
    {ErrorKind::kFailed, "FAILED"},
    {ErrorKind::kFlag, "FLAG"},
    {ErrorKind::kOutOfMemory, "OUT_OF_MEMORY"},
    {ErrorKind::kIo, "IO"},
    {ErrorKind::kStalled, "STALLED"},
    {ErrorKind::kCollective, "COLLECTIVE"},
    {ErrorKind::kDevice, "DEVICE"},
    {ErrorKind::kOp, "OP"},
    {ErrorKind::kDiverged, "DIVERGED"},
    {ErrorKind::kCorrupted, "CORRUPTED"}};

constexpr std::pair<std::string_view, std::string ErrorFields::*> kErrorTexts[] = {
    {"host", &ErrorFields::host},     {"reporter_host", &ErrorFields::reporter_host},
    {"device", &ErrorFields::device}, {"op", &ErrorFields::op},
    {"where", &ErrorFields::where},   {"variable", &ErrorFields::variable},
    {"why", &ErrorFields::why},       {"advice", &ErrorFields::advice},
    {"option", &ErrorFields::option}, {"kept", &ErrorFields::kept}};

constexpr std::pair<std::string_view, bool ErrorFields::*> kErrorFlags[] = {
    {"is_mistake", &ErrorFields::is_mistake}, {"names_where", &ErrorFields::names_where}};

constexpr std::pair<std::string_view, int ErrorFields::*> kErrorRanks[] = {
    {"rank", &ErrorFields::rank}, {"reporter", &ErrorFields::reporter}};

// Terminals also obey the control characters of two bytes, U+0080 to U+009F.
std::string printable_text(std::string text) {
  std::ranges::replace_if(
      text, [](unsigned char c) { return (c < 0x20 && c != '\n') || c == 0x7F; }, '?');
  for (std::size_t at = 0; (at = text.find('\xC2', at)) != text.npos; ++at)
    if (at + 1 < text.size() && static_cast<unsigned char>(text[at + 1]) < 0xA0)
      text.replace(at, 2, "?");
  return text;
}

bool is_count(const JsonValue& value) {
  return (value.kind() == JsonValue::Kind::kUnsigned ||
          value.kind() == JsonValue::Kind::kInteger) &&
         value.integer() >= 0;
}

}  // namespace

std::string_view name_of(ErrorKind kind) {
  return std::ranges::find(kErrorKinds, kind, &std::pair<ErrorKind, std::string_view>::first)
      ->second;
}

JsonValue to_json(const ErrorFields& fields) {
  JsonValue json = JsonValue::object().set("code", name_of(fields.kind));
  for (const auto& [name, flag] : kErrorFlags)
    if (fields.*flag) json.set(name, true);
  for (const auto& [name, rank] : kErrorRanks)
    if (fields.*rank >= 0) json.set(name, fields.*rank);
  if (fields.step > 0) json.set("step", fields.step);
  for (const auto& [name, text] : kErrorTexts)
    if (!(fields.*text).empty()) json.set(name, fields.*text);
  return json;
}

ErrorFields error_from(const JsonValue& json) {
  require(json.kind() == JsonValue::Kind::kObject, json.where(), "expected an object");
  ErrorFields fields;
  const auto find = [&](std::string_view name, JsonValue::Kind kind) {
    const JsonValue* const value = json.find(name);
    return value && value->kind() == kind ? value : nullptr;
  };
  if (const JsonValue* const code = find("code", JsonValue::Kind::kString))
    for (const auto& [kind, name] : kErrorKinds)
      if (code->text() == name) fields.kind = kind;
  for (const auto& [name, flag] : kErrorFlags)
    if (const JsonValue* const value = find(name, JsonValue::Kind::kBool))
      fields.*flag = value->str() == "true";
  for (const auto& [name, rank] : kErrorRanks)
    if (const JsonValue* const value = json.find(name); value && is_count(*value))
      fields.*rank = static_cast<int>(
          std::min<std::int64_t>(value->integer(), std::numeric_limits<int>::max()));
  if (const JsonValue* const step = json.find("step"); step && is_count(*step))
    fields.step = step->integer();
  for (const auto& [name, text] : kErrorTexts)
    if (const JsonValue* const value = find(name, JsonValue::Kind::kString))
      fields.*text = printable_text(value->text());
  return fields;
}

}  // namespace belfry
