#include "belfry/trainers/flag_values.h"

#include <cctype>
#include <limits>

namespace belfry {

std::string underscores_in_names(std::string text) {
  for (std::size_t i = 1; i < text.size(); ++i)
    if (text[i] == '-' && std::isalpha(static_cast<unsigned char>(text[i - 1]))) text[i] = '_';
  return text;
}

std::int64_t parse_bytes(std::string_view flag, std::string_view text) {
  constexpr std::string_view kUnits = "KMGT";
  const std::size_t unit = text.empty() ? kUnits.npos : kUnits.find(upper(text).back());
  const int shift = unit == kUnits.npos ? 0 : 10 * (static_cast<int>(unit) + 1);
  const std::string_view digits = text.substr(0, text.size() - (shift > 0 ? 1 : 0));
  std::uint64_t number = 0;
  try {
    number = parse_number<std::uint64_t>("", digits);
  } catch (const FlagError&) {
    throw FlagError(cat(flag, "=", text, " is no number of bytes such as 512, 64K or 128M"));
  }
  require<FlagError>(
      number <= static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max() >> shift), flag,
      "=", text, " is out of range");
  return static_cast<std::int64_t>(number << shift);
}

}  // namespace belfry
