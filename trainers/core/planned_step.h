// What a training step of one process does on each device, and what it moves: read from its plans.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "belfry/framework/base/json.h"
#include "belfry/framework/graph/device_spec.h"
#include "belfry/framework/group/process_place.h"
#include "belfry/framework/run/session.h"

namespace belfry {

class BuiltTraining;

// Bytes are those of one step with full batches.
struct PlannedStep {
  struct OnDevice {
    DeviceUse use;
    int tower = -1;  // numbered over all processes; -1: none is here
    std::int64_t launches = 0;
  };
  // From one device of this process to another.
  struct Link {
    DeviceSpec from, to;
    std::int64_t bytes = 0;
  };
  struct Messages {
    std::int64_t sent = 0, received = 0;
  };

  ProcessPlace place;
  std::vector<OnDevice> devices;   // in the order of the session
  std::vector<Link> links;         // by `from`, then `to`; none without bytes
  std::vector<Messages> messages;  // with each process, by rank
  std::vector<int> hosts;          // the number of each rank's host
  std::int64_t summed = 0;         // bytes that MPI sums over all processes (--allreduce=mpi)

  // The ranks of other processes on this host, or on other hosts.
  std::vector<int> others(bool on_this_host) const;
  // The sum of `messages` over these ranks.
  Messages messages_with(const std::vector<int>& ranks) const;
};

PlannedStep planned_step(BuiltTraining& built);

// Lines for people: a line for each device, then what crosses links within the host and between
// hosts.
std::string to_text(const PlannedStep& step);

// {processes, rank, devices: [{device, tower (null: none), launches, variables, variable_bytes,
// peak_bytes}], within_host: [{from, to, bytes}], with_processes_of_host and between_hosts:
// {sent_bytes, received_bytes, links: [{rank, sent_bytes, received_bytes}]}, the latter with
// summed_bytes}
JsonValue to_json(const PlannedStep& step);

}  // namespace belfry
