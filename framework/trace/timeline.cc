#include "belfry/framework/trace/timeline.h"

#include <algorithm>
#include <map>
#include <set>

#include "belfry/framework/core_ops/copy.h"
#include "belfry/framework/core_ops/transfer.h"
#include "belfry/framework/graph/state.h"
#include "belfry/framework/passes/nodes.h"
#include "belfry/framework/plan/fused_update.h"

namespace belfry {
namespace {

constexpr std::int64_t kShortest = 2;  // nanoseconds: room for a point strictly inside
constexpr std::int64_t kGap = 1;

class TimelineMaker {
 public:
  TimelineMaker(const Plan& plan, const Recording& recording)
      : plan_(plan), recording_(recording), consumers_(consumers_of(plan)) {}

  Timeline run() {
    add_launches();
    for (const NodeIndex n : plan_.nodes.indices()) {
      const PlanNode& node = plan_.nodes[n];
      if (node.feed() >= 0) add_feed(n);
      if (node.op == &kTransfer || node.op == &kCopy) add_transfer(n);
      if (node.participants() > 0) add_collective(n);
    }
    set_times();
    add_shards();
    add_parts();
    add_levels();
    return std::move(line_);
  }

 private:
  void add_launches() {
    for (const Strand& strand : plan_.strands) add_track(strand.device);
    launch_of_.assign(plan_.nodes.size(), -1);
    for (const LaunchIndex l : plan_.launches.indices()) {
      const Launch& launch = plan_.launches[l];
      launch_of_[launch.node] = l.value();
      line_.slices.push_back({launch.strand.value(), launch.node, false, launch.range});
      if (!recording_.on_gpu.empty() && recording_.on_gpu[l].start)
        line_.slices.back().enqueued = recording_.on_gpu[l].enqueued;
    }
  }

  int add_track(int device) {
    const auto index = std::ranges::count(line_.tracks, device, &Timeline::Track::device);
    line_.tracks.push_back({device, static_cast<int>(index)});
    return static_cast<int>(line_.tracks.size()) - 1;
  }

  // The feed of a GPU comes from the first CPU.
  void add_feed(NodeIndex n) {
    const int device = plan_.node(n).device(), use = first_use(n, 0);
    if (use >= 0 && std::ranges::count(plan_.feed_slots, device, &FeedSlots::device) > 0)
      line_.arrows.push_back({stored(n, 0), use, {n, 0}});
  }

  // Adds arrows of tensors that cross devices: to the copy on the other device, or else to the
  // first use there. A copy that is made on the tensor's own device, as on GPUs, has an arrow to
  // that use.
  void add_transfer(NodeIndex n) {
    const PlanNode& node = plan_.node(n);
    const int copy = launch_of_[n];
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      const Value moved{n, static_cast<int>(i)};
      const int to = node.devices[i];
      if (plan_.device(node.inputs[i]) == to) continue;
      if (copy >= 0 && device_of(copy) == to)
        add_arrow(node.inputs[i], copy);
      else
        add_arrow(copy >= 0 ? moved : node.inputs[i], first_use(n, moved.index));
    }
  }

  // A collective takes each tensor from where it is, and each other device takes its results.
  void add_collective(NodeIndex n) {
    const PlanNode& node = plan_.node(n);
    const int launch = launch_of_[n];
    const CollectivePart collective = *collective_of(node);
    std::set<Value> taken;
    for (const Value& input : collective.inputs)
      if (taken.insert(input).second) add_arrow(input, launch);
    // By tensor and device: the first use, and the output that it uses. Outputs of updates are all
    // different.
    const std::size_t equal = node.fused_update() ? 1 : at(node.participants());
    std::map<std::pair<std::size_t, int>, std::pair<int, int>> uses;
    for (std::size_t i = 0; i < node.types.size(); ++i) {
      const int use = first_use(n, static_cast<int>(i));
      if (use < 0) continue;
      const std::pair found(use, static_cast<int>(i));
      const auto first = uses.emplace(std::pair(i / equal, node.devices[i]), found).first;
      first->second = std::min(first->second, found);
    }
    for (const auto& [where, use] : uses) add_arrow({n, use.second}, use.first);
  }

  // The first launch on a value's own device that uses it, or -1.
  int first_use(NodeIndex node, int output) const {
    const int device = plan_.device({node, output});
    int first = -1;
    std::vector<Value> open{{node, output}};
    while (!open.empty()) {
      const Value value = open.back();
      open.pop_back();
      for (const NodeIndex next : consumers_[value.node]) {
        const PlanNode& user = plan_.node(next);
        if (std::ranges::find(user.inputs, value) == user.inputs.end()) continue;
        if (user.op->alias && user.op != &kTransfer) open.push_back({next, 0});
        const int launch = launch_of_[next];
        if (launch < 0 || device_of(launch) != device) continue;
        if (first < 0 || launch < first) first = launch;
      }
    }
    return first;
  }

  void add_arrow(Value value, int to) {
    if (to < 0) return;
    const int from = source(value);
    if (device_of(from) != device_of(to)) line_.arrows.push_back({from, to, value});
  }

  int device_of(int slice) const { return line_.tracks[at(line_.slices[at(slice)].track)].device; }

  // The slice that made a tensor; a separate slice if the tensor was there before the run.
  int source(Value value) {
    NodeIndex alias = value.node;
    while (plan_.node(value.node).op->alias) {
      alias = value.node;
      value = plan_.node(value.node).inputs[0];
    }
    if (launch_of_[value.node] >= 0) return launch_of_[value.node];
    // Writes wait for the users of older versions, so a read sees the last write before it.
    const bool is_read = plan_.node(alias).op == &kRead;
    for (NodeIndex n = is_read ? alias : NodeIndex(0); --n;) {
      const PlanNode& node = plan_.node(n);
      const auto written = std::span(node.inputs).first(at(node.writes()));
      if (std::ranges::find(written, value) != written.end()) return launch_of_[n];
    }
    const NodeIndex node = is_read ? alias : value.node;
    return stored(node, plan_.node(node).device());
  }

  int stored(NodeIndex node, int device) {
    const auto [made, fresh] =
        stored_.emplace(std::pair(node, device), static_cast<int>(line_.slices.size()));
    if (fresh) {
      const auto track = std::ranges::find(line_.tracks, device, &Timeline::Track::device);
      const bool has_strand = track != line_.tracks.end();
      const int index =
          has_strand ? static_cast<int>(track - line_.tracks.begin()) : add_track(device);
      line_.slices.push_back({index, node, false, {}});
    }
    return made->second;
  }

  // The global order is topological, so a single pass settles all.
  void set_times() {
    Indexed<Launch, std::vector<int>> sources(plan_.launches.size());
    for (const Timeline::Arrow& arrow : line_.arrows)
      sources[LaunchIndex(arrow.to)].push_back(arrow.from);
    std::vector<std::int64_t> free(line_.tracks.size());
    for (std::size_t s = plan_.launches.size(); s < line_.slices.size(); ++s)
      settle(line_.slices[s], {}, 0, free);
    for (const LaunchIndex l : plan_.launches.indices()) {
      for (const Wait& wait : plan_.launches[l].waits)
        sources[l].push_back(plan_.awaited(wait).value());
      std::int64_t earliest = 0;
      for (const int slice : sources[l])
        earliest = std::max(earliest, line_.slices[at(slice)].end + kGap);
      settle(slice_of(l), recording_.launches[l], earliest, free);
    }
  }

  static void settle(Timeline::Slice& slice, Recording::Interval time, std::int64_t earliest,
                     std::vector<std::int64_t>& free) {
    slice.start = std::max({time.start, earliest, free[at(slice.track)]});
    slice.end = std::max(time.end, slice.start + kShortest);
    free[at(slice.track)] = slice.end + kGap;
  }

  // Adds launches that run once per shard. Each shard but the first has its own track.
  void add_shards() {
    for (const StrandIndex s : plan_.strands.indices())
      for (int shard = 1; shard < plan_.strands[s].shards; ++shard) {
        const int track = add_track(plan_.strands[s].device);
        std::vector<std::int64_t> free(line_.tracks.size());
        for (const LaunchIndex l : plan_.strands[s].launches) {
          Timeline::Slice slice{track, plan_.launches[l].node, false, {}};
          slice.shard = shard;
          settle(slice, recording_.shards[l][at(shard) - 1], 0, free);
          line_.slices.push_back(slice);
        }
      }
  }

  void add_parts() {
    if (recording_.parts.size() < 2) return;  // nobody to help
    std::vector<std::int64_t> free;
    for (const auto& parts : recording_.parts) {
      const int track = add_track(Timeline::kWorkers);
      free.resize(line_.tracks.size());
      for (const Recording::Part& part : parts) {
        const Timeline::Slice& whole = slice_of(part.launch);
        Timeline::Slice slice{track, whole.node, true, part.range};
        settle(slice, part.time, whole.start, free);
        line_.slices.push_back(slice);
      }
    }
  }

  // A buffer is in use from the start of the first launch that touches it to the end of the last.
  void add_levels() {
    std::map<std::pair<int, std::int64_t>, std::int64_t> changes;  // by device and time
    for (std::size_t d = 0; d < plan_.arena_bytes.size(); ++d)
      changes[{static_cast<int>(d), 0}] = 0;
    for (const auto& [buffer, life] : lives()) {
      const BufferRecord& record = plan_.buffers[buffer];
      changes[{record.device, life.start}] += record.bytes;
      changes[{record.device, life.end}] -= record.bytes;
    }
    std::int64_t bytes = 0;  // back at 0 after each device
    for (const auto& [when, change] : changes)
      line_.levels.push_back({when.first, when.second, bytes += change});
  }

  std::map<BufferIndex, Recording::Interval> lives() const {
    std::map<BufferIndex, Recording::Interval> lives;
    for (const LaunchIndex l : plan_.launches.indices()) {
      const Launch& launch = plan_.launches[l];
      const Timeline::Slice& slice = slice_of(l);
      const auto use = [&](BufferIndex buffer) {
        if (plan_.buffers[buffer].kind != BufferKind::kArena) return;
        const auto life = lives.emplace(buffer, Recording::Interval{slice.start, slice.end}).first;
        life->second.start = std::min(life->second.start, slice.start);
        life->second.end = std::max(life->second.end, slice.end);
      };
      for (const Value& input : plan_.node(launch.node).inputs) use(plan_.buffer(input));
      for (const BufferIndex buffer : plan_.buffer_of[launch.node]) use(buffer);
      if (plan_.workspaces[l]) use(plan_.workspaces[l]);
    }
    return lives;
  }

  // Slices of launches come first, in the order of launches.
  const Timeline::Slice& slice_of(LaunchIndex launch) const {
    return line_.slices[at(launch.value())];
  }
  Timeline::Slice& slice_of(LaunchIndex launch) { return line_.slices[at(launch.value())]; }

  const Plan& plan_;
  const Recording& recording_;
  Consumers consumers_;
  Indexed<PlanNode, int> launch_of_;  // slices, of a sum over several GPUs the last one; -1: none
  std::map<std::pair<NodeIndex, int>, int> stored_;  // slice by plan node and device
  Timeline line_;
};

}  // namespace

Timeline make_timeline(const Plan& plan, const Recording& recording) {
  return TimelineMaker(plan, recording).run();
}

}  // namespace belfry
