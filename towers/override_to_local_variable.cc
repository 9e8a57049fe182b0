#include <algorithm>

#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/towers/variable_getters.h"

namespace belfry {

void replace_global_by_local(VariableRequest& request) {
  std::vector<std::string>& collections = request.options.collections;
  if (collections.empty()) collections.emplace_back(kGlobalVariables);
  require(std::erase(collections, kGlobalVariables) > 0, "variable '", request.name,
          "' cannot be made local: it is listed in [", join(collections), "], but not in '",
          kGlobalVariables, "'; add that collection, or leave all out");
  if (std::ranges::find(collections, kLocalVariables) == collections.end())
    collections.emplace_back(kLocalVariables);
}

void OverrideToLocalVariable::request(VariableRequest& request) {
  if (enable_) replace_global_by_local(request);
}

}  // namespace belfry
