// How much of the time for messages a process computes towers meanwhile.
#pragma once
#include <cstdint>
#include <optional>

namespace belfry {

struct Plan;
struct Timeline;

// Of one run, or of several together. In nanoseconds.
struct Communication {
  // While messages between processes, or collectives of NCCL, were under way: from their launch to
  // their end, and so with what they waited for.
  std::int64_t under_way = 0;
  // Of that time, while a launch of the forward or backward pass ran on a device of the same
  // process.
  std::int64_t hidden = 0;

  Communication& operator+=(const Communication& other);
  // None where nothing was under way.
  std::optional<double> hidden_share() const;
};

Communication communication_of(const Plan& plan, const Timeline& timeline);

}  // namespace belfry
