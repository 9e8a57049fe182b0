// How much of the communication time is hidden, because the process computes towers meanwhile.
#pragma once
#include <cstdint>
#include <optional>

namespace belfry {

struct Plan;
struct Timeline;

// Nanoseconds of one run, or of several together.
struct CommunicationTime {
  // Time in which messages between processes, NCCL collectives or sums over several GPUs were under
  // way: from their launch to their end, including waits.
  std::int64_t under_way = 0;
  // The part of that time in which a device of the same process ran a launch of the forward or
  // backward pass.
  std::int64_t hidden = 0;

  CommunicationTime& operator+=(const CommunicationTime& other);
  // None if nothing was under way.
  std::optional<double> hidden_share() const;
};

CommunicationTime communication_of(const Plan& plan, const Timeline& timeline);

}  // namespace belfry
