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
  std::string key = lower(name);
  const auto known = uses_.find(key);
  int suffix = known == uses_.end() ? 0 : known->second;
  if (suffix == 0) {
    if (mark_as_used) use(std::move(key));
    return std::string(name);
  }
  std::string candidate;
  do candidate = cat(key, "_", suffix++);
  while (uses_.contains(candidate));
  if (mark_as_used) {
    use(std::move(key));
    use(std::move(candidate));
  }
  return cat(name, "_", suffix - 1);
}

void NameTable::reserve(std::string_view name) {
  std::string key = lower(name);
  if (!uses_.contains(key)) use(std::move(key));
}

void NameTable::use(std::string key) {
  const auto entry = uses_.try_emplace(std::move(key), 0).first;
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
