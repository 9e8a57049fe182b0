#include "belfry/trainers/options/option.h"

namespace belfry {

std::string OptionRow::help() const {
  const std::string whole = cat(text, otherwise.empty() ? "" : cat(" [", otherwise, "]"));
  return with_flags(whole);
}

std::string OptionRow::refusal_of(const OptionQuestion& asking) const {
  if (is_taken_by(asking.kind)) return "";
  if (!only_of.empty())
    return cat(" is of ", asking.other("trainer="), only_of, ", and this is ", asking.trainer,
               "; leave it out");
  return not_taken ? not_taken(asking) : "";
}

std::string with_flags(std::string_view text) {
  std::string flags;
  bool is_open = false;
  for (const char c : text)
    if (c != '`')
      flags += c;
    else if (is_open = !is_open; is_open)
      flags += "--";
  return flags;
}

std::string text_of(const JsonValue& value) {
  switch (value.kind()) {
    case JsonValue::Kind::kNull: return "";
    case JsonValue::Kind::kString: return value.text();
    case JsonValue::Kind::kBool: return value.str() == "true" ? "1" : "0";
    case JsonValue::Kind::kDouble: return cat(value.number());
    case JsonValue::Kind::kArray: {
      std::vector<std::string> texts;
      for (const JsonValue& item : value.items()) texts.push_back(text_of(item));
      return join(texts, ",");
    }
    default: return value.str();
  }
}

}  // namespace belfry
