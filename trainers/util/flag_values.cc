#include "belfry/trainers/util/flag_values.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <limits>
#include <utility>

#include "belfry/framework/base/error_origin.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"

namespace belfry {

void WrittenFlags::add(WrittenFlag flag) {
  std::erase_if(flags_, [&](const WrittenFlag& other) { return other.name == flag.name; });
  flags_.push_back(std::move(flag));
}

void WrittenFlags::append(WrittenFlag flag, char separator) {
  const WrittenFlag* const before = find(flag.name);
  if (before && before->of_file == flag.of_file) {
    flag.value = before->value + separator + flag.value;
    flag.written = cat(before->written, " ", flag.written);
  }
  add(std::move(flag));
}

const WrittenFlag* WrittenFlags::find(std::string_view name) const {
  const auto found = std::ranges::find(flags_, name, &WrittenFlag::name);
  return found == flags_.end() ? nullptr : &*found;
}

std::string WrittenFlags::value(std::string_view name, std::string otherwise) const {
  const WrittenFlag* const flag = find(name);
  return flag ? flag->value : std::move(otherwise);
}

void read_number(const WrittenFlag& flag, std::string_view wanted, bool (*allowed)(double),
                 double& value) {
  const std::string& text = flag.value;
  double number = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  const bool whole = error == std::errc() && stop == end && std::isfinite(number);
  if (!whole || !allowed(number)) refuse_flag(flag, " is not ", wanted);
  value = number;
}

std::optional<bool> parse_switch(std::string_view text) {
  constexpr std::string_view kOn[] = {"true", "yes", "on", "1"};
  constexpr std::string_view kOff[] = {"false", "no", "off", "0"};
  const std::string word = lower(text);
  if (std::ranges::find(kOn, word) != std::end(kOn)) return true;
  if (std::ranges::find(kOff, word) != std::end(kOff)) return false;
  return {};
}

bool read_switch(std::string_view written, std::string_view text) {
  const std::optional<bool> value = parse_switch(text);
  require<FlagError>(value.has_value(), written, " is neither true (or 1) nor false (or 0)");
  return *value;
}

ErrorFields with_flag(std::string_view written, const std::exception& error) {
  ErrorFields fields = fields_of(error);
  fields.why = cat(written, ": ", fields.why);
  if (fields.option.empty() && written.starts_with("--"))
    fields.option = written.substr(2, written.find_first_of("= ") - 2);
  return fields;
}

std::string underscores_in_names(std::string text) {
  for (std::size_t i = 1; i < text.size(); ++i)
    if (text[i] == '-' && std::isalpha(static_cast<unsigned char>(text[i - 1]))) text[i] = '_';
  return text;
}

std::int64_t parse_bytes(std::string_view written, std::string_view text) {
  constexpr std::string_view kUnits = "KMGT";
  const std::size_t unit = text.empty() ? kUnits.npos : kUnits.find(upper(text).back());
  const int shift = unit == kUnits.npos ? 0 : 10 * (static_cast<int>(unit) + 1);
  const std::string_view digits = text.substr(0, text.size() - (shift > 0 ? 1 : 0));
  std::uint64_t number = 0;
  try {
    number = parse_number<std::uint64_t>("", digits);
  } catch (const FlagError&) {
    throw FlagError(cat(written, " is no number of bytes such as 512, 64K or 128M"));
  }
  require<FlagError>(
      number <= static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max() >> shift),
      written, " is out of range");
  return static_cast<std::int64_t>(number << shift);
}

}  // namespace belfry
