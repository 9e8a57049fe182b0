// Compares what the processes of a run must have alike, before they rely on it.
#pragma once
#include <span>
#include <string>

#include "belfry/framework/group/processes.h"

namespace belfry {

struct AgreedItem {
  std::string name;   // "the seed", "variable 'fc0/W'"
  std::string value;  // "1"
  bool operator==(const AgreedItem&) const = default;
};

// All processes call it. Throws InvalidArgument in all of them unless all have given equal items.
// It names the first process that differs from rank 0, its first such item, and both values.
// Processes that agree exchange 16 characters each.
void require_agreement(Processes& processes, std::span<const AgreedItem> items);

}  // namespace belfry
