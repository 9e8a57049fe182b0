#include "belfry/framework/graph/names.h"

#include <algorithm>
#include <array>

#include "belfry/framework/base/text.h"

namespace belfry {
namespace {

constexpr std::string_view kNotFirst = "_-/";  // at the root

// The characters of names. A table, because it is fast and every new name is checked.
constexpr std::array<bool, 256> kInNames = [] {
  std::array<bool, 256> in_names = {};
  for (std::size_t c = 0; c < in_names.size(); ++c)
    in_names[c] = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                  c == '.' || kNotFirst.find(static_cast<char>(c)) != kNotFirst.npos;
  return in_names;
}();

}  // namespace

bool is_valid_scope_name(std::string_view name, bool at_root) {
  if (at_root && !name.empty() && kNotFirst.find(name[0]) != kNotFirst.npos) return false;
  return std::ranges::all_of(name, [](char c) { return kInNames[static_cast<unsigned char>(c)]; });
}

// `scope` is "", or ends with a slash.
NameTable::Level& NameTable::level(std::string_view scope) {
  if (scope == scope_) return *levels_.back();
  const std::string_view shared(scope.begin(), std::ranges::mismatch(scope, scope_).in1);
  std::size_t begin = shared.rfind('/') + 1;  // of the first piece that is not shared
  levels_.resize(1 + static_cast<std::size_t>(std::ranges::count(shared, '/')));
  scope_.resize(begin);
  while (begin < scope.size()) {
    const std::size_t end = scope.find('/', begin);
    levels_.push_back(&levels_.back()->below(lower(scope.substr(begin, end - begin))));
    scope_ += scope.substr(begin, end + 1 - begin);
    begin = end + 1;
  }
  return *levels_.back();
}

std::string NameTable::unique(std::string_view name, Use use) {
  const std::size_t own = name.rfind('/') + 1;  // 0 without a slash
  Level& names = level(name.substr(0, own));
  const std::string key = lower(name.substr(own));
  State& wanted = names.at(key);
  int suffix = wanted.uses;
  if (suffix == 0) {
    this->use(wanted, use);
    return std::string(name);
  }
  const auto next = [&] { return &names.at(cat(key, "_", suffix++)); };
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
