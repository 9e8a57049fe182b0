// `--allreduce=auto`: a trainer's strategy and size of buckets, chosen for the gradients of its
// model when its graph is built.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "belfry/allreduce/strategy.h"
#include "belfry/allreduce/verify/gradient_table.h"

namespace belfry {

struct MachineDescription;
struct MeasuredDevices;
struct TrainerOptions;

// The choice of an earlier run, and the devices and packing it was made for.
struct KeptChoice {
  std::string allreduce;
  double bucket_mb = 0;
  int gradient_repacking = 0, small_tensors_kb = 0;
  std::vector<DeviceSpec> devices;
  std::string from = {};  // whose choice it was, for people
};

// MiB per bucket of gradients that trainers take unless they are told otherwise.
inline constexpr double kDefaultBucketMb = 4;
inline constexpr double kMostBucketMb = 1 << 20;

// How to choose.
struct AutoOptions {
  bool any = false;  // strategies that are not canonical, too
  // Sizes of buckets to try, in MiB, as ChoiceOptions says; not with packed gradients. One alone is
  // what was asked for.
  std::vector<double> buckets = {kDefaultBucketMb, 1, 16, 0};
  // Returns the machine to predict for. It is called when a choice has to be made. None:
  // find_machine() of the devices.
  std::function<MachineDescription()> machine = {};
  // Taken, and nothing predicted, by runs on the same devices that pack gradients in the same way.
  std::optional<KeptChoice> kept = {};
  bool choose_anew = false;  // even so: for --remeasure
};

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
