// Names of nodes and scopes: which are valid, and how they are made unique.
#pragma once
#include <functional>
#include <memory_resource>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace belfry {

// Letters, digits and _ . - / only; at the root the first must be a letter, a digit or a dot. "" is
// valid, and means the root.
bool is_valid_scope_name(std::string_view name, bool at_root);

// One table for the nodes and scopes of a graph. Names are compared without case.
class NameTable {
 public:
  // `name` if it is free, else name_1, name_2, ... The result is used up, unless this is a peek
  // (mark_as_used is false).
  std::string unique(std::string_view name, bool mark_as_used = true);
  // Uses `name` up as it is, free or not.
  void reserve(std::string_view name);
  bool is_used(std::string_view name) const;

  // Counts changes; and back to what the table was after so many.
  std::size_t changes() const { return changes_.size(); }
  void roll_back(std::size_t changes);

 private:
  struct Hash : std::hash<std::string_view> {
    using is_transparent = void;
  };

  void use(std::string_view key);

  std::pmr::monotonic_buffer_resource memory_;  // of uses_: names are many, and go together
  // By name in lower case; never 0.
  std::pmr::unordered_map<std::pmr::string, int, Hash, std::equal_to<>> uses_{&memory_};
  // Keys of uses_, and what was there before: 0 for nothing.
  std::vector<std::pair<const std::pmr::string*, int>> changes_;
};

}  // namespace belfry
