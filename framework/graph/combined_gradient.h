// What a strategy promised about one variable when it combined the gradients of K towers. compile()
// checks each step against it.
#pragma once
#include <vector>

#include "belfry/framework/graph/variable.h"

namespace belfry {

// Entry t belongs to tower t.
struct CombinedGradient {
  std::vector<Variable> variables;  // the same one K times where towers share it
  std::vector<Output> gradients;    // what the strategy combined
  std::vector<Output> results;      // towers may share them

  std::size_t towers() const { return gradients.size(); }
};

}  // namespace belfry
