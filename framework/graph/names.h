// Names of nodes and scopes: checks them, and makes them unique.
#pragma once
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "belfry/framework/graph/name_tree.h"

namespace belfry {

// Letters, digits and _ . - / only; at the root the first must be a letter, a digit or a dot. "" is
// valid, and means the root.
bool is_valid_scope_name(std::string_view name, bool at_root);

// One table for the nodes and scopes of a graph. Names are compared without case.
class NameTable {
 public:
  // What a name is wanted for. A peek leaves it free.
  enum class Use { kPeek, kScope, kNode };

  NameTable() = default;
  NameTable(const NameTable&) = delete;
  NameTable& operator=(const NameTable&) = delete;

  // `name` if it is free, else name_1, name_2, ... The result is then taken, unless this is a peek.
  std::string unique(std::string_view name, Use use);
  // Gives a node `name` as it is, even if a scope has it.
  void reserve(std::string_view name);
  // Whether a node has the name.
  bool is_of_node(std::string_view name) const;

  // The number of changes so far; roll_back() restores the table after that many.
  std::size_t changes() const { return changes_.size(); }
  void roll_back(std::size_t changes);

 private:
  struct State {
    int uses = 0;  // also the next suffix to try; 0: the name is free
    bool of_node = false;
  };
  using Level = NameTree<State>::Level;
  Level& level(std::string_view scope);
  void set(State& state, const State& to);
  void use(State& state, Use use);

  NameTree<State> states_;  // by name in lower case
  // The scope requested last, and the levels from the root to it. Most names follow others of the
  // same scope, or of a neighbouring one.
  std::string scope_;
  std::vector<Level*> levels_ = {&states_.root()};
  std::vector<std::pair<State*, State>> changes_;  // the states before each change
};

}  // namespace belfry
