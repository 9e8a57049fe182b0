// Names the launch of an error, for programs that report it.
#pragma once
#include <string>

#include "belfry/framework/graph/device_spec.h"
#include "belfry/framework/graph/node.h"

namespace belfry {

// A launch whose kernel threw. The run throws an exception that derives from this class and from
// one of base/error.h, so a dynamic_cast of a caught std::exception finds it.
struct FailedLaunch {
  std::string node;   // its name
  DeviceSpec device;  // in full
  virtual ~FailedLaunch() = default;
};

// Call it in the handler of an exception of a kernel. Throws the same error with a FailedLaunch,
// and OutOfMemory naming the node for std::bad_alloc. Rethrows other exceptions unchanged,
// including classes that derive from those of base/error.h. In any case it records the origin of
// the exception (base/error_origin.h), as rethrow_from() does.
[[noreturn]] void rethrow_with_launch(const Node& node, const DeviceSpec& device);

}  // namespace belfry
