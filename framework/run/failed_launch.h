// Where an error comes from, for programs that report it.
#pragma once
#include <string>

#include "belfry/framework/graph/device_spec.h"
#include "belfry/framework/graph/node.h"

namespace belfry {

// A launch whose kernel threw. The exceptions that a run throws for it have this class beside one
// of base/error.h, so that a dynamic_cast of a caught std::exception finds it.
struct FailedLaunch {
  std::string node;   // its name
  DeviceSpec device;  // in full
  virtual ~FailedLaunch() = default;
};

// For the handler of what a kernel has thrown: throws the same error as one that is a FailedLaunch,
// and OutOfMemory naming the node for std::bad_alloc. What is no class of base/error.h itself stays
// as it is.
[[noreturn]] void rethrow_with_launch(const Node& node, const DeviceSpec& device);

}  // namespace belfry
