#include "belfry/framework/base/names.h"

#include "belfry/framework/base/text.h"

namespace belfry {

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
  const auto known = uses_.find(std::string_view(key));
  int suffix = known == uses_.end() ? 0 : known->second;
  if (suffix == 0) {
    if (mark_as_used) use(key);
    return std::string(name);
  }
  std::string candidate;
  do candidate = cat(key, "_", suffix++);
  while (uses_.contains(std::string_view(candidate)));
  if (mark_as_used) {
    use(key);
    use(candidate);
  }
  return cat(name, "_", suffix - 1);
}

void NameTable::reserve(std::string_view name) {
  if (!is_used(name)) use(lower(name));
}

bool NameTable::is_used(std::string_view name) const {
  return uses_.contains(std::string_view(lower(name)));
}

void NameTable::use(std::string_view key) {
  auto entry = uses_.find(key);
  if (entry == uses_.end()) entry = uses_.emplace(key, 0).first;
  changes_.emplace_back(&entry->first, entry->second++);
}

void NameTable::roll_back(std::size_t changes) {
  while (changes_.size() > changes) {
    const auto [key, uses] = changes_.back();
    changes_.pop_back();
    const auto entry = uses_.find(*key);
    entry->second = uses;
    if (uses == 0) uses_.erase(entry);
  }
}

}  // namespace belfry
