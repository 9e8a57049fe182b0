// A consistency check: compares what must be equal in all processes of a run before they rely on
// it.
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
// The error names the first process that differs from rank 0, its first differing item, and both
// values. Processes that agree exchange 16 characters each.
void require_agreement(Processes& processes, std::span<const AgreedItem> items);

}  // namespace belfry
