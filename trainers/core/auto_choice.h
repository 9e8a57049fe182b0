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
  Packing packing;                         // how gradients are packed, but for the buckets
};

// The devices of a trainer, for find_machine().
MeasuredDevices measured_devices(const TrainerOptions& options);

// If options.aggregation.allreduce is "auto", puts a strategy in its place, and its size in
// bucket_mb. It is the one that options.aggregation.choice keeps, else that which is predicted to
// combine these gradients fastest. Of equals the first by name and in the order of the sizes.
// Returns what was chosen and why, lines for people, joined by line breaks; "" if nothing was to be
// chosen. Throws what find_machine() and choose_strategy() throw.
std::string choose_allreduce(TrainerOptions& options, const GradientTable& gradients,
                             const StrategyCandidates& candidates);

}  // namespace belfry
