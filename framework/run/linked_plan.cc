#include "belfry/framework/run/linked_plan.h"

#include <algorithm>
#include <functional>
#include <set>

#include "belfry/framework/base/require.h"
#include "belfry/framework/core_ops/constant.h"
#include "belfry/framework/plan/useful_workers.h"
#include "belfry/framework/run/ticket.h"

namespace belfry {

LinkedPlan::LinkedPlan(std::shared_ptr<const Plan> compiled, Runtime& runtime,
                       std::span<void* const> fetched)
    : plan(std::move(compiled)) {
  allocate(runtime);
  link_launches(runtime, fetched);
  deal_routes(runtime);
  guard = std::make_unique<ArenaGuard>(*plan, runtime.devices, arenas);
}

void LinkedPlan::allocate(Runtime& runtime) {
  for (std::size_t d = 0; d < plan->arena_bytes.size(); ++d) {
    Allocator& memory = runtime.devices[d]->memory;
    kept.emplace_back(memory, at(plan->kept_bytes[d]));
    if (plan->locks == LockDuration::kEachVariable)
      own_arenas.emplace_back(memory, at(plan->arena_bytes[d]));
    arenas.push_back(own_arenas.empty() ? runtime.arenas.of(d) : own_arenas[d].data());
  }
  fill_constants(runtime);
}

bool LinkedPlan::move_to(const SharedArenas& shared) {
  if (!own_arenas.empty()) return false;
  const std::vector<std::byte*>& before = arenas;
  bool moved = false;
  for (std::size_t d = 0; d < arenas.size(); ++d) moved = moved || shared.of(d) != before[d];
  if (!moved) return false;
  const auto now = [&](std::byte* address) {
    for (std::size_t d = 0; d < before.size(); ++d) {
      const std::less<> is_before;  // also orders addresses of different blocks
      if (!is_before(address, before[d]) && is_before(address, before[d] + plan->arena_bytes[d]))
        return shared.of(d) + (address - before[d]);
    }
    return address;
  };
  for (void*& address : addresses) address = now(static_cast<std::byte*>(address));
  for (LinkedLaunch& launch : linked_launches) launch.workspace = now(launch.workspace);
  for (std::size_t d = 0; d < arenas.size(); ++d) arenas[d] = shared.of(d);
  return true;
}

// Copies constants to GPUs.
void LinkedPlan::fill_constants(const Runtime& runtime) {
  std::set<BufferIndex> read;
  for (const Launch& launch : plan->launches)
    for (const Value& input : plan->node(launch.node).inputs) read.insert(plan->buffer(input));
  for (const BufferIndex buffer : read) {
    const BufferRecord& record = plan->buffers[buffer];
    const Device& device = *runtime.devices[at(record.device)];
    if (record.kind != BufferKind::kConstant || !device.on_gpu()) continue;
    const Tensor& value = record.node->options<ConstantOptions>().value;
    device.memory.copy(address(buffer, 0, runtime, {}), value.raw(), value.bytes());
  }
}

void* LinkedPlan::address(BufferIndex buffer, int shard, const Runtime& runtime,
                          std::span<void* const> fetched) const {
  const BufferRecord& record = plan->buffers[buffer];
  switch (record.kind) {
    case BufferKind::kArena: return arenas[at(record.device)] + plan->offset(record, shard);
    case BufferKind::kState: return runtime.variable_memory(*record.node);
    case BufferKind::kConstant:
      if (runtime.devices[at(record.device)]->on_gpu())
        return kept[at(record.device)].data() + record.offset;
      // Kernels do not write their inputs, so all sessions use the graph's tensor.
      return const_cast<std::byte*>(record.node->options<ConstantOptions>().value.raw());
    case BufferKind::kFetch: return fetched[at(record.index)];
    case BufferKind::kFeed: break;  // in a slot, or in the caller's memory
  }
  return nullptr;  // set at every run
}

// Resolves every pointer once.
void LinkedPlan::link_launches(const Runtime& runtime, std::span<void* const> fetched) {
  std::size_t pointers = 0;
  for (const Launch& launch : plan->launches) {
    const PlanNode& node = plan->node(launch.node);
    pointers += (node.inputs.size() + node.types.size()) * at(plan->runs(node));
  }
  addresses.reserve(pointers);
  feed_uses.resize(plan->feeds.size());
  for (const LaunchIndex l : plan->launches.indices()) {
    first_linked.push_back(linked_launches.size());
    for (int shard = 0; shard < plan->runs(plan->node(plan->launches[l].node)); ++shard)
      link_launch(l, shard, runtime, fetched);
  }
}

void LinkedPlan::link_launch(LaunchIndex l, int shard, const Runtime& runtime,
                             std::span<void* const> fetched) {
  const Launch& launch = plan->launches[l];
  const PlanNode& node = plan->node(launch.node);
  const bool divided = node.sharding.divides();
  const int device = node.device();
  const bool batch = !plan->batches.empty() && plan->batches[at(device)].samples > 0;
  const WorkRange samples = batch ? plan->samples(device, shard) : WorkRange();
  const bool larger = divided && launch.run_larger &&
                      samples.size() > plan->batches[at(device)].samples / plan->shards_per_device;
  LinkedLaunch linked{.launch = &launch,
                      .run = larger ? &launch.run_larger : &launch.run,
                      .range = larger ? launch.range_larger : launch.range,
                      .inputs = {},
                      .outputs = {},
                      .parts = launch.parts(),
                      .writes = plan->changes_variables(l)};
  if (batch && node.rows > 0)
    linked.first_row =
        node.rows * (plan->batches[at(device)].first + (divided ? samples.begin : 0));
  // `offset`: a shard has its rows of a tensor that is not divided. Other tensors start at their
  // address.
  const auto add = [&](BufferIndex buffer, int of, std::int64_t offset) {
    const BufferRecord& record = plan->buffers[buffer];
    auto* const begin = static_cast<std::byte*>(address(buffer, of, runtime, fetched));
    addresses.push_back(begin ? begin + offset : nullptr);
    if (record.kind == BufferKind::kFeed)
      feed_uses[at(record.index)].push_back({&addresses.back(), offset});
  };
  const std::size_t first = addresses.size();
  for (std::size_t i = 0; i < node.inputs.size(); ++i) {
    const Value& input = node.inputs[i];
    const bool cut = divided && node.sharding.own[i] && !plan->division(input);
    const std::int64_t offset =
        cut ? plan->rows_of(plan->type(input), device, samples.begin).bytes() : 0;
    add(plan->buffer(input), input.shard == Value::kOwn ? shard : input.shard, offset);
  }
  for (const BufferIndex buffer : plan->buffer_of[launch.node]) add(buffer, shard, 0);
  linked.inputs = {addresses.data() + first, node.inputs.size()};
  linked.outputs = {addresses.data() + first + node.inputs.size(), node.types.size()};
  if (const BufferIndex workspace = plan->workspaces[l])
    linked.workspace = static_cast<std::byte*>(address(workspace, shard, runtime, fetched));
  linked_launches.push_back(linked);
}

// Uses as many workers as the plan has work for, and one thread per GPU.
void LinkedPlan::deal_routes(const Runtime& runtime) {
  const int most = plan->locks == LockDuration::kEachVariable ? 1 : runtime.pool.workers();
  workers = runtime.all_workers ? workers_for(*plan, most) : useful_workers(*plan, most);
  const auto is_shared = [](const LinkedLaunch& launch) { return launch.parts > 1; };
  const auto shared = std::ranges::count_if(linked_launches, is_shared);
  require<InternalError>(shared < Ticket::kOpenings, "a run has ", Ticket::kOpenings,
                         " shared launches or more, which tickets cannot tell apart");
  make_routes();
  make_programs();
  if (!programs.empty()) spin = runtime.gpu_spin.value_or(gpu_spin(threads(), usable_cores()));
}

void LinkedPlan::make_routes() {
  std::vector<StrandIndex> strands;
  for (const StrandIndex s : plan->strands.indices()) {
    if (plan->exchanges(s))
      exchanges.push_back(plan->commands.lists[s]);
    else if (!plan->on_gpu(s))
      strands.push_back(s);
  }
  if (strands.empty()) return;
  if (workers == 1 && plan->shards_per_device == 1) {
    routes.push_back({merged(plan->commands.lists, strands)});
    return;
  }
  const Indexed<Strand, std::vector<int>> worker_of = deal_shards(*plan, workers);
  for (const StrandIndex s : strands)
    for (std::size_t shard = 0; shard < worker_of[s].size(); ++shard)
      routes.push_back({plan->commands.lists[s], static_cast<int>(shard), worker_of[s][shard]});
}

void LinkedPlan::make_programs() {
  for (const int gpu : gpus_of(*plan)) {
    std::vector<StrandIndex> strands;
    for (const StrandIndex s : plan->strands.indices())
      if (plan->strands[s].gpu == gpu) strands.push_back(s);
    GpuProgram& program = programs.emplace_back();
    program.commands = merged(plan->commands.lists, strands);
    if (!plan->commands.in_segments.empty())
      program.in_segments = merged(plan->commands.in_segments, strands);
    program.device = plan->strands[strands.front()].device;
  }
}

}  // namespace belfry
