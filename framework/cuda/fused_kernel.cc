#include "belfry/framework/cuda/fused_kernel.h"

#include <map>

#include "belfry/framework/collective_hook.h"
#include "belfry/ops/all_reduce.h"

namespace belfry::cuda {
namespace {

std::map<const Op*, FusedPrepare>& kernels() {
  static std::map<const Op*, FusedPrepare> all;
  return all;
}

}  // namespace

FusedKernel::FusedKernel(const Op& update, FusedPrepare prepare) { kernels()[&update] = prepare; }

QueueRun prepare_fused_kernel(const PlanNode& node) {
  const Fusion& fusion = *node.fusion;
  require<Internal>(fusion.op == &kAllReduce, node.node->describe(), ": no kernel sums as ",
                    fusion.op->name);
  const auto towers = static_cast<std::size_t>(fusion.participants);
  std::map<std::size_t, FusedGroup::Tensor> tensors;  // by number in the bucket
  for (const Fusion::Update& update : fusion.updates) {
    const std::size_t b = static_cast<std::size_t>(update.result) / towers;
    FusedGroup::Tensor& tensor = tensors[b];
    tensor.first_input = static_cast<std::size_t>(fusion.first_input) + b * towers;
    tensor.elements = fusion.types[b * towers].shape.elements();
    tensor.updates.push_back(&update);
  }
  std::map<const Op*, FusedGroup> groups;
  for (auto& [b, tensor] : tensors) {
    FusedGroup& group = groups[tensor.updates[0]->op];
    group.tensors.push_back(std::move(tensor));
  }
  std::vector<QueueRun> runs;
  for (auto& [op, group] : groups) {
    const auto found = kernels().find(op);
    require<Internal>(found != kernels().end(), node.node->describe(), ": no kernel fuses ",
                      op->name);
    group.towers = towers;
    group.mean = node.node->options<AllReduceOptions>().mean;
    group.fusion = node.fusion;
    runs.push_back(found->second(group));
  }
  return [runs, collective = node.node](const Pointers& p, Queue& queue) {
    call_collective_hook(*collective, {p.begin(), p.end()});
    for (const QueueRun& run : runs) run(p, queue);
  };
}

std::vector<const char*> updates_without_fused_kernel() {
  std::vector<const char*> names;
  for (const Op* op : all_ops())
    if (op->fuses_on_gpus && !op->collective && !kernels().contains(op)) names.push_back(op->name);
  return names;
}

}  // namespace belfry::cuda
