// Groups of variables: some have another rate or weight decay than the rest, some are frozen.
#pragma once
#include <limits>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "belfry/framework/graph/variable.h"

namespace belfry {

// Whether a name is like the pattern, or lies in a scope that is: a star stands for any characters,
// slashes too. "fc0/W" fits "fc0/W", "fc0", "f*" and "*/W".
bool fits_pattern(std::string_view name, const std::string& pattern);
// Names near to a pattern that fits none of them, for errors.
std::string names_near(std::string pattern, const std::vector<std::string>& names);

// What is special about some variables. The first group of a list that fits a variable counts, and
// no other one.
struct VariableGroup {
  std::string pattern;  // of logical names (fits_pattern()): "fc0/W", "fc0", "block*", "*/b"
  // Multiplies the optimizer's rate, at each step of its schedule. 1 alone takes the variables out
  // of the groups after this one.
  double rate = 1;
  // In the place of the optimizer's; none: as without the group.
  std::optional<double> weight_decay = {};
  bool freeze = false;  // the variables are not trained; they stay weights
  // Fits only variables of at most so many dimensions: biases and the gains of norms have 1.
  std::size_t most_rank = std::numeric_limits<std::size_t>::max();

  // Of a program, whose variables may all be in groups of flags, which come first.
  bool may_be_empty = false;

  bool fits(std::string_view logical_name, const Shape& shape) const;
  // "fc*:rate=0.1,weight_decay=0", as parse_groups() reads it.
  std::string str() const;

  bool operator==(const VariableGroup&) const = default;
};

// The groups of a text such as "fc*:rate=0.1,weight_decay=0;conv*:freeze". Throws InvalidArgument
// for any other.
std::vector<VariableGroup> parse_groups(std::string_view text);
// Such a text; "" for no groups.
std::string text_of_groups(std::span<const VariableGroup> groups);
// Throws InvalidArgument for a group without a pattern, with a number that is negative or not
// finite, or that freezes variables and says how they are trained.
void check_groups(std::span<const VariableGroup> groups);

// The first group that fits; null if none does.
const VariableGroup* group_of(std::span<const VariableGroup> groups, std::string_view logical_name,
                              const Shape& shape);

// Why the groups do not fit a model with these variables; "" if they do. It begins with a group,
// as str() writes it. Each group that may not be empty is to be the first that fits some variable
// that is trained, or that `frozen` names (FreezingGetter). And something is to be left to train.
std::string refusal_of_groups(std::span<const VariableGroup> groups,
                              std::span<const Variable> variables,
                              const std::set<std::string, std::less<>>& frozen = {});

// Freezes the variables of groups that say so, for a VariableScope around a model. `groups` is
// borrowed.
class FreezingGetter : public VariableGetter {
 public:
  explicit FreezingGetter(std::span<const VariableGroup> groups) : groups_(groups) {}
  void request(VariableRequest& request) override;

 private:
  std::span<const VariableGroup> groups_;
};

}  // namespace belfry
