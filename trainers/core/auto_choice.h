// `--allreduce=auto`: a trainer's strategy and size of buckets, chosen for the gradients of its
// model when its graph is built.
#pragma once
#include <memory>
#include <string>
#include <string_view>

#include "belfry/allreduce/strategy.h"
#include "belfry/allreduce/verify/gradient_table.h"

namespace belfry {

struct TrainerOptions;

// The strategies that a trainer can choose from.
struct StrategyCandidates {
  bool (*accepts)(std::string_view spec);  // as of TrainerKind
  Packing packing;                         // how gradients are packed, without the buckets
};

// If options.aggregation.allreduce is "auto", replaces it by the strategy that is predicted to
// combine these gradients fastest on options.aggregation.choice.machine, and sets bucket_mb. On a
// tie the first name wins, then the first size in the list. Returns the predictions as lines for
// people; "" if there was nothing to choose. Throws InvalidArgument without a machine, and what
// choose_strategy() throws.
std::string choose_allreduce(TrainerOptions& options, const GradientTable& gradients,
                             const StrategyCandidates& candidates);

}  // namespace belfry
