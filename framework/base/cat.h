// Turns values into text for public headers, which leave the names `cat` and `join` to programs.
// Sources of the library include text.h.
#pragma once
#include <charconv>
#include <concepts>
#include <string>
#include <string_view>

namespace belfry {
namespace detail {

template <class T>
void append_text(std::string& out, const T& value) {
  if constexpr (std::same_as<T, bool>) {
    out += value ? "true" : "false";
  } else if constexpr (std::same_as<T, char>) {
    out += value;
  } else if constexpr (std::integral<T> || std::floating_point<T>) {
    char digits[40];
    out.append(digits, std::to_chars(digits, digits + sizeof digits, value).ptr);
  } else if constexpr (requires { std::string_view(value); }) {
    out += std::string_view(value);
  } else {
    out += value.str();
  }
}

// A lower bound of the length of a part. Text counts in full, since long parts are mostly text.
template <class T>
std::size_t least_size(const T& value) {
  if constexpr (requires { std::string_view(value); })
    return std::string_view(value).size();
  else
    return 1;
}

// cat("need ", 3, " of ", shape) -> "need 3 of [2,2]". Takes text, numbers and anything with str().
// Floating-point numbers print the shortest digits that read back to the same value.
template <class... Parts>
std::string cat(const Parts&... parts) {
  std::string out;
  out.reserve((std::size_t{0} + ... + least_size(parts)));
  (append_text(out, parts), ...);
  return out;
}

}  // namespace detail
}  // namespace belfry
