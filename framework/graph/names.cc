#include "belfry/framework/graph/names.h"

#include <algorithm>

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

std::string NameTable::unique(std::string_view name, Use use) {
  const std::string key = lower(name);
  State& wanted = states_.at(key);
  int suffix = wanted.uses;
  if (suffix == 0) {
    this->use(wanted, use);
    return std::string(name);
  }
  const auto next = [&] { return &states_.at(cat(key, "_", suffix++)); };
  State* candidate = next();
  while (candidate->uses > 0) candidate = next();
  if (use != Use::kPeek) this->use(wanted, Use::kScope);
  this->use(*candidate, use);
  return cat(name, "_", suffix - 1);
}

void NameTable::reserve(std::string_view name) {
  State& state = states_.at(lower(name));
  set(state, {std::max(state.uses, 1), true});
}

bool NameTable::is_of_node(std::string_view name) const {
  const State* const state = states_.find(lower(name));
  return state && state->of_node;
}

void NameTable::roll_back(std::size_t changes) {
  for (; changes_.size() > changes; changes_.pop_back())
    *changes_.back().first = changes_.back().second;
}

void NameTable::set(State& state, const State& to) {
  changes_.emplace_back(&state, state);
  state = to;
}

void NameTable::use(State& state, Use use) {
  if (use != Use::kPeek) set(state, {state.uses + 1, state.of_node || use == Use::kNode});
}

}  // namespace belfry
