#include "belfry/framework/cuda/gpu_kernel.h"

#include <map>

#include "belfry/framework/core_ops/copy.h"
#include "belfry/framework/core_ops/no_op.h"
#include "belfry/framework/node.h"

namespace belfry::cuda {
namespace {

using Prepare = std::function<QueueRun(KernelPlan&, Algorithms&)>;

std::map<const Op*, Prepare>& kernels() {
  static std::map<const Op*, Prepare> all;
  return all;
}

}  // namespace

GpuKernel::GpuKernel(const Op& op, GpuPrepare prepare) {
  kernels()[&op] = [prepare](KernelPlan& plan, Algorithms&) { return prepare(plan); };
}

GpuKernel::GpuKernel(const Op& op, GpuLibraryPrepare prepare) { kernels()[&op] = prepare; }

QueueRun prepare_gpu_kernel(KernelPlan& plan, Algorithms& algorithms) {
  const auto found = kernels().find(&plan.node().op());
  return found == kernels().end() ? QueueRun() : found->second(plan, algorithms);
}

std::vector<const char*> ops_without_gpu_kernel() {
  std::vector<const char*> names;
  for (const Op* op : all_ops())
    if (!kernels().contains(op) && !op->cpu_only && !op->alias && !op->storage && op != &kCopy &&
        op != &kNoOp)
      names.push_back(op->name);
  return names;
}

}  // namespace belfry::cuda
