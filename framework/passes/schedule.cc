#include <algorithm>
#include <functional>

#include "belfry/framework/core_ops/copy.h"
#include "belfry/framework/passes/passes.h"

namespace belfry {
namespace {

// Bytes that one worker sums at a time: all K buffers of a chunk fit in its cache.
constexpr std::int64_t kWorkerChunk = 64 << 10;

class Scheduler {
 public:
  Scheduler(Plan& plan, const PlanContext& context)
      : plan_(plan), context_(context), deps_(launch_deps(plan)) {}

  void run() {
    for (std::size_t n = 0; n < plan_.nodes.size(); ++n)
      if (plan_.nodes[n].launches()) add_launch(static_cast<int>(n));
  }

 private:
  void add_launch(int n) {
    const PlanNode& node = plan_.node(n);
    const int lane = node.rank ? lane_of(node.rank->devices[at(node.rank->number)], true)
                               : lane_of(choose_device(node), false);
    std::vector<int>& launches = plan_.lanes[at(lane)].launches;
    Launch launch{};
    launch.node = n;
    launch.lane = lane;
    launch.position = static_cast<int>(launches.size());
    const Fusion* const fused = node.fusion.get();
    launch.range =
        fused ? whole_range(*node.op, fused->participants, fused->types, fused->types)
              : whole_range(*node.op, node.participants(), plan_.input_types(node), node.types);
    const bool on_cpu = plan_.lanes[at(lane)].gpu < 0 && !node.rank;
    launch.chunk =
        on_cpu ? chunk_of(node, launch.range) : std::max<std::int64_t>(1, launch.range.size());
    std::vector<int> clock(plan_.lanes.size());
    if (!launches.empty()) clock = plan_.clocks[at(launches.back())];
    clock.resize(plan_.lanes.size());
    clock[at(lane)] = launch.position;
    launch.waits = add_waits(n, clock);
    launch_of_.resize(plan_.nodes.size(), -1);
    launch_of_[at(n)] = static_cast<int>(plan_.launches.size());
    launches.push_back(static_cast<int>(plan_.launches.size()));
    plan_.launches.push_back(std::move(launch));
    plan_.clocks.push_back(std::move(clock));
  }

  // Waits for dependencies that the clock does not cover yet, latest launches first, so that one
  // wait implies as many others as it can. Updates the clock.
  std::vector<Wait> add_waits(int n, std::vector<int>& clock) const {
    std::vector<int> launches;
    for (const int dep : deps_[at(n)]) launches.push_back(launch_of_[at(dep)]);
    std::ranges::sort(launches, std::greater());
    std::vector<Wait> waits;
    for (const int dep : launches) {
      const Launch& earlier = plan_.launches[at(dep)];
      int& known = clock[at(earlier.lane)];
      if (known > earlier.position) continue;
      waits.push_back({earlier.lane, earlier.position});
      const std::vector<int>& implied = plan_.clocks[at(dep)];
      for (std::size_t l = 0; l < implied.size(); ++l) clock[l] = std::max(clock[l], implied[l]);
      known = std::max(known, earlier.position + 1);
    }
    return waits;
  }

  // Collectives take turns on their devices, so that no lane runs them all. Prompt ones begin with
  // the last, whose backward pass is under way when the first bucket is complete.
  int choose_device(const PlanNode& node) {
    if (node.participants() == 0) return copies_from_gpu(node) ? source(node) : node.device();
    const std::vector<int>& devices = node.fusion ? node.fusion->devices : node.devices;
    const int turn = collectives_++ % node.participants();
    const int last = node.participants() - 1;
    const int chosen = devices[at(node.node->prompt() ? last - turn : turn)];
    for (const int other : devices)
      require(device(chosen).reaches(device(other)), node.node->describe(), ": ",
              device(chosen).spec, " does not reach the memory of ", device(other).spec,
              "; combine tensors of CPUs alone, or of GPUs that reach each other, or copy them "
              "first, as other strategies do (naive, ring, nccl)");
    return chosen;
  }

  bool copies_from_gpu(const PlanNode& node) const {
    return node.op == &kCopy && device(source(node)).on_gpu() && !device(node.device()).on_gpu();
  }

  int source(const PlanNode& copy) const { return plan_.device(copy.inputs[0]); }

  const Device& device(int d) const { return context_.device(d); }

  // Collectives above the limit are shared among workers, chunk by chunk.
  static std::int64_t chunk_of(const PlanNode& node, Range range) {
    const std::int64_t whole = std::max<std::int64_t>(1, range.size());
    if (node.participants() == 0) return whole;
    const TensorType& first = node.fusion ? node.fusion->types[0] : node.types[0];
    const auto element = static_cast<std::int64_t>(size_of(first.dtype));
    if (whole * element <= kWorkerChunk) return whole;
    // At least 4 KiB of each participant, in whole cache lines, and no more chunks than can be
    // counted (Ticket).
    const std::int64_t bytes =
        std::max<std::int64_t>(4096, 2 * kWorkerChunk / node.participants() / 64 * 64);
    return std::max(bytes / element, (whole >> 20) / 64 * 64);
  }

  int lane_of(int device, bool communicates) {
    for (std::size_t l = 0; l < plan_.lanes.size(); ++l)
      if (plan_.lanes[l].device == device && plan_.lanes[l].communicates == communicates)
        return static_cast<int>(l);
    plan_.lanes.push_back({device, {}, context_.device(device).gpu, communicates});
    return static_cast<int>(plan_.lanes.size()) - 1;
  }

  Plan& plan_;
  const PlanContext& context_;
  std::vector<std::vector<int>> deps_;
  std::vector<int> launch_of_;
  int collectives_ = 0;
};

}  // namespace

void schedule(Plan& plan, const PlanContext& context) { Scheduler(plan, context).run(); }

}  // namespace belfry
