// Values by names of several pieces.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

namespace belfry {

// A T for each name, such as "tower1/conv/W". Names form a tree, with a level for each piece
// between slashes. So a look-up stays among the few names of a scope, which are in cache, however
// many names there are.
template <class T>
class NameTree {
 public:
  // That of a name, made if there is none. References stay valid.
  T& at(std::string_view name) {
    Names* names = &root_;
    for (;;) {
      const auto [piece, rest] = split(name);
      auto found = names->find(piece);
      if (found == names->end()) found = names->emplace(piece, Entry()).first;
      Entry& entry = found->second;
      if (!rest) return entry.value;
      if (!entry.below) entry.below = std::make_unique<Names>();
      names = entry.below.get();
      name = *rest;
    }
  }
  // The same; null if there is none.
  const T* find(std::string_view name) const {
    for (const Names* names = &root_; names;) {
      const auto [piece, rest] = split(name);
      const auto found = names->find(piece);
      if (found == names->end()) return nullptr;
      if (!rest) return &found->second.value;
      names = found->second.below.get();
      name = *rest;
    }
    return nullptr;
  }
  // Calls f with each.
  void for_each(const auto& f) { for_each(root_, f); }

 private:
  struct Names;
  struct Entry {
    T value = {};
    std::unique_ptr<Names> below;
  };
  struct Hash : std::hash<std::string_view> {
    using is_transparent = void;
  };
  struct Names : std::unordered_map<std::string, Entry, Hash, std::equal_to<>> {};  // by piece

  // The first piece, and what is behind its slash.
  static std::pair<std::string_view, std::optional<std::string_view>> split(std::string_view name) {
    const std::size_t slash = name.find('/');
    if (slash == std::string_view::npos) return {name, std::nullopt};
    return {name.substr(0, slash), name.substr(slash + 1)};
  }
  static void for_each(Names& names, const auto& f) {
    for (auto& [piece, entry] : names) {
      f(entry.value);
      if (entry.below) for_each(*entry.below, f);
    }
  }

  Names root_;
};

}  // namespace belfry
