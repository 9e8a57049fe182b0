// A compiled step: what the passes build, in order, and a session runs.
#pragma once
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "belfry/framework/device/device.h"
#include "belfry/framework/device/gpu_backend.h"
#include "belfry/framework/graph/kernel.h"
#include "belfry/framework/plan/request.h"

namespace belfry {

// Plans refer to their parts by int, which C++ containers do not take.
constexpr std::size_t at(std::integral auto i) { return static_cast<std::size_t>(i); }

// Output `index` of plan node `node`.
struct Value {
  int node = -1;
  int index = 0;
  auto operator<=>(const Value&) const = default;
};

struct Fusion;
struct Rank;
class RankLaunch;
class Placement;

// A graph node with real shapes and a device, or what a pass added: a transfer, a copy, a fusion,
// the part of a rank. Always in topological order of inputs and after.
struct PlanNode {
  const Op* op;
  const Node* node;  // for transfers and copies: the node whose output they carry
  std::vector<Value> inputs;
  std::vector<int> after;         // nodes that must have run, besides the inputs
  std::vector<TensorType> types;  // of the outputs
  std::vector<int> devices;       // of the outputs; at least one, the node's own
  int feed = -1;                  // fed by feed i
  int fetch = -1;                 // copies into fetch i
  bool shared = false;            // a read of what another device's variable stores for this one
  std::shared_ptr<const Fusion> fusion = {};  // of a FusedUpdate
  std::shared_ptr<const Rank> rank = {};      // of the part of a collective that one rank does

  int device() const { return devices[0]; }
  // Is the storage of a variable, not a read or copy of it or what it is fed with.
  bool is_variable() const { return node->is_variable() && op == &node->op(); }
  // Takes part in a run: not an alias, and not memory from outside.
  bool launches() const { return !op->alias && !op->storage; }
  // K of a collective, of its part that a rank does, or of the one in a fusion; else 0. A
  // collective brings the tensors of its participants together: it runs anywhere, and reads each
  // where it is.
  int participants() const;
  // Inputs 0.. that are variables which it writes; output i is the new value of input i.
  int writes() const;
  std::string name() const;
};

// What a FusedUpdate stands for: a collective, and the updates that alone read its results; or, on
// a GPU, updates of one op without a collective, each of a gradient of its own. Its inputs are the
// variables that these write, the collective's inputs or the gradients, then what else they take.
struct Fusion {
  static constexpr std::size_t kMostInputs = 16;  // of an update
  static constexpr std::size_t kMostParticipants = 256;
  static constexpr int kMostOnGpus = 24;   // participants there, and updates of a tensor
  static constexpr int kMostGrouped = 12;  // tensors that a launch there updates
  struct Update {
    const Op* op;
    const Node* node;
    std::vector<int> inputs;        // of the FusedUpdate; -1: the combined tensor
    std::vector<TensorType> types;  // of its outputs
    int first_output;               // of the FusedUpdate
    int result;                     // of the collective: the output that it applies; the gradient
  };
  const Op* op;      // the collective, or null
  int participants;  // 1 without one
  int writes, first_input;
  std::vector<TensorType> types;  // of the collective's outputs, one per input; of the gradients
  std::vector<int> devices;
  std::vector<Update> updates;
};

// The part of a collective (Op::ranks) that one GPU does: a node with the inputs and outputs of the
// participants there. Its results depend on the parts of all ranks, which only NCCL waits for.
struct Rank {
  int number = 0;
  std::vector<int> devices;  // of each rank: whose communication lane it works in
  std::vector<int> members;  // participants of the collective, in order
};

// A tensor that goes to another device: one record per tensor and destination device. Devices of
// one memory space share it; the bytes count all the same. A collective over K devices counts, for
// each of its tensors, as K - 1 to its first device and K - 1 back.
struct TransferRecord {
  std::string name;  // of the tensor
  int from, to;
  std::int64_t bytes;
};

// Until launch `position` of `lane` has run.
struct Wait {
  int lane, position;
  auto operator<=>(const Wait&) const = default;
};

// One call of a kernel. Launches stand in one global topological order, the order of
// Plan::launches.
struct Launch {
  int node;
  int lane;
  int position;  // in its lane
  Range range;
  std::vector<Wait> waits;  // on other lanes, without those implied by others
  std::int64_t chunk;       // units that a worker takes at a time; range.size() if it is not shared
  KernelRun run;            // on lanes of CPUs
  GpuRun enqueue;           // on lanes of GPUs
  std::shared_ptr<RankLaunch> rank = {};  // what `enqueue` calls, of the part of a rank
  bool captured = true;  // on lanes of GPUs: may be a part of a segment (segments.h)
  std::int64_t workspace_bytes = 0;
  int workspace = -1;  // buffer

  std::int64_t chunks() const {
    return range.size() > chunk ? (range.size() + chunk - 1) / chunk : 1;
  }
};

// The launches of one execution resource, in order: of a CPU device, or of a stream of a GPU.
struct Lane {
  int device;
  std::vector<int> launches;
  int gpu = -1;               // the physical GPU; -1: a CPU, or a declared GPU
  bool communicates = false;  // of the parts of a rank alone
};

enum class Place : std::uint8_t {
  kArena,
  kState,  // a variable
  kFeed,   // the caller's; on a GPU behind the arena, once per slot of FeedSlots
  kFixed,  // the value of a Const; on a GPU behind the arena
  kFetch
};

// Where a value is. Aliases have the buffer of what they alias.
struct BufferRecord {
  Place place;
  int device;
  std::int64_t bytes;
  // In the device's arena: kArena; on a GPU kFixed and kFeed (slot 0).
  std::int64_t offset = 0;
  int index = 0;               // kFeed, kFetch
  const Node* node = nullptr;  // kState, kFixed
};

// Where what a GPU device is fed with lies: two slots behind its arena, so that one can be filled
// while a step reads the other, and two alike behind that of the first CPU, which it goes through.
// Slot s begins s * bytes further on.
struct FeedSlots {
  static constexpr int kCount = 2;
  int device;
  int gpu;                        // the physical one; -1: the device is declared
  std::int64_t bytes;             // of a slot
  std::int64_t offset;            // in the device's arena
  std::int64_t on_host;           // in that of the first CPU
  std::vector<int> buffers = {};  // that lie in it
};

// Where a node is: one per output of a collective, else one for all outputs.
struct Assignment {
  const Node* node;
  int device;
};

struct Plan {
  std::shared_ptr<const Placement> placement;  // whose devices the nodes of the graph have
  std::vector<Assignment> assignments;         // in the order in which they were made

  // Variables without memory yet that shall lie in another's, which has none either or stands
  // first.
  std::map<const Node*, const Node*> shares;
  // Variables whose storage others share, but cannot in this plan: each needs its own first.
  std::vector<const Node*> unshare;

  std::vector<Output> fetches;  // an empty one for a node
  std::vector<FeedType> feeds;

  std::vector<PlanNode> nodes;
  std::vector<TransferRecord> transfers;
  std::vector<Lane> lanes;
  std::vector<Launch> launches;
  std::vector<BufferRecord> buffers;
  std::vector<std::vector<int>> buffer_of;  // [node][output]
  std::vector<std::int64_t> arena_bytes;    // per device
  // Per device: fetches in its memory. The first CPU has those of GPUs.
  std::vector<std::int64_t> fetch_bytes;
  std::vector<FeedSlots> feed_slots;        // of the devices that need them, in order

  std::vector<const Node*> variables;  // read or written
  bool writes = false;
  Locks locks = Locks::kWholeRun;

  // clocks[L][lane]: how many launches of each lane have run when launch L starts.
  std::vector<std::vector<int>> clocks;

  const PlanNode& node(int n) const { return nodes[at(n)]; }
  // The plan node that stands for a node of the graph, or -1: not one that carries or copies its
  // outputs, or feeds one in its place.
  int find(const Node& node) const;
  const TensorType& type(Value value) const { return node(value.node).types[at(value.index)]; }
  int device(Value value) const { return node(value.node).devices[at(value.index)]; }
  int buffer(Value value) const { return buffer_of[at(value.node)][at(value.index)]; }
  std::vector<TensorType> input_types(const PlanNode& of) const;
  // Of the graph's tensor that a value is, carries or copies.
  std::string name(Value value) const;

  // The arenas, then a line per launch: for people.
  std::string str(const std::vector<std::unique_ptr<Device>>& devices) const;
};

// The physical GPUs that a plan has lanes of, in order.
std::vector<int> gpus_of(const Plan& plan);
// Those that have slots for feeds, in order.
std::vector<int> fed_gpus(const Plan& plan);
// How many of `most` workers a plan has work for: all if there are chunks of launches for those
// without launches of their own; else at most one per lane of a CPU, and at least one.
int workers_for(const Plan& plan, int most);
// The worker of each lane: contiguous lanes of CPUs, in the numeric order of their devices, to each
// worker. Those of the i-th of gpus_of() are worker `workers` + i's.
std::vector<int> deal_lanes(const Plan& plan, int workers);

// What log_device_placement prints of a plan, in TensorFlow's form: "<name>: (<Type>): <full device
// name>" in the order of assignment, one line per output of a collective. Leaves out `known` nodes.
std::string placement_lines(const Plan& plan, const std::vector<std::unique_ptr<Device>>& devices,
                            const std::set<const Node*>& known = {});

}  // namespace belfry
