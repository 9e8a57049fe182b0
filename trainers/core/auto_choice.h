// `--allreduce=auto`: a trainer's strategy and size of buckets, chosen for the gradients of its
// model when its graph is built.
#pragma once
#include <memory>
#include <string>
#include <string_view>

#include "belfry/allreduce/strategy.h"
#include "belfry/allreduce/verify/gradient_table.h"

namespace belfry {

struct MeasuredDevices;
struct TrainerOptions;

// The strategies that a trainer can choose from.
struct StrategyCandidates {
  bool (*accepts)(std::string_view spec);  // as of TrainerKind
  Packing packing;                         // how gradients are packed, without the buckets
};

// The devices of a trainer, for find_machine().
MeasuredDevices measured_devices(const TrainerOptions& options);

// If options.aggregation.allreduce is "auto", replaces it by a strategy, and sets bucket_mb. It
// takes the choice that options.aggregation.choice keeps, or else predicts which combines these
// gradients fastest. On a tie the first name wins, then the first size in the list. Returns what
// was chosen and why, as lines for people; "" if there was nothing to choose. Throws what
// find_machine() and choose_strategy() throw.
std::string choose_allreduce(TrainerOptions& options, const GradientTable& gradients,
                             const StrategyCandidates& candidates);

}  // namespace belfry
