#include "belfry/framework/graph/variable_role.h"

#include <array>

#include "belfry/framework/base/find_word.h"

namespace belfry {
namespace {

constexpr std::array<std::string_view, 3> kVariableRoles = {"weight", "average", "state"};

}  // namespace

std::string_view name_of(VariableRole role) {
  return kVariableRoles[static_cast<std::size_t>(role)];
}

VariableRole find_variable_role(std::string_view name) {
  return find_word<VariableRole>(kVariableRoles, name, "role of variables");
}

bool may_be_infinite(VariableRole role, bool trainable) {
  return role == VariableRole::kWeight && !trainable;
}

std::string_view name_of_averaged(std::string_view name) {
  const std::size_t slash = name.rfind('/');
  return slash != name.npos && name.substr(slash + 1) == kWeightAverage ? name.substr(0, slash)
                                                                        : std::string_view();
}

}  // namespace belfry
