#include "belfry/framework/base/text.h"

#include <algorithm>
#include <numeric>

namespace belfry {
namespace {

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i + 1;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t substitute = diagonal + (a[i] != b[j]);
      diagonal = row[j + 1];
      row[j + 1] = std::min({substitute, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

}  // namespace

std::string shown(std::string_view text, std::size_t most) {
  std::size_t length = std::min(text.size(), most);
  const auto inside_character = [&](std::size_t at) { return (text[at] & 0xC0) == 0x80; };
  while (length < text.size() && length > 0 && inside_character(length)) --length;
  std::string out(text.substr(0, length));
  std::ranges::replace_if(
      out, [](unsigned char c) { return c < 0x20 || c == 0x7F; }, '?');
  return length < text.size() ? out + "..." : out;
}

std::string upper(std::string_view text) {
  std::string out(text);
  for (char& c : out)
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
  return out;
}

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return out;
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (;;) {
    const std::size_t end = text.find(separator);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

std::string hex(std::uint64_t value, std::size_t digits) {
  std::string out(digits, '0');
  for (auto digit = out.rbegin(); digit != out.rend(); ++digit, value >>= 4)
    *digit = "0123456789abcdef"[value & 15];
  return out;
}

std::string nearest(std::string_view word, const std::vector<std::string>& candidates) {
  std::string best;
  // Two typos are forgiven in short words, but never as many as there are letters.
  std::size_t best_distance = std::min(std::max<std::size_t>(2, word.size() / 3) + 1, word.size());
  for (const std::string& candidate : candidates) {
    const auto [shorter, longer] = std::minmax({candidate.size(), word.size()});
    if (longer - shorter >= best_distance) continue;
    const std::size_t distance = edit_distance(word, candidate);
    if (distance < best_distance) {
      best_distance = distance;
      best = candidate;
    }
  }
  return best;
}

std::vector<std::string> nearest_several(std::string_view word, std::vector<std::string> candidates,
                                         std::size_t most) {
  const std::string wanted = lower(word);
  std::vector<std::pair<std::pair<bool, std::size_t>, std::string>> ranked;
  for (std::string& candidate : candidates) {
    const std::string known = lower(candidate);
    const std::pair rank(known.find(wanted) == known.npos, edit_distance(wanted, known));
    ranked.emplace_back(rank, std::move(candidate));
  }
  std::ranges::sort(ranked);
  std::vector<std::string> result;
  for (std::size_t i = 0; i < std::min(most, ranked.size()); ++i)
    result.push_back(std::move(ranked[i].second));
  return result;
}

std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates) {
  const std::string hint = nearest(word, candidates);
  return hint.empty() ? "" : cat("; did you mean '", hint, "'?");
}

}  // namespace belfry
