// What computes for a run, beside its options: instructions, libraries, processors.
#pragma once
#include <span>
#include <string>

#include "belfry/framework/graph/device_spec.h"
#include "belfry/framework/group/agreement.h"
#include "belfry/framework/group/processes.h"

namespace belfry {

// The version of Belfry, which processes must have alike before they compare anything else.
AgreedItem agreed_version();

// What bits depend on: the versions of Belfry and of the libraries that compute for it, and the
// instructions that both take; with GPUs among the devices, their name.
std::string arithmetic_of(std::span<const DeviceSpec> devices);

// For people: the processor with its caches, by whose sizes oneDNN cuts its work, and the version
// of the C library. Runs on other ones are not known to have other bits.
std::string processor_of_host();

// With what the processes of a run compute.
struct Arithmetics {
  std::string all;         // "X", or "X (ranks 0-2, 4) and Y (rank 3)"
  std::string processors;  // the same of processors
  // Which process computes with something else than rank 0, and what; "" if none does. Results are
  // not canonical then.
  std::string mixed;
};

// All processes call it; null: there is one.
Arithmetics arithmetics_of(Processes* processes, std::span<const DeviceSpec> devices);

}  // namespace belfry
