#include "belfry/framework/names.h"

#include <algorithm>
#include <cctype>

#include "belfry/framework/text.h"

namespace belfry {
namespace {

std::string lower(std::string_view text) {
  std::string out(text);
  std::ranges::transform(out, out.begin(), [](unsigned char c) { return std::tolower(c); });
  return out;
}

}  // namespace

bool is_valid_scope_name(std::string_view name, bool at_root) {
  for (std::size_t i = 0; i < name.size(); ++i) {
    const char c = name[i];
    const bool word =
        (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.';
    const bool inside = c == '_' || c == '-' || c == '/';
    if (!word && !(inside && (i > 0 || !at_root))) return false;
  }
  return true;
}

std::string NameTable::unique(std::string_view name, bool mark_as_used) {
  const std::string key = lower(name);
  const auto known = uses_.find(key);
  int suffix = known == uses_.end() ? 0 : known->second;
  if (mark_as_used) uses_[key] = suffix + 1;
  if (suffix == 0) return std::string(name);
  std::string candidate;
  do candidate = cat(key, "_", suffix++);
  while (uses_.contains(candidate));
  if (mark_as_used) uses_[candidate] = 1;
  return cat(name, "_", suffix - 1);
}

void NameTable::reserve(std::string_view name) { uses_.emplace(lower(name), 1); }

}  // namespace belfry
