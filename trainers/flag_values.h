// Values of flags, and what is wrong with them.
#pragma once
#include <charconv>
#include <cstdint>
#include <string>
#include <type_traits>

#include "belfry/framework/error.h"

namespace belfry {

// A mistake on the command line. Programs that see one exit with 2, after any other error with 1.
class FlagError : public InvalidArgument {
 public:
  using InvalidArgument::InvalidArgument;
};

// Throws FlagError "<what> is not ..." unless all of `text` is a T.
template <class T>
T parse_number(const std::string& what, std::string_view text) {
  T value{};
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  require<FlagError>(error != std::errc::result_out_of_range, what, " is out of range");
  require<FlagError>(error == std::errc() && stop == end, what, " is not ",
                     std::is_floating_point_v<T> ? "a number"
                     : std::is_signed_v<T>       ? "a whole number"
                                                 : "a whole number >= 0");
  return value;
}

// Sets `value` unless `text` is empty. Throws FlagError unless it is an integer in [least, most].
template <class T>
void read_integer(std::string_view flag, std::string_view text, T least, T most, T& value) {
  if (text.empty()) return;
  const auto given = parse_number<std::int64_t>(cat(flag, "=", text), text);
  require<FlagError>(given >= least && given <= most, flag, "=", text, " is not between ", least,
                     " and ", most);
  value = static_cast<T>(given);
}

// The same for 0 and 1.
inline void read_switch(std::string_view flag, std::string_view text, bool& value) {
  int given = value;
  read_integer(flag, text, 0, 1, given);
  value = given != 0;
}

// With '_' for each '-' after a letter; elsewhere that is the sign of a number.
std::string underscores_in_names(std::string text);

// A number of bytes: a whole number, and perhaps K, M, G or T (1024, 1024^2, 1024^3, 1024^4; either
// case). Throws FlagError naming the flag.
std::int64_t parse_bytes(std::string_view flag, std::string_view text);

// Turns errors of `look_up`, which name no flag, into those of this one.
template <class F>
decltype(auto) as_flag(const char* flag, const F& look_up) {
  try {
    return look_up();
  } catch (const InvalidArgument& error) {
    throw FlagError(cat(flag, ": ", error.what()));
  }
}

}  // namespace belfry
