// The cost of moving and adding bytes on a machine: measured, or described in a file.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "belfry/framework/base/json.h"
#include "belfry/framework/graph/device_spec.h"

namespace belfry {

// A link between two devices, the same in both directions. gbps counts 1e9 bytes per second.
struct Link {
  double latency_us = 0;
  double gbps = 0;
  // Transfers over links of one bus take turns. "": no bus, and the two directions are independent.
  std::string bus = {};
  bool operator==(const Link&) const = default;
};

// How fast kernels read memory if a step touches `bytes` in all, in 1e9 bytes per second: one
// worker alone, and all workers together. Writing a byte takes as long as reading `write` bytes, or
// `rewrite` bytes if the same launch has read it. `other_gbps` is how fast one worker reads what
// another wrote last, which may still be in the other's cache; 0: as fast as its own.
struct Bandwidth {
  std::int64_t bytes = 0;
  double one_gbps = 0, all_gbps = 0, other_gbps = 0;
  double write = 2, rewrite = 1;
  bool operator==(const Bandwidth&) const = default;
};

struct MachineDescription {
  std::vector<DeviceSpec> devices;  // full names
  // Threads that share the devices' work; 0: each device works on its own.
  int workers = 0;
  double run_us = 0;                 // per step, whatever its plan
  double wake_us = 0;                // more, if the step has to wake the workers
  double launch_us = 0;              // per kernel
  double wait_us = 0;                // per launch that waits for one of another worker or device
  double share_us = 0;               // per launch that all workers share
  std::vector<Bandwidth> bandwidth;  // at least one, by increasing bytes
  // [i][j]: between devices i and j; i == j is not used. Empty: all devices share one memory.
  std::vector<std::vector<Link>> links;

  // Interpolates in the logarithm of `bytes`. Outside the list it returns the entry at that end.
  Bandwidth bandwidth_at(std::int64_t bytes) const;
  bool has(const DeviceSpec& device) const;
  // Throws NotFoundError naming the machine's devices.
  int index_of(const DeviceSpec& device) const;
  // The machine's devices that stand for those of a run: the same ones if it has them all;
  // otherwise the first ones of the type of devices[0]. Throws InvalidArgument if there are too
  // few.
  std::vector<DeviceSpec> devices_for(const std::vector<DeviceSpec>& run) const;
  bool operator==(const MachineDescription&) const = default;
};

// {"devices": ["gpu:0", "gpu:1", "cpu:0"],
//  "links": [{"devices": ["gpu:0", "gpu:1"], "latency_us": 9, "gbps": 18}, ...],
//  "other_links": {"latency_us": 20, "gbps": 7, "bus": "host"}}
// describes devices with separate memories; "other_links" covers all pairs that "links" leaves out.
// The host, one device at most, is cpu:0. Without "links" and "other_links", all devices share one
// memory. Further members, all optional: "workers" [0], "run_us" [0], "wake_us" [0], "launch_us"
// [5], "wait_us" [0], "share_us" [0], and "bandwidth", a list of {"bytes", "one_gbps", "all_gbps",
// "other_gbps", "write", "rewrite"} [500 for any size]. Throws InvalidArgument naming the member
// that is missing, unknown or out of range.
MachineDescription parse_machine(const JsonValue& json);
// The JSON that parse_machine() reads back.
JsonValue to_json(const MachineDescription& machine);

}  // namespace belfry
