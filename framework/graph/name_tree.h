// A map from names of several pieces to values.
#pragma once
#include <functional>
#include <memory_resource>
#include <new>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <unordered_map>
#include <utility>

namespace belfry {

// A T for each name, such as "tower1/conv/W". Names form a tree, with a level for each piece
// between slashes. So a look-up stays among the few names of a scope, which are in cache, however
// many names there are. Nothing is removed: levels and values stay where they are as long as the
// tree lives.
template <class T>
class NameTree {
 public:
  // All names that begin with the same pieces.
  class Level {
   public:
    // The value of the next piece, and the level below it. Both are created if missing.
    T& at(std::string_view piece) { return entry(piece).value; }
    Level& below(std::string_view piece) {
      Level*& made = entry(piece).below;
      if (!made) made = new (memory_.allocate(sizeof(Level), alignof(Level))) Level(memory_);
      return *made;
    }

   private:
    friend class NameTree;
    struct Entry {
      T value = {};
      Level* below = nullptr;
    };
    struct Hash : std::hash<std::string_view> {
      using is_transparent = void;
    };

    explicit Level(std::pmr::memory_resource& memory) : memory_(memory), entries_(&memory) {}
    Entry& entry(std::string_view piece) {
      const auto found = entries_.find(piece);
      if (found != entries_.end()) return found->second;
      return entries_
          .emplace(std::piecewise_construct, std::forward_as_tuple(piece), std::tuple<>())
          .first->second;
    }
    void for_each(const auto& f) {
      for (auto& [piece, entry] : entries_) {
        f(entry.value);
        if (entry.below) entry.below->for_each(f);
      }
    }

    std::pmr::memory_resource& memory_;
    std::pmr::unordered_map<std::pmr::string, Entry, Hash, std::equal_to<>> entries_;
  };

  NameTree() = default;
  NameTree(const NameTree&) = delete;
  NameTree& operator=(const NameTree&) = delete;

  // All names.
  Level& root() { return root_; }
  // The value of a name, created if missing.
  T& at(std::string_view name) {
    Level* level = &root_;
    std::size_t slash;
    while ((slash = name.find('/')) != name.npos) {
      level = &level->below(name.substr(0, slash));
      name.remove_prefix(slash + 1);
    }
    return level->at(name);
  }
  // The value of a name; null if there is none.
  const T* find(std::string_view name) const {
    for (const Level* level = &root_; level;) {
      const std::size_t slash = name.find('/');
      const auto found = level->entries_.find(name.substr(0, slash));
      if (found == level->entries_.end()) return nullptr;
      if (slash == name.npos) return &found->second.value;
      level = found->second.below;
      name.remove_prefix(slash + 1);
    }
    return nullptr;
  }
  void for_each(const auto& f) { root_.for_each(f); }

 private:
  // Levels need no destructor: their memory is freed with the tree.
  static_assert(std::is_trivially_destructible_v<T>);

  std::pmr::monotonic_buffer_resource memory_;
  Level root_{memory_};
};

}  // namespace belfry
