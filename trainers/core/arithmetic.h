// What a run computes with, besides its options: instruction sets, libraries, processors.
#pragma once
#include <span>
#include <string>

#include "belfry/framework/graph/device_spec.h"
#include "belfry/framework/group/agreement.h"
#include "belfry/framework/group/processes.h"

namespace belfry {

// The version of Belfry. Processes compare it before anything else.
AgreedItem agreed_version();

// What bits depend on: the versions of Belfry and of the libraries that compute for it, the
// instruction sets that both use, and, with GPUs among the devices, the name of the GPUs.
std::string arithmetic_of(std::span<const DeviceSpec> devices);

// For people: the processor with its caches, whose sizes decide how oneDNN cuts its work, and the
// version of the C library. No case is known in which these change bits.
std::string processor_of_host();

// What the processes of a run compute with.
struct Arithmetics {
  std::string all;         // "X", or "X (ranks 0-2, 4) and Y (rank 3)"
  std::string processors;  // the same of processors
  // Which process computes with something other than rank 0 does, and what it is; "" if none. If
  // not "", results are not canonical.
  std::string mixed;
};

// All processes call it; null: there is one.
Arithmetics arithmetics_of(Processes* processes, std::span<const DeviceSpec> devices);

}  // namespace belfry
