// Values of flags, and what is wrong with them.
#pragma once
#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>

#include "belfry/framework/base/error.h"

namespace belfry {

// A mistake on the command line. Programs that see one exit with 2, after any other error with 1.
class FlagError : public InvalidArgument {
 public:
  using InvalidArgument::InvalidArgument;
};

// What a flag holds, and how that was written: errors show users their own words.
class FlagValue {
 public:
  FlagValue() = default;
  // Holds `text` unless the flag is given.
  FlagValue(std::string text) : text_(std::move(text)) {}  // NOLINT
  FlagValue(const char* text) : text_(text) {}             // NOLINT

  bool given() const { return !written_.empty(); }
  const std::string& text() const { return text_; }
  // As it was written, "--num_epochs=3" or "-n 3"; "--epochs=3" if it was not, or the value is
  // another one now.
  std::string str() const { return given() ? written_ : flag_ + "=" + text_; }
  // "--epochs", or all that was written if that is another spelling.
  std::string name() const { return !given() || written_.starts_with(flag_) ? flag_ : written_; }

  // For those who read command lines.
  void set_flag(std::string flag) { flag_ = std::move(flag); }
  void set(std::string text, std::string written) {
    text_ = std::move(text);
    written_ = std::move(written);
  }

 private:
  std::string flag_, text_, written_;
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

// Sets `value` if the flag is given. Throws FlagError unless it is an integer in [least, most].
template <class T>
void read_integer(const FlagValue& flag, std::type_identity_t<T> least,
                  std::type_identity_t<T> most, T& value) {
  if (!flag.given()) return;
  const std::string& text = flag.text();
  std::conditional_t<std::is_signed_v<T>, std::int64_t, std::uint64_t> number{};
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool whole = error == std::errc() && stop == text.data() + text.size();
  require<FlagError>(whole && number >= least && number <= most, flag,
                     " is not a whole number between ", least, " and ", most);
  value = static_cast<T>(number);
}

// The same for a finite number that is `allowed`; `wanted` says which are, for the error: "a number
// above 0".
void read_number(const FlagValue& flag, std::string_view wanted, bool (*allowed)(double),
                 double& value);

// true, yes, on, 1 or false, no, off, 0, in either case; none for all else.
std::optional<bool> parse_switch(std::string_view text);

// Throws FlagError unless it is what parse_switch() takes. `written` as of FlagValue::str().
bool read_switch(std::string_view written, std::string_view text);
// Sets `value` if the flag is given.
void read_switch(const FlagValue& flag, bool& value);

// With '_' for each '-' after a letter; elsewhere that is the sign of a number.
std::string underscores_in_names(std::string text);

// A number of bytes: a whole number, and perhaps K, M, G or T (1024, 1024^2, 1024^3, 1024^4; either
// case). Throws FlagError "<written> is ...".
std::int64_t parse_bytes(std::string_view written, std::string_view text);

// Turns errors of `look_up`, which name no flag, into those of this one.
template <class F>
decltype(auto) as_flag(std::string_view written, const F& look_up) {
  try {
    return look_up();
  } catch (const InvalidArgument& error) {
    throw FlagError(cat(written, ": ", error.what()));
  }
}

}  // namespace belfry
