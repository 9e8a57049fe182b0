// Makes a launch of each node, puts it on a strand, and finds the launches of other strands that it
// waits for. Two uses of memory may overlap unless one is known to come first, so the waits also
// decide how much memory a plan takes. Vector clocks leave out waits that others imply, because
// each wait costs a signal in every step.
#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <tuple>

#include "belfry/framework/base/require.h"
#include "belfry/framework/core_ops/add_pieces.h"
#include "belfry/framework/core_ops/between_processes.h"
#include "belfry/framework/core_ops/copy.h"
#include "belfry/framework/core_ops/gather_shards.h"
#include "belfry/framework/graph/op_work.h"
#include "belfry/framework/passes/nodes.h"
#include "belfry/framework/passes/passes.h"
#include "belfry/framework/plan/fused_update.h"

namespace belfry {
namespace {

// Bytes of results above which a launch is cut into parts. A part of a fused update reads at most
// twice as many bytes, so it stays in the cache from one kernel to the next. A launch that counts
// as reading one tensor (gather of shards, random numbers) has parts of twice as many bytes, so it
// is cut above 128 KiB.
constexpr std::int64_t kWorkerPart = 64 << 10;
// A sum that is not fused reads everything once, which is fastest in long parts: of kWorkerPart at
// least, and at most this many.
constexpr std::int64_t kMostSumParts = 64;

// If one CPU device with one shard has all work of hosts, workers share all of its launches that
// are large and can be divided. Bytes of results, or multiply-adds, of a part, at least; and parts,
// at most.
constexpr std::int64_t kSharedBytes = 128 << 10;
constexpr double kSharedWork = 1 << 22;
constexpr std::int64_t kMostSharedParts = 32;

// Bytes of partial sums that may wait to be added. A worker runs a shard through the step until it
// must wait for a sum, so that the shard's tensors stay in its cache.
constexpr std::int64_t kOpenSums = 32 << 20;

// Strands of a device: for launches that run once, for those that run once per shard, and for parts
// of ranks, or for messages that keep their order.
constexpr std::size_t kMostStrands = 3;
// Strands of a device for other messages between processes: so many may be under way at a time.
constexpr std::size_t kMessageStrands = 8;
// The thread of messages adds pieces of at most this many bytes itself. Workers may be busy, and
// the sum has a long way to go.
constexpr std::int64_t kAddedByMessages = 256 << 10;

// Launches that read partial sums of a device, in order.
struct Sums {
  struct Sum {
    LaunchIndex launch;
    std::int64_t bytes;
  };
  std::vector<Sum> all;
  std::size_t past = 0;     // how many of the first must be over before the next divided launch
  std::size_t awaited = 0;  // how many of the first some divided launch waits for
  std::int64_t open = 0;    // bytes of the sums after the first `past`
};

class Scheduler {
 public:
  Scheduler(const PlanGraph& graph, const PlanContext& context)
      : graph_(graph),
        context_(context),
        deps_(launch_deps(graph)),
        launch_of_(graph.nodes.size()) {
    std::set<int> sending, on_hosts;
    for (const PlanNode& node : graph.nodes) {
      if (node.op->exchange) sending.insert(node.device());
      if (node.launches() && !device(node.device()).on_gpu()) on_hosts.insert(node.device());
    }
    shares_all_ = graph.shards_per_device == 1 && on_hosts.size() == 1;
    made_.clocks = Clocks(kMostStrands * context.devices.size() + kMessageStrands * sending.size());
  }

  ExecutionSchedule run() {
    for (const NodeIndex n : graph_.nodes.indices())
      if (graph_.nodes[n].launches()) add_launches(n);
    return std::move(made_);
  }

 private:
  void add_launches(NodeIndex n) {
    const PlanNode& node = graph_.node(n);
    const WorkRange whole = range_of(node, fewest_samples(node));
    const std::vector<int> gpus = summing_gpus(node, whole);
    launch_of_[n] = made_.launches.next();
    if (gpus.empty()) add_launch(n, choose_strand(n), whole);
    for (std::size_t g = 0; g < gpus.size(); ++g) {
      const auto cut = [&](std::size_t i) {
        return cut_near(node, whole.size() * std::int64_t(i) / std::ssize(gpus));
      };
      add_launch(n, strand_of(gpus[g], true), {cut(g), cut(g + 1)});
      made_.launches.back().capturable = false;  // only it waits for the other GPUs, not a graph
    }
    note_sum(n);
  }

  void add_launch(NodeIndex n, StrandIndex strand, WorkRange range) {
    const PlanNode& node = graph_.node(n);
    std::vector<LaunchIndex>& launches = made_.strands[strand].launches;
    Launch launch{};
    launch.node = n;
    launch.strand = strand;
    launch.position = static_cast<int>(launches.size());
    launch.range = range;
    launch.range_larger =
        node.sharding.divides() ? range_of(node, fewest_samples(node) + 1) : range;
    launch.part_size = !made_.on_gpu(strand) && !made_.exchanges(strand) && !node.rank()
                           ? part_of(node, range)
                           : std::max<std::int64_t>(1, range.size());
    launch.clock = launches.empty() ? Clocks::kNothing : made_.launches[launches.back()].clock;
    add_waits(launch);
    launches.push_back(made_.launches.add(std::move(launch)));
  }

  StrandIndex choose_strand(NodeIndex n) {
    const PlanNode& node = graph_.node(n);
    if (const Rank* const rank = node.rank())
      return strand_of(rank->devices[at(rank->number)], true);
    if (node.op->exchange || added_by_messages(node)) return strand_of_message(n);
    return strand_of(choose_device(node), false, graph_.runs(node));
  }

  // Samples of the smallest shard.
  std::int64_t fewest_samples(const PlanNode& node) const {
    return node.sharding.divides()
               ? graph_.batches[at(node.device())].samples / graph_.shards_per_device
               : 0;
  }

  // `samples`: of the shard, if the node is divided.
  WorkRange range_of(const PlanNode& node, std::int64_t samples) const {
    if (node.fused_update()) return {0, tensors_of(*node.fused_update()).elements()};
    if (node.sharding.divides())
      return whole_range(*node.op, 0, graph_.input_types(node, samples),
                         graph_.output_types(node, samples));
    return whole_range(*node.op, node.participants(), graph_.input_types(node), node.types);
  }

  // Partial sums take S times the memory of the tensor, so a step must not hold all of them at
  // once: divided launches run ahead of the sums by kOpenSums bytes, or by one larger sum.
  void note_sum(NodeIndex n) {
    std::map<int, std::int64_t> bytes;  // by device
    for (const Value& input : graph_.node(n).inputs)
      if (input.shard != Value::kOwn && graph_.division(input) == Division::partial())
        bytes[graph_.device(input)] += graph_.type(input).bytes();
    for (const auto& [device, of_node] : bytes) {
      Sums& sums = sums_[device];
      sums.all.push_back({launch_of_[n], of_node});
      sums.open += of_node;
      while (sums.open > kOpenSums && sums.past + 1 < sums.all.size())
        sums.open -= sums.all[sums.past++].bytes;
    }
  }

  // Adds waits for dependencies that the clock does not cover yet. It takes the latest launches
  // first, so that one wait implies as many others as it can. Updates the clock.
  void add_waits(Launch& launch) {
    std::vector<LaunchIndex> launches;
    for (const NodeIndex dep : deps_[launch.node])
      each_launch(made_, launch_of_[dep], [&](LaunchIndex l) { launches.push_back(l); });
    const PlanNode& node = graph_.node(launch.node);
    if (const auto sums = sums_.find(node.device()); node.sharding.divides() && sums != sums_.end())
      for (Sums& of = sums->second; of.awaited < of.past; ++of.awaited)
        launches.push_back(of.all[of.awaited].launch);
    std::ranges::sort(launches, std::greater());
    Clocks& clocks = made_.clocks;
    for (const LaunchIndex dep : launches) {
      const Launch& earlier = made_.launches[dep];
      if (earlier.strand == launch.strand ||
          clocks.count(launch.clock, earlier.strand) > earlier.position)
        continue;
      launch.waits.push_back({earlier.strand, earlier.position});
      launch.clock = clocks.joined(launch.clock, earlier.clock);
      launch.clock = clocks.with(launch.clock, earlier.strand, earlier.position + 1);
    }
  }

  // The devices whose communication strands sum a collective over several GPUs: the first device of
  // each of these GPUs, for its share of the elements. If there is little to sum, one of them does
  // it all. Empty for other nodes: one launch of theirs is shared by the workers of CPUs, or reads
  // the memory of one GPU.
  std::vector<int> summing_gpus(const PlanNode& node, WorkRange whole) {
    if (node.participants() == 0 || node.rank()) return {};
    std::vector<int> gpus;
    for (const int d : devices_of(node)) {
      if (!device(d).backend) return {};
      int first = 0;
      while (device(first).memory_space != device(d).memory_space) ++first;
      if (std::ranges::find(gpus, first) == gpus.end()) gpus.push_back(first);
    }
    if (gpus.size() < 2) return {};
    if (whole.size() * std::int64_t(size_of(node.types[0].dtype)) <= kWorkerPart)
      gpus = {gpus[take_turn(node, gpus.size())]};
    for (const int gpu : gpus) require_reach(node, gpu);
    return gpus;
  }

  // A place close to element `wanted` of the tensors of a collective, end to end. Within its tensor
  // it is a multiple of 64 elements, so that each GPU reads whole packs.
  static std::int64_t cut_near(const PlanNode& node, std::int64_t wanted) {
    std::int64_t start = 0;
    for (std::size_t i = 0; i < node.types.size(); i += at(node.participants())) {
      const std::int64_t elements = node.types[i].shape.elements();
      if (wanted < start + elements) return start + (wanted - start) / 64 * 64;
      start += elements;
    }
    return start;
  }

  int choose_device(const PlanNode& node) {
    if (node.participants() == 0) return copies_from_gpu(node) ? source(node) : node.device();
    const int chosen = devices_of(node)[take_turn(node, at(node.participants()))];
    require_reach(node, chosen);
    return chosen;
  }

  // The devices of a collective's participants.
  static std::span<const int> devices_of(const PlanNode& node) {
    return collective_of(node)->devices.first(at(node.participants()));
  }

  // Collectives take turns on their devices, so that no strand runs them all. Eager ones start on
  // the last device.
  std::size_t take_turn(const PlanNode& node, std::size_t devices) {
    const std::size_t turn = collectives_++ % devices;
    return node.node->origin().eager ? devices - 1 - turn : turn;
  }

  void require_reach(const PlanNode& node, int chosen) const {
    for (const int other : devices_of(node))
      require(device(chosen).reaches(device(other)), node.node->describe(), ": ",
              device(chosen).spec, " does not reach the memory of ", device(other).spec,
              "; combine tensors of CPUs alone, or of GPUs that reach each other, or copy them "
              "first, as other strategies do (naive, ring, nccl)");
  }

  bool copies_from_gpu(const PlanNode& node) const {
    return node.op == &kCopy && device(source(node)).on_gpu() && !device(node.device()).on_gpu();
  }

  int source(const PlanNode& copy) const { return graph_.device(copy.inputs[0]); }

  const Device& device(int d) const { return context_.device(d); }

  // The part that a worker takes at a time. Above the limit workers share collectives and sums over
  // shards, with the updates that are fused with them. They also share sums of messages, gathers of
  // shards, and random numbers of f32 and f64; and others, if nothing else could occupy them.
  std::int64_t part_of(const PlanNode& node, WorkRange range) const {
    const std::int64_t whole = std::max<std::int64_t>(1, range.size());
    if (node.sharding.divides()) return part_of_other(node, whole);
    const auto [dtype, read] = combined_by(node);
    if (read == 0) return part_of_other(node, whole);
    const auto element = static_cast<std::int64_t>(size_of(dtype));
    if (whole * element <= kWorkerPart) return whole;
    if (!node.fused_update() && read > 1)
      return std::max(kWorkerPart / element, size_of_part(whole, kMostSumParts));
    // At least 4 KiB of each tensor, in whole cache lines.
    const std::int64_t bytes = std::max<std::int64_t>(4096, 2 * kWorkerPart / read / 64 * 64);
    return std::max(bytes / element, size_of_part(whole, kMostParts));
  }

  // The elements of each of so many parts, a multiple of 64.
  static std::int64_t size_of_part(std::int64_t whole, std::int64_t parts) {
    return (whole + 64 * parts - 1) / (64 * parts) * 64;
  }

  // The same for launches that combine nothing, or that run once per shard: several shards are
  // taken one by one. HalfKernel widens whole tensors, so launches with tensors of 16 bits are not
  // shared; nor are those that only fill memory.
  std::int64_t part_of_other(const PlanNode& node, std::int64_t whole) const {
    const auto is_of_half = [](const TensorType& type) { return is_half(type.dtype); };
    if (!shares_all_ || node.op->split == WorkSplit::kSerial || node.fused_update() ||
        node.inputs.empty() || node.types.empty())
      return whole;
    const std::vector<TensorType> inputs = graph_.input_types(node);
    if (std::ranges::any_of(inputs, is_of_half) || std::ranges::any_of(node.types, is_of_half))
      return whole;
    // Parts consist of this many units.
    std::int64_t unit = node.op->split == WorkSplit::kElements ? 64 : 1, parts = 0;
    if (node.op->work && node.op->split == WorkSplit::kRows) {
      unit = rows_of_product_part(node.types[0].shape);
      const double work = node.op->work({*node.node, inputs, node.types}).multiply_adds;
      parts = static_cast<std::int64_t>(work / kSharedWork);
    } else {
      parts = node.types[0].bytes() / kSharedBytes;
    }
    if (parts < 2) return whole;
    const std::int64_t units = (whole + unit - 1) / unit;
    parts = std::min({parts, units, kMostSharedParts});
    return (units + parts - 1) / parts * unit;
  }

  // The number of tensors that a node reads, or counts as reading, to make one of its results. 0:
  // workers share it only if they share all.
  struct Combined {
    DType dtype = DType::kF32;
    std::int64_t read = 0;
  };
  Combined combined_by(const PlanNode& node) const {
    if (node.fused_update()) {
      const FusedTensors fused = tensors_of(*node.fused_update());
      const bool combines = fused.collective || fused.shard_sum;
      return {fused.tensors[0].type.dtype,
              combines ? static_cast<std::int64_t>(fused.participants * fused.shards) : 0};
    }
    if (node.op == &kAddPieces) {
      const Shape& others = graph_.type(node.inputs.back()).shape;
      return {node.types[0].dtype, std::ssize(node.inputs) - 1 + others[0]};
    }
    if (node.op == &kSumShards) return {node.types[0].dtype, std::ssize(node.inputs)};
    // For random numbers of 16 bits, HalfKernel widens whole tensors, so they are not shared.
    if (node.op == &kGatherShards || (draws(node) && !is_half(node.types[0].dtype)))
      return {node.types[0].dtype, 1};
    return {node.participants() > 0 ? node.types[0].dtype : DType::kF32, node.participants()};
  }

  StrandIndex strand_of(int device, bool communicates, int shards = 1) {
    const auto [found, fresh] = strands_.try_emplace({device, communicates, shards});
    if (fresh)
      found->second =
          made_.strands.add({device, {}, context_.device(device).gpu, communicates, shards});
    return found->second;
  }

  bool added_by_messages(const PlanNode& node) const {
    return node.op == &kAddPieces && !device(node.device()).on_gpu() &&
           graph_.type(node.inputs.back()).bytes() <= kAddedByMessages;
  }

  // Messages are under way at the same time, so that none of them waits for the way of another.
  // A message that comes after another one anyway takes its strand. Otherwise it takes a new one
  // or, if there are enough, the one whose last message is the oldest.
  StrandIndex strand_of_message(NodeIndex n) {
    const PlanNode& node = graph_.node(n);
    const int device = node.device();
    if (node.op->exchange && !may_overtake(*node.node)) return strand_of(device, true);
    std::vector<StrandIndex>& strands = message_strands_[device];
    const auto last = [&](StrandIndex s) { return made_.strands[s].launches.back(); };
    const auto comes_after = [&](StrandIndex s) {
      return std::ranges::any_of(deps_[n], [&](NodeIndex dep) {
        return launch_of_[dep] == last(s) || made_.happens_before(last(s), launch_of_[dep]);
      });
    };
    if (const auto found = std::ranges::find_if(strands, comes_after); found != strands.end())
      return *found;
    if (strands.size() == kMessageStrands) return std::ranges::min(strands, {}, last);
    strands.push_back(made_.strands.add({device, {}, context_.device(device).gpu, true, 1}));
    return strands.back();
  }

  const PlanGraph& graph_;
  const PlanContext& context_;
  NodeLists deps_;
  Indexed<PlanNode, LaunchIndex> launch_of_;  // the first of each node
  ExecutionSchedule made_;
  std::map<std::tuple<int, bool, int>, StrandIndex> strands_;
  std::map<int, std::vector<StrandIndex>> message_strands_;  // by device
  std::map<int, Sums> sums_;                                 // by device
  std::size_t collectives_ = 0;
  bool shares_all_ = false;
};

}  // namespace

ExecutionSchedule schedule(const PlanGraph& graph, const PlanContext& context) {
  return Scheduler(graph, context).run();
}

}  // namespace belfry
