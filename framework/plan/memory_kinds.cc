#include "belfry/framework/plan/memory_kinds.h"

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <set>
#include <unordered_set>
#include <utility>

#include "belfry/framework/base/text.h"
#include "belfry/framework/core_ops/copy.h"
#include "belfry/framework/core_ops/gather_shards.h"
#include "belfry/framework/core_ops/transfer.h"
#include "belfry/framework/graph/node.h"
#include "belfry/framework/plan/plan.h"

namespace belfry {
namespace {

constexpr std::string_view kNames[] = {"weights",        "optimizer",   "gradients",
                                       "shard_partials", "activations", "workspace",
                                       "feeds",          "fetches",     "unused"};
static_assert(std::size(kNames) == kMemoryKinds);

// What a buffer is used for.
struct Use {
  MemoryKind kind = MemoryKind::kActivation;
  const PlanNode* made_by = nullptr;  // the node that requested it
  int output = 0;
  bool touched = false;  // some launch touches it
};

// Counts each byte of a part of an arena once, for the first tensor put there.
class Ground {
 public:
  explicit Ground(std::int64_t bytes) : free_{{0, bytes}} {}

  // The bytes of [begin, end) that no tensor has covered yet.
  std::int64_t put(std::int64_t begin, std::int64_t end) {
    std::int64_t covered = 0;
    auto range = free_.upper_bound(begin);
    if (range != free_.begin()) --range;  // which may reach beyond `begin`
    while (range != free_.end() && range->first < end) {
      const auto [from, to] = *range;
      const std::int64_t first = std::max(from, begin), last = std::min(to, end);
      if (first >= last) {
        ++range;
        continue;
      }
      covered += last - first;
      range = free_.erase(range);
      if (from < first) free_.emplace(from, first);
      if (last < to) range = free_.emplace(last, to).first;
    }
    return covered;
  }

 private:
  std::map<std::int64_t, std::int64_t> free_;  // begin -> end
};

class MemoryCount {
 public:
  explicit MemoryCount(const Plan& plan)
      : plan_(plan),
        followed_(plan.nodes.size()),
        gradients_(plan.buffers.size()),
        uses_(plan.buffers.size()) {}

  PlanMemory run() {
    made_.arenas.resize(plan_.arena_bytes.size());
    made_.others.resize(plan_.arena_bytes.size());
    note_gradients();
    find_uses();
    divide_arenas();
    for (std::size_t d = 0; d < made_.arenas.size(); ++d) count_device(static_cast<int>(d));
    for (const BufferIndex buffer : uses_.indices()) count_buffer(buffer, uses_[buffer]);
    return std::move(made_);
  }

 private:
  // Records the gradients that an update of a trainable variable takes, back to the nodes that made
  // them. Strategies put nodes in between, which belong to no node of the forward pass.
  void note_gradients() {
    for (const PlanNode& node : plan_.nodes) {
      const std::set<std::int64_t> sizes = sizes_of_trained(node);
      if (sizes.empty()) continue;
      for (std::size_t i = at(node.writes()); i < node.inputs.size(); ++i)
        if (sizes.contains(plan_.type(node.inputs[i]).shape.elements()))
          note_gradient(node.inputs[i]);
    }
  }

  // The elements of each trainable variable that a node writes.
  std::set<std::int64_t> sizes_of_trained(const PlanNode& node) const {
    std::set<std::int64_t> sizes;
    for (int w = 0; w < node.writes(); ++w) {
      const Node& variable = *plan_.node(root(node.inputs[at(w)]).node).node;
      if (variable.is_variable() && variable.variable().trainable)
        sizes.insert(variable.output_type(0).shape.elements());
    }
    return sizes;
  }

  // The result of a write is in the variable's memory.
  Value root(Value value) const {
    while (plan_.node(value.node).writes() > value.index)
      value = plan_.node(value.node).inputs[at(value.index)];
    return value;
  }

  void note_gradient(Value value) {
    const PlanNode& node = plan_.node(value.node);
    if (node.op->storage || !seen_.insert(value).second) return;
    gradients_[plan_.buffer(value)] = true;
    if (node.node->origin().forward && !copies(node)) return;
    if (std::exchange(followed_[value.node], true)) return;  // a collective has an output per tower
    for (const Value& input : node.inputs) note_gradient(input);
  }

  // Whether the node only copies, joins or adds tensors of another node, which is `node.node`.
  static bool copies(const PlanNode& node) {
    const Op* const copying[] = {&kCopy, &kTransfer, &kGatherShards, &kSumShards};
    return std::ranges::find(copying, node.op) != std::end(copying);
  }

  void find_uses() {
    for (const NodeIndex n : plan_.nodes.indices())
      for (std::size_t i = 0; i < plan_.buffer_of[n].size(); ++i)
        note_maker(plan_.nodes[n], plan_.buffer_of[n][i], static_cast<int>(i));
    for (const LaunchIndex l : plan_.launches.indices()) {
      const PlanNode& node = plan_.node(plan_.launches[l].node);
      for (const Value& input : node.inputs) uses_[plan_.buffer(input)].touched = true;
      for (const BufferIndex buffer : plan_.buffer_of[plan_.launches[l].node])
        uses_[buffer].touched = true;
      if (const BufferIndex workspace = plan_.workspaces[l])
        uses_[workspace] = {MemoryKind::kWorkspace, &node, 0, true};
    }
  }

  void note_maker(const PlanNode& node, BufferIndex buffer, int output) {
    Use& use = uses_[buffer];
    if (use.made_by) return;
    use.made_by = &node;
    use.output = output;
    if (plan_.buffers[buffer].kind == BufferKind::kFeed) use.kind = MemoryKind::kFeed;
    if (plan_.buffers[buffer].kind == BufferKind::kFetch) use.kind = MemoryKind::kFetch;
    if (plan_.buffers[buffer].kind != BufferKind::kArena) return;
    if (node.division(output) == Division::partial())
      use.kind = MemoryKind::kShardPartial;
    else if (gradients_[buffer])
      use.kind = MemoryKind::kGradient;
  }

  // The bytes of all shards.
  std::int64_t bytes_of(const BufferRecord& record) const {
    return record.bytes * (record.sliced ? plan_.shards_per_device : 1);
  }

  void count_device(int device) {
    KindBytes &arena = made_.arenas[at(device)], &others = made_.others[at(device)];
    arena.add(count_part(device, false));
    arena.add(count_part(device, true));
    arena[MemoryKind::kUnused] += plan_.arena_bytes[at(device)] - arena.total();
    std::int64_t slots = 0;
    for (const FeedSlots& feeds : plan_.feed_slots) {
      if (feeds.device == device) slots += FeedSlots::kCount * feeds.bytes;
      if (device == 0) slots += FeedSlots::kCount * feeds.bytes;
    }
    others[MemoryKind::kFeed] = slots;
    others[MemoryKind::kUnused] = plan_.kept_bytes[at(device)] - slots;
    others[MemoryKind::kFetch] = plan_.fetch_bytes[at(device)];
  }

  void divide_arenas() {
    for (const BufferIndex buffer : uses_.indices()) {
      const BufferRecord& record = plan_.buffers[buffer];
      if (record.kind == BufferKind::kArena && uses_[buffer].touched)
        parts_[{record.device, record.sliced}].emplace_back(&record, uses_[buffer].kind);
    }
  }

  // Puts the largest tensor first, as pass `plan_memory` does.
  KindBytes count_part(int device, bool sliced) {
    Part& all = parts_[{device, sliced}];
    std::ranges::stable_sort(all, std::greater(),
                             [](const auto& entry) { return entry.first->bytes; });
    Ground ground(plan_.arena_bytes[at(device)]);
    KindBytes bytes;
    for (const auto& [record, kind] : all)
      bytes[kind] += ground.put(record->offset, record->offset + record->bytes) *
                     (sliced ? plan_.shards_per_device : 1);
    return bytes;
  }

  void count_buffer(BufferIndex buffer, const Use& use) {
    const BufferRecord& record = plan_.buffers[buffer];
    if (record.kind == BufferKind::kState || record.kind == BufferKind::kConstant || !use.made_by)
      return;
    // Feeds of GPUs are in slots.
    const bool in_slots = std::ranges::any_of(
        plan_.feed_slots, [&](const FeedSlots& slots) { return slots.device == record.device; });
    if (record.kind == BufferKind::kArena && !use.touched) return;
    PlannedTensor tensor{.name = use.kind == MemoryKind::kWorkspace
                                     ? cat("workspace of ", use.made_by->name())
                                     : name_of_output(*use.made_by, use.output),
                         .site = use.made_by->node->origin().site,
                         .kind = use.kind,
                         .device = record.device,
                         .bytes = bytes_of(record)};
    if (record.kind == BufferKind::kFeed) {
      made_.feeds.push_back({plan_.feeds[at(record.index)].where, tensor});
      if (!in_slots) return;
      made_.feeds.back().tensor.device = 0;
    }
    made_.tensors.push_back(std::move(tensor));
  }

  static std::string name_of_output(const PlanNode& node, int output) {
    return output == 0 ? node.name() : cat(node.name(), ":", output);
  }

  // Tensors in the common part of an arena, or in each slice.
  using Part = std::vector<std::pair<const BufferRecord*, MemoryKind>>;

  const Plan& plan_;
  std::map<std::pair<int, bool>, Part> parts_;  // by device
  std::unordered_set<Value> seen_;
  Indexed<PlanNode, char> followed_;
  Indexed<BufferRecord, char> gradients_;
  Indexed<BufferRecord, Use> uses_;  // of a buffer that no node makes: as it began
  PlanMemory made_;
};

}  // namespace

std::string_view name_of(MemoryKind kind) { return kNames[static_cast<std::size_t>(kind)]; }

std::int64_t KindBytes::total() const {
  return std::accumulate(bytes_.begin(), bytes_.end(), std::int64_t{0});
}

void KindBytes::add(const KindBytes& other) {
  for (std::size_t k = 0; k < bytes_.size(); ++k) bytes_[k] += other.bytes_[k];
}

PlanMemory memory_of(const Plan& plan) { return MemoryCount(plan).run(); }

}  // namespace belfry
