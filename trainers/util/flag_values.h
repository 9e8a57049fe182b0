// Values of flags, and errors about them.
#pragma once
#include <charconv>
#include <cstdint>
#include <exception>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "belfry/framework/base/error.h"

namespace belfry {

// A mistake on the command line. A program exits with 2 for it.
class FlagError : public InvalidArgument {
 public:
  using InvalidArgument::InvalidArgument;

 protected:
  ErrorFields of_class() const override { return {.kind = ErrorKind::kFlag, .is_mistake = true}; }
};

// A flag as the user wrote it, so that errors show users their own words.
struct WrittenFlag {
  std::string name;      // without dashes: "num_epochs"
  std::string value;     // "true" or "false" if it takes none
  std::string written;   // "--num_epochs=3", "-n 3"
  bool of_file = false;  // from a file of flags, not from the command line

  // "--epochs", or all that the user wrote if that is another spelling.
  std::string shown_name() const {
    return written.starts_with("--" + name) ? "--" + name : written;
  }
};

// A command line: each name once, with the value that was given last, or with all of them.
class WrittenFlags {
 public:
  void add(WrittenFlag flag);
  // Appends the value to that of the same flag, if there is one from the same place: the command
  // line replaces what a file says.
  void append(WrittenFlag flag, char separator);

  std::span<const WrittenFlag> all() const { return flags_; }
  // Null if the flag is not given.
  const WrittenFlag* find(std::string_view name) const;
  // The value of the flag, or `otherwise` if it is not given.
  std::string value(std::string_view name, std::string otherwise = "") const;

 private:
  std::vector<WrittenFlag> flags_;
};

// Throws FlagError "<what> is not ..." unless all of `text` is a T.
template <class T>
T parse_number(const std::string& what, std::string_view text) {
  T value{};
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  detail::require<FlagError>(error != std::errc::result_out_of_range, what, " is out of range");
  detail::require<FlagError>(error == std::errc() && stop == end, what, " is not ",
                             std::is_floating_point_v<T> ? "a number"
                             : std::is_signed_v<T>       ? "a whole number"
                                                         : "a whole number >= 0");
  return value;
}

// Throws FlagError about a flag, with a text that begins with the flag as it is written.
template <class... Parts>
[[noreturn]] void refuse_flag(const WrittenFlag& flag, const Parts&... parts) {
  throw FlagError(ErrorFields{.why = detail::cat(flag.written, parts...), .option = flag.name});
}

// Sets `value`. Throws FlagError unless the flag is an integer in [least, most].
template <class T>
void read_integer(const WrittenFlag& flag, std::type_identity_t<T> least,
                  std::type_identity_t<T> most, T& value) {
  const std::string& text = flag.value;
  std::conditional_t<std::is_signed_v<T>, std::int64_t, std::uint64_t> number{};
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool whole = error == std::errc() && stop == text.data() + text.size();
  if (!whole || number < least || number > most)
    refuse_flag(flag, " is not a whole number between ", least, " and ", most);
  value = static_cast<T>(number);
}

// Sets `value` to a finite number that is `allowed`. In errors `wanted` names the allowed values:
// "a number above 0".
void read_number(const WrittenFlag& flag, std::string_view wanted, bool (*allowed)(double),
                 double& value);

// Reads true, yes, on, 1 or false, no, off, 0, in either case. None for other texts.
std::optional<bool> parse_switch(std::string_view text);

// As parse_switch(), but throws FlagError for other texts. `written` as in WrittenFlag.
bool read_switch(std::string_view written, std::string_view text);

// Puts '_' for each '-' after a letter. Other '-' are signs of numbers.
std::string underscores_in_names(std::string text);

// Reads a number of bytes: a whole number, and perhaps K, M, G or T (1024, 1024^2, 1024^3, 1024^4;
// either case). Throws FlagError "<written> is ...".
std::int64_t parse_bytes(std::string_view written, std::string_view text);

// The fields of an error, with the flag before its text: "--load=PATH: no such file". The error is
// about this flag, unless it is about an option.
ErrorFields with_flag(std::string_view written, const std::exception& error);

// Calls f(). Turns an exception of type Caught into one of type Named, with the fields of
// with_flag(). The original exception is nested in it.
template <class Named, class Caught = Error, class F>
decltype(auto) naming_flag(std::string_view written, const F& f) {
  try {
    return f();
  } catch (const Caught& error) {
    std::throw_with_nested(Named(with_flag(written, error)));
  }
}

// Calls `look_up`, whose errors name no flag, and turns them into errors about the flag.
template <class F>
decltype(auto) as_flag(std::string_view written, const F& look_up) {
  return naming_flag<FlagError, InvalidArgument>(written, look_up);
}

}  // namespace belfry
