#include <algorithm>
#include <cstring>

#include "belfry/framework/base/require.h"
#include "belfry/framework/core_ops/copy.h"
#include "belfry/framework/passes/passes.h"
#include "belfry/framework/plan_kernels/fused_update_kernel.h"
#include "belfry/framework/plan_kernels/host_kernel.h"
#include "belfry/framework/plan_kernels/rank_launch.h"

namespace belfry {

namespace {

GpuRun copy_on_gpu(const PlanNode& copy) {
  std::vector<std::size_t> bytes;
  for (const TensorType& type : copy.types) bytes.push_back(at(type.bytes()));
  if (bytes.size() == 1)
    return [bytes = bytes[0]](const KernelPointers& p, GpuStream& stream) {
      stream.copy(p.output<void>(), p.input<void>(0), bytes);
    };
  return [bytes = std::move(bytes)](const KernelPointers& p, GpuStream& stream) {
    stream.copy_each(p.all_outputs(), p.all_inputs(), bytes);
  };
}

GpuRun prepare_on_gpu(const PlanNode& node, const Device& device, KernelPlan& kernel,
                      bool deterministic, std::span<const std::int64_t> pitches = {}) {
  if (node.inputs.empty() && node.types.empty()) return [](const KernelPointers&, GpuStream&) {};
  if (node.op == &kCopy) return copy_on_gpu(node);
  GpuRun run = device.backend->prepare(device.gpu, kernel, deterministic, pitches);
  require<NotFoundError>(bool(run), kernel.node().describe(), ": there is no kernel for ",
                         name_of(kernel.dtype()), " on ", device.spec, "; place it on a CPU");
  return run;
}

void prepare_rank(const PlanNode& node, const Device& device, KernelPlan& kernel,
                  bool deterministic, Launch& launch) {
  GpuRun sum =
      node.participants() > 1 ? prepare_on_gpu(node, device, kernel, deterministic) : GpuRun();
  launch.rank = std::make_shared<RankLaunch>(node, std::move(sum));
  // Hosts of several processes wait for each other, too.
  launch.capturable = node.node->graph().process().size == 1;
  launch.enqueue = [rank = launch.rank](const KernelPointers& p, GpuStream& stream) {
    rank->enqueue(p, stream);
  };
}

// The kernel of a shard without samples.
KernelRun zero_sums(const PlanGraph& graph, const PlanNode& node) {
  std::vector<std::size_t> bytes;
  for (const TensorType& type : graph.output_types(node, 0)) bytes.push_back(at(type.bytes()));
  return [bytes = std::move(bytes)](const KernelPointers& p) {
    for (std::size_t i = 0; i < bytes.size(); ++i)
      if (bytes[i] > 0) std::memset(p.output<std::byte>(i), 0, bytes[i]);
  };
}

KernelRun prepare_shard(const PlanGraph& graph, const PlanNode& node, std::int64_t samples,
                        WorkRange range, bool reference, std::int64_t& workspace) {
  if (samples == 0) return zero_sums(graph, node);
  const std::vector<TensorType> inputs = graph.input_types(node, samples);
  const std::vector<TensorType> outputs = graph.output_types(node, samples);
  KernelPlan kernel(*node.node, inputs, outputs, range);
  kernel.set_op(*node.op);
  kernel.set_batch({samples, graph.batches[at(node.device())].samples, node.rows > 0});
  KernelRun run = prepare_kernel(kernel, reference);
  workspace = std::max(workspace, kernel.workspace_bytes());
  return run;
}

// Prepares one kernel for shards of each size.
void prepare_shards(const PlanGraph& graph, const PlanNode& node, bool reference, Launch& launch) {
  const std::int64_t samples = graph.batches[at(node.device())].samples;
  const std::int64_t fewest = samples / graph.shards_per_device;
  launch.run = prepare_shard(graph, node, fewest, launch.range, reference, launch.workspace_bytes);
  if (samples % graph.shards_per_device != 0)
    launch.run_larger = prepare_shard(graph, node, fewest + 1, launch.range_larger, reference,
                                      launch.workspace_bytes);
}

void prepare_whole(const PlanGraph& graph, const PlanNode& node, const Device& device,
                   const SessionOptions& options, Launch& launch) {
  const std::vector<TensorType> inputs = graph.input_types(node);
  KernelPlan kernel(*node.node, inputs, node.types, launch.range);
  kernel.set_op(*node.op);
  kernel.set_batch({.numbered = node.rows > 0});
  if (node.rank())
    prepare_rank(node, device, kernel, options.deterministic, launch);
  else if (device.backend)
    launch.enqueue =
        prepare_on_gpu(node, device, kernel, options.deterministic, graph.pitches_of(launch.node));
  else
    launch.run = prepare_kernel(kernel, options.reference_kernels);
  launch.workspace_bytes = kernel.workspace_bytes();
}

}  // namespace

void prepare_kernels(const PlanGraph& graph, ExecutionSchedule& schedule,
                     const PlanContext& context) {
  for (Launch& launch : schedule.launches) {
    const PlanNode& node = graph.node(launch.node);
    const Device& device = context.device(schedule.strands[launch.strand].device);
    if (device.declared) continue;
    if (node.fused_update() && device.backend) {
      launch.enqueue = device.backend->prepare_fused(device.gpu, graph, node);
      continue;
    }
    if (node.fused_update()) {
      launch.run = prepare_fused_update(graph, node, context.options.reference_kernels);
      continue;
    }
    if (node.packed_form()) {
      launch.run = node.packed_form()->pack;
      continue;
    }
    if (node.sharding.divides())
      prepare_shards(graph, node, context.options.reference_kernels, launch);
    else
      prepare_whole(graph, node, device, context.options, launch);
    // Each part has a workspace of its own, in cache lines of its own.
    launch.workspace_bytes = (launch.workspace_bytes + 63) / 64 * 64 * launch.parts();
  }
}

}  // namespace belfry
