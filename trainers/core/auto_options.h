// How `--allreduce=auto` chooses: options, and choices of earlier runs.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "belfry/framework/graph/device_spec.h"

namespace belfry {

struct MachineDescription;

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

}  // namespace belfry
