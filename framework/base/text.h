// Joins values into one string: the text side of errors, logs and reports.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "belfry/framework/base/cat.h"

namespace belfry {

using detail::cat;

// "a, b, c".
template <class Parts>
std::string join(const Parts& parts, std::string_view separator = ", ") {
  std::string out;
  bool first = true;
  for (const auto& part : parts) {
    if (!first) out += separator;
    first = false;
    detail::append_text(out, part);
  }
  return out;
}

// `text` for a message: control characters become '?', and "..." replaces everything beyond `most`
// bytes. For names read from files.
std::string shown(std::string_view text, std::size_t most = 80);

// Change the case of ASCII letters, and nothing else.
std::string upper(std::string_view text);
std::string lower(std::string_view text);

// The parts between separators: n separators make n + 1 parts, empty ones too. Views of `text`.
std::vector<std::string_view> split(std::string_view text, char separator);

// The last `digits` lower-case hexadecimal digits, padded with zeros.
std::string hex(std::uint64_t value, std::size_t digits);

// The candidate with the smallest edit distance to `word`, or "" when none is close enough to be
// what the user meant (more than a third of the letters, and more than two, differ; or all do). For
// "did you mean" hints.
std::string nearest(std::string_view word, const std::vector<std::string>& candidates);

// The `most` candidates that are nearest to `word`, however far: first those that contain it, then
// by edit distance.
std::vector<std::string> nearest_several(std::string_view word, std::vector<std::string> candidates,
                                         std::size_t most);

// "; did you mean 'x'?" for the nearest candidate, or "".
std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace belfry
