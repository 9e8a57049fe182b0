#include "belfry/framework/cuda/kernels/fused_kernel.h"

#include <map>

#include "belfry/framework/base/require.h"
#include "belfry/framework/device/collective_hook.h"
#include "belfry/framework/graph/node.h"

namespace belfry::cuda {
namespace {

std::map<const Op*, FusedPrepare>& kernels() {
  static std::map<const Op*, FusedPrepare> all;
  return all;
}

using IsMean = bool (*)(const Node&);

std::map<const Op*, IsMean>& sums() {
  static std::map<const Op*, IsMean> all;
  return all;
}

// Throws InternalError for an op that claims that GPUs fuse it, and is not registered.
template <class Entries>
const auto& entry(const Entries& entries, const Op& op, const Node& node) {
  const auto found = entries.find(&op);
  require<InternalError>(found != entries.end(), node.describe(), ": GPUs do not fuse ", op.name);
  return found->second;
}

}  // namespace

FusedSum::FusedSum(const Op& collective, IsMean is_mean) { sums()[&collective] = is_mean; }

FusedKernel::FusedKernel(const Op& update, FusedPrepare prepare) { kernels()[&update] = prepare; }

QueueRun prepare_fused_kernel(const PlanNode& node) {
  const auto& update = std::get<std::shared_ptr<const FusedUpdate>>(node.role);
  FusedTensors fused = tensors_of(*update);
  const FusedUpdate::Member* const sum = fused.collective;
  const bool mean = sum && entry(sums(), *sum->op, *sum->node)(*sum->node);
  std::map<const Op*, FusedGroup> groups;
  for (FusedTensors::Tensor& tensor : fused.tensors) {
    if (tensor.updates.empty()) continue;
    FusedGroup& group = groups[tensor.updates[0].member->op];
    group.tensors.push_back(std::move(tensor));
  }
  std::vector<QueueRun> runs;
  for (auto& [op, group] : groups) {
    group.towers = fused.participants;
    group.mean = mean;
    group.update = update;
    runs.push_back(entry(kernels(), *op, *node.node)(group));
  }
  return
      [runs, collective = sum ? sum->node : nullptr](const KernelPointers& p, KernelQueue& queue) {
        if (collective) call_collective_hook(*collective, {p.begin(), p.end()});
        for (const QueueRun& run : runs) run(p, queue);
      };
}

std::vector<const char*> ops_without_fused_kernel() {
  std::vector<const char*> names;
  for (const Op* op : all_ops())
    if (op->fused_update_on_gpus && !kernels().contains(op) && !sums().contains(op))
      names.push_back(op->name);
  return names;
}

}  // namespace belfry::cuda
