// Gives every tensor its place before the first run, so that no run allocates. Two tensors share
// memory if one is no longer needed when the other is written. The clocks of the schedule show this
// for any number of workers. The pass first finds values that need no memory of their own: aliases,
// outputs over their inputs, and values computed in the variable that they are assigned to. Each of
// them saves a copy, too. Then the pass packs each arena: the largest buffer first, at its lowest
// free offset, or in very large plans at one near the last buffer of its size.
#include <algorithm>
#include <functional>
#include <map>
#include <ranges>
#include <span>
#include <unordered_map>
#include <utility>

#include "belfry/framework/core_ops/assign.h"
#include "belfry/framework/core_ops/constant.h"
#include "belfry/framework/passes/nodes.h"
#include "belfry/framework/passes/packed_arenas.h"
#include "belfry/framework/passes/passes.h"
#include "belfry/framework/plan/lists.h"

namespace belfry {
namespace {

// Rounds up the bytes of a tensor to a cache line, or on GPUs to the alignment that cuBLASLt
// requires of workspaces.
std::int64_t align(std::int64_t bytes, const Device& device) {
  const std::int64_t alignment = device.on_gpu() ? 256 : 64;
  return (bytes + alignment - 1) / alignment * alignment;
}

// A buffer of an arena while it is being laid out.
struct Block {
  BufferIndex buffer;
  std::int64_t bytes;
};

// root_of() of every value, found in one pass: walks along many aliases in a row, one for each of
// them, would take quadratic time.
class Roots {
 public:
  explicit Roots(const PlanGraph& graph) {
    for (const NodeIndex n : graph.nodes.indices()) {
      const PlanNode& node = graph.nodes[n];
      first_.push_back(roots_.size());
      for (int i = 0; i < std::ssize(node.types); ++i) {
        const bool written = i < node.writes();
        roots_.push_back(node.op->alias || written ? of(node.inputs[at(written ? i : 0)])
                                                   : Value{n, i});
      }
    }
  }

  Value of(const Value& value) const { return roots_[number(value)]; }
  // Of all values, by node and output.
  std::size_t number(const Value& value) const { return first_[value.node] + at(value.index); }
  std::size_t values() const { return roots_.size(); }

 private:
  Indexed<PlanNode, std::size_t> first_;  // number of each node's first value
  std::vector<Value> roots_;
};

// The launches that use each value, aliases followed.
class ValueUsers {
 public:
  ValueUsers(const PlanGraph& graph, const ExecutionSchedule& schedule, const Roots& roots)
      : graph_(graph), schedule_(schedule), roots_(roots) {
    launch_of_.resize(graph.nodes.size());
    for (const LaunchIndex l : schedule.launches.indices())
      if (LaunchIndex& first = launch_of_[schedule.launches[l].node]; !first) first = l;
    users_ = {roots.values(), [&](const auto& add) { each_use(add); }};
  }

  // The first launch of a node; none if the node does not launch.
  LaunchIndex launch_of(NodeIndex node) const { return launch_of_[node]; }
  // The launches that use the value `root`, which is not an alias. Sorted.
  std::span<const LaunchIndex> of(Value root) const { return users_[number_of(root)]; }

 private:
  Index<Value> number_of(Value value) const { return Index<Value>(roots_.number(value)); }

  void each_use(const auto& add) const {
    for (const NodeIndex n : graph_.nodes.indices())
      if (launch_of_[n])
        for (const Value& input : graph_.nodes[n].inputs)
          each_launch(schedule_, launch_of_[n],
                      [&](LaunchIndex l) { add(number_of(roots_.of(input)), l); });
  }

  const PlanGraph& graph_;
  const ExecutionSchedule& schedule_;
  const Roots& roots_;
  Indexed<PlanNode, LaunchIndex> launch_of_;
  Lists<Value, LaunchIndex> users_;
};

// The inputs that output i of a node may overwrite.
std::span<const Value> overwritable(const PlanNode& node, std::size_t i) {
  const std::span<const Value> inputs(node.inputs);
  switch (node.op->in_place) {
    case InPlace::kNo: break;
    case InPlace::kAny: return i == 0 ? inputs : inputs.first(0);
    case InPlace::kFirst: return inputs.first(i == 0 && !inputs.empty() ? 1 : 0);
    case InPlace::kPairwise: return i < inputs.size() ? inputs.subspan(i, 1) : inputs.first(0);
  }
  return {};
}

class MemoryPlanner {
 public:
  MemoryPlanner(const PlanGraph& graph, const ExecutionSchedule& schedule,
                const PlanContext& context)
      : graph_(graph),
        schedule_(schedule),
        context_(context),
        roots_(graph),
        users_(graph, schedule, roots_),
        arenas_(schedule) {}

  MemoryLayout run() {
    made_.fetch_bytes.assign(context_.devices.size(), 0);
    find_fetches();
    assign_buffers();
    uses_ = {made_.buffers.size(), [&](const auto& add) { each_use(add); }};
    lay_out();
    return std::move(made_);
  }

 private:
  // The program fetches first values of variables, which are large and have no other reader. So a
  // host computes a value without inputs directly in its fetch. A value that a GPU reads is left
  // out, because GPUs cannot read there.
  void find_fetches() {
    const auto of_host = [&](const PlanNode& node) { return device_of(node).memory_space == 0; };
    for (const NodeIndex n : graph_.nodes.indices()) {
      const PlanNode& copy = graph_.nodes[n];
      if (copy.fetch() < 0 || copy.inputs.empty() || !of_host(copy)) continue;
      const PlanNode& made = graph_.node(copy.inputs[0].node);
      if (made.inputs.empty() && made.launches() && of_host(made))
        fetched_as_.emplace(copy.inputs[0], n);
    }
    if (fetched_as_.empty()) return;
    for (const PlanNode& node : graph_.nodes)
      if (!of_host(node))
        for (const Value& input : node.inputs) fetched_as_.erase(input);
  }

  const Device& device_of(const PlanNode& node) const { return context_.device(node.device()); }

  // Gives every value, in order of nodes, a buffer: its own, or that of the value that it aliases
  // or overwrites.
  void assign_buffers() {
    made_.buffer_of.resize(graph_.nodes.size());
    for (const NodeIndex n : graph_.nodes.indices()) {
      const PlanNode& node = graph_.nodes[n];
      auto& buffers = made_.buffer_of[n];
      buffers.reserve(node.types.size());
      for (std::size_t i = 0; i < node.types.size(); ++i) {
        const Value value{n, static_cast<int>(i)};
        const Value root = roots_.of(value);
        if (root != value) {
          buffers.push_back(made_.buffer(root));
          continue;
        }
        buffers.push_back(buffer_for(value));
        if (values_in_.size() < made_.buffers.size()) values_in_.resize(made_.buffers.size());
        values_in_[buffers.back()].push_back(value);
      }
      if (node.op == &kAssign && graph_.locks == LockDuration::kWholeRun) make_where_assigned(n);
    }
    for (const Launch& launch : schedule_.launches) {
      BufferIndex& workspace = made_.workspaces.emplace_back();
      if (launch.workspace_bytes == 0) continue;
      const Strand& strand = schedule_.strands[launch.strand];
      BufferRecord record{BufferKind::kArena, strand.device, launch.workspace_bytes};
      record.sliced = strand.shards > 1;
      workspace = made_.buffers.add(record);
    }
  }

  BufferIndex buffer_for(Value value) {
    const PlanNode& node = graph_.node(value.node);
    const std::size_t i = at(value.index);
    const auto own = [&] {
      const BufferIndex over = overwritten(value.node, i);
      return over ? over : made_for(value);
    };
    if (!node.op->collective) return own();
    // Results of a collective are equal, so one tensor is enough for a memory space.
    if (value.index % node.participants() == 0) equal_in_.clear();
    BufferIndex& equal = equal_in_[context_.device(node.devices[i]).memory_space];
    if (!equal) equal = own();
    return equal;
  }

  // The buffer of a value, or of the fetch in which it is made.
  BufferIndex made_for(Value value) {
    const PlanNode& node = graph_.node(value.node);
    const auto fetch = fetched_as_.find(value);
    if (fetch != fetched_as_.end()) return make_buffer({fetch->second, 0});
    if (node.fetch() >= 0) {
      const auto made = fetched_as_.find(node.inputs[0]);
      if (made != fetched_as_.end() && made->second == value.node)
        return made_.buffer(node.inputs[0]);
    }
    return make_buffer(value);
  }

  BufferIndex make_buffer(Value value) {
    const PlanNode& node = graph_.node(value.node);
    BufferRecord record{BufferKind::kArena, graph_.device(value), bytes_of(value)};
    record.sliced = bool(graph_.division(value));
    record.node = node.node;
    if (node.fetch() >= 0) {
      record.kind = BufferKind::kFetch;
      record.index = node.fetch();
      made_.fetch_bytes[at(record.device)] += record.bytes;
    } else if (node.feed() >= 0) {
      record.kind = BufferKind::kFeed;
      record.index = node.feed();
    } else if (node.op == &kConst) {
      record.kind = BufferKind::kConstant;
    } else if (node.op->storage) {
      record.kind = BufferKind::kState;
    }
    return made_.buffers.add(record);
  }

  // The bytes of an output, or of its largest shard.
  std::int64_t bytes_of(Value value) const {
    if (graph_.division(value).kind != Division::Kind::kRows) return graph_.bytes(value);
    const int device = graph_.node(value.node).device();
    return graph_.rows_of(graph_.type(value), device, graph_.most_samples(device)).bytes();
  }

  // The buffer that output i may overwrite, or none. It holds an input of the same size in the same
  // arena, and this launch is its last user.
  BufferIndex overwritten(NodeIndex n, std::size_t i) {
    const PlanNode& node = graph_.node(n);
    const LaunchIndex launch = users_.launch_of(n);
    if (!launch || node.fetch() >= 0) return {};
    for (const Value& input : overwritable(node, i)) {
      const BufferIndex buffer = made_.buffer(roots_.of(input));
      const BufferRecord& record = made_.buffers[buffer];
      if (record.kind != BufferKind::kArena || record.device != node.devices[i] ||
          record.sliced != bool(node.division(static_cast<int>(i))) ||
          record.bytes != bytes_of({n, static_cast<int>(i)}))
        continue;
      if (last_user(buffer, launch) && fed_once(n, buffer)) return buffer;
    }
    return {};
  }

  // Computes an assigned value in the variable's memory, if nobody needs the old value by then. The
  // write finds the value in place and copies nothing.
  void make_where_assigned(NodeIndex write) {
    const PlanNode& node = graph_.node(write);
    const Value variable = roots_.of(node.inputs[0]);
    const Value value = roots_.of(node.inputs[1]);
    const BufferRecord& state = made_.buffers[made_.buffer(variable)];
    BufferRecord& made = made_.buffers[made_.buffer(value)];
    if (made.kind != BufferKind::kArena || state.kind != BufferKind::kState || made.sliced ||
        made.device != state.device || made.bytes != state.bytes)
      return;
    const std::vector<Value>& values = values_in_[made_.buffer(value)];
    // Connecting the ranks of NCCL, which is no run, writes the outputs of their collectives. The
    // launches of several GPUs do not begin together.
    if (std::ranges::any_of(values, [&](const Value& in) {
          return graph_.node(in.node).rank() || has_several_launches(in.node);
        }))
      return;
    const LaunchIndex launch = users_.launch_of(write);
    // Other streams of GPUs may read the value while the write runs. That counts as a conflict.
    const bool is_read_beside =
        device(state).on_gpu() && std::ranges::any_of(users_.of(value), [&](LaunchIndex user) {
          return user != launch && !schedule_.happens_before(user, launch) &&
                 !schedule_.happens_before(launch, user);
        });
    const bool is_last = values.back().node == value.node;
    if (is_last && !is_read_beside && is_free_from(values.front(), variable, launch)) made = state;
  }

  bool has_several_launches(NodeIndex n) const {
    int launches = 0;
    if (const LaunchIndex first = users_.launch_of(n))
      each_launch(schedule_, first, [&](LaunchIndex) { ++launches; });
    return launches > 1;
  }

  // Whether the launch that makes `first` may overwrite the memory of the variable. All users of
  // the old value must come before that launch, or be that launch, which writes over it. All other
  // users read the result of `write`.
  bool is_free_from(Value first, Value variable, LaunchIndex write) {
    const LaunchIndex begin = users_.launch_of(first.node);
    return begin && std::ranges::all_of(users_.of(variable), [&](LaunchIndex user) {
             if (user == write || schedule_.happens_before(user, begin)) return true;
             const PlanNode& node = graph_.node(schedule_.launches[user].node);
             if (writes_variable(node, variable)) return false;
             if (user != begin) return schedule_.happens_before(write, user);
             const auto is_variable = [&](const Value& input) {
               return roots_.of(input) == variable;
             };
             return std::ranges::any_of(overwritable(graph_.node(first.node), at(first.index)),
                                        is_variable) &&
                    fed_once(first.node, made_.buffer(variable));
           });
  }

  bool writes_variable(const PlanNode& node, Value variable) const {
    return std::ranges::any_of(std::span(node.inputs).first(at(node.writes())),
                               [&](const Value& input) { return roots_.of(input) == variable; });
  }

  // Whether no other node uses the content of the buffer at the same time as the node whose first
  // launch is `launch`, or later. Launches of one node use different elements. An overwritten value
  // had no such user at that time, so only the values of the last writer count: otherwise a long
  // chain of ops in one buffer would take quadratic time.
  bool last_user(BufferIndex buffer, LaunchIndex launch) const {
    for (const Value value : values_in_[buffer] | std::views::reverse) {
      if (value.node != values_in_[buffer].back().node) break;
      for (const LaunchIndex user : users_.of(value))
        if (!is_over(user, launch)) return false;
    }
    return true;
  }

  // Whether `user` has run before every launch of the node of `first`, or is one of these launches.
  bool is_over(LaunchIndex user, LaunchIndex first) const {
    bool over = true;
    if (schedule_.launches[user].node != schedule_.launches[first].node)
      each_launch(schedule_, first,
                  [&](LaunchIndex l) { over = over && schedule_.happens_before(user, l); });
    return over;
  }

  // Whether node n reads the buffer once. A value that it uses twice is read and written at
  // different places, and so is a value whose shards it takes one by one.
  bool fed_once(NodeIndex n, BufferIndex buffer) {
    if (std::exchange(fed_node_, n) != n) {
      fed_.clear();
      for (const Value& input : graph_.node(n).inputs) ++fed_[made_.buffer(roots_.of(input))];
    }
    return fed_.at(buffer) == 1;
  }

  // Calls add(buffer, launch) once for each buffer that a launch touches.
  void each_use(const auto& add) const {
    Indexed<BufferRecord, LaunchIndex> last(made_.buffers.size());
    for (const LaunchIndex l : schedule_.launches.indices()) {
      const auto touch = [&](BufferIndex buffer) {
        if (std::exchange(last[buffer], l) != l) add(buffer, l);
      };
      const NodeIndex n = schedule_.launches[l].node;
      for (const Value& input : graph_.node(n).inputs) touch(made_.buffer(roots_.of(input)));
      for (const BufferIndex buffer : made_.buffer_of[n]) touch(buffer);
      if (made_.workspaces[l]) touch(made_.workspaces[l]);
    }
  }

  // Packs the largest block first, each at an offset where no conflicting block overlaps it.
  void lay_out() {
    made_.arena_bytes.assign(context_.devices.size(), 0);
    made_.kept_bytes.assign(context_.devices.size(), 0);
    made_.slices.resize(context_.devices.size());
    std::vector<std::vector<Block>> common(context_.devices.size());
    std::vector<std::vector<Block>> sliced(context_.devices.size());
    for (const BufferIndex b : made_.buffers.indices()) {
      const BufferRecord& record = made_.buffers[b];
      if (record.kind == BufferKind::kArena && !uses_[b].empty())
        (record.sliced ? sliced : common)[at(record.device)].push_back(
            {b, align(record.bytes, device(record))});
    }
    for (std::size_t d = 0; d < common.size(); ++d) {
      const std::int64_t begin = pack(common[d]);
      made_.slices[d] = {begin, pack(sliced[d])};
      made_.arena_bytes[d] = begin + graph_.shards_per_device * made_.slices[d].bytes;
    }
    for (const BufferIndex b : made_.buffers.indices())
      if (!uses_[b].empty()) append_constant(made_.buffers[b]);
    std::map<int, std::vector<BufferIndex>> feeds;  // of GPUs
    for (const BufferIndex b : made_.buffers.indices())
      if (made_.buffers[b].kind == BufferKind::kFeed && device(made_.buffers[b]).on_gpu() &&
          !uses_[b].empty())
        feeds[made_.buffers[b].device].push_back(b);
    for (const auto& [device, buffers] : feeds) append_feeds(device, buffers);
  }

  // Returns the end of the last block.
  std::int64_t pack(std::vector<Block>& blocks) {
    std::ranges::stable_sort(blocks, std::greater(), &Block::bytes);
    std::vector<ArenaBlock> used;
    for (const Block& block : blocks) used.push_back({block.bytes, uses_[block.buffer]});
    const PackedArena& packed = arenas_.pack(used);
    for (std::size_t i = 0; i < blocks.size(); ++i)
      made_.buffers[blocks[i].buffer].offset = packed.offsets[i];
    return packed.bytes;
  }

  // Gives a constant of a GPU memory that outlives runs.
  void append_constant(BufferRecord& record) {
    if (record.kind != BufferKind::kConstant || !device(record).on_gpu()) return;
    std::int64_t& end = made_.kept_bytes[at(record.device)];
    record.offset = end;
    end += align(record.bytes, device(record));
  }

  // Gives the feeds of a GPU their slots after the constants. The slots on the host belong to the
  // first device.
  void append_feeds(int d, const std::vector<BufferIndex>& buffers) {
    const Device& fed = context_.device(d);
    std::int64_t& end = made_.kept_bytes[at(d)];
    FeedSlots slots{
        .device = d, .gpu = fed.gpu, .bytes = 0, .offset = end, .on_host = made_.kept_bytes[0]};
    for (const BufferIndex b : buffers) {
      BufferRecord& record = made_.buffers[b];
      record.offset = end + slots.bytes;
      slots.bytes += align(record.bytes, fed);
      slots.buffers.push_back(b);
    }
    end += FeedSlots::kCount * slots.bytes;
    made_.kept_bytes[0] += FeedSlots::kCount * slots.bytes;
    made_.feed_slots.push_back(std::move(slots));
  }

  const Device& device(const BufferRecord& record) const { return context_.device(record.device); }

  const PlanGraph& graph_;
  const ExecutionSchedule& schedule_;
  const PlanContext& context_;
  const Roots roots_;
  const ValueUsers users_;
  MemoryLayout made_;
  std::unordered_map<Value, NodeIndex> fetched_as_;  // value -> the copy in whose fetch it is made
  Indexed<BufferRecord, std::vector<Value>> values_in_;
  Lists<BufferRecord, LaunchIndex> uses_;  // launches that touch each
  std::map<int, BufferIndex> equal_in_;    // by memory space: of the present tensor of a collective
  PackedArenas arenas_;
  NodeIndex fed_node_;
  std::map<BufferIndex, int> fed_;  // how often fed_node_ takes each
};

}  // namespace

MemoryLayout plan_memory(const PlanGraph& graph, const ExecutionSchedule& schedule,
                         const PlanContext& context) {
  return MemoryPlanner(graph, schedule, context).run();
}

}  // namespace belfry
