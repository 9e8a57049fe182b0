// Variables that stay out of checkpoints: copies and caches.
#pragma once
#include "belfry/framework/graph/graph.h"

namespace belfry {

// Takes kGlobalVariables out of the collections of a variable and puts kLocalVariables in; others
// (kTrainableVariables, ...) stay. No collections mean {kGlobalVariables}. Throws InvalidArgument
// naming the variable if collections are given without kGlobalVariables.
void replace_global_by_local(VariableRequest& request);

// While in force, variables are made local. Semantics of tensorpack's function of this name.
//   auto local = override_to_local_variable();
//   VariableScope scope(graph, local);
class OverrideToLocalVariable final : public VariableGetter {
 public:
  explicit OverrideToLocalVariable(bool enable = true) : enable_(enable) {}
  void request(VariableRequest& request) override;

 private:
  bool enable_;
};

// With enable = false, a getter that changes nothing.
inline OverrideToLocalVariable override_to_local_variable(bool enable = true) {
  return OverrideToLocalVariable(enable);
}

}  // namespace belfry
