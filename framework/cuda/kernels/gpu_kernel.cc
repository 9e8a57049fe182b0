#include "belfry/framework/cuda/kernels/gpu_kernel.h"

#include <functional>
#include <map>

#include "belfry/framework/base/require.h"
#include "belfry/framework/core_ops/copy.h"
#include "belfry/framework/core_ops/no_op.h"
#include "belfry/framework/cuda/kernels/in_f32.h"
#include "belfry/framework/cuda/kernels/pitched_kernel.h"
#include "belfry/framework/graph/node.h"
#include "belfry/framework/kernels/widened.h"

namespace belfry::cuda {
namespace {

struct Entry {
  std::function<QueueRun(KernelPlan&, Algorithms&, const Pitches&)> prepare;
  bool takes_half;  // `prepare` takes f16 and bf16, or gives nothing for them
  bool takes_pitches = false;
};

std::map<const Op*, Entry>& kernels() {
  static std::map<const Op*, Entry> all;
  return all;
}

}  // namespace

GpuKernel::GpuKernel(const Op& op, GpuPrepare prepare, bool takes_half) {
  kernels()[&op] = {
      [prepare](KernelPlan& plan, Algorithms&, const Pitches&) { return prepare(plan); },
      takes_half};
}

GpuKernel::GpuKernel(const Op& op, GpuLibraryPrepare prepare) {
  kernels()[&op] = {[prepare](KernelPlan& plan, Algorithms& algorithms, const Pitches&) {
                      return prepare(plan, algorithms);
                    },
                    true};
}

PitchedKernel::PitchedKernel(const Op& op, PitchedPrepare prepare) {
  kernels()[&op] = {prepare, true, true};
}

QueueRun prepare_gpu_kernel(KernelPlan& plan, Algorithms& algorithms) {
  return prepare_gpu_kernel(plan, algorithms, {});
}

QueueRun prepare_gpu_kernel(KernelPlan& plan, Algorithms& algorithms, const Pitches& pitches) {
  const auto found = kernels().find(&plan.op());
  if (found == kernels().end()) return {};
  const auto& [prepare, takes_half, takes_pitches] = found->second;
  require<InternalError>(pitches.all.empty() || takes_pitches, plan.node().describe(),
                         ": its kernel takes no padded rows");
  if (!has_half(plan)) return prepare(plan, algorithms, pitches);
  if (takes_half)
    if (QueueRun run = prepare(plan, algorithms, pitches)) return run;
  return in_f32(plan, pitches.all,
                [&](KernelPlan& wide) { return prepare(wide, algorithms, pitches); });
}

bool takes_pitches(const Op& op) {
  const auto found = kernels().find(&op);
  return found != kernels().end() && found->second.takes_pitches;
}

std::vector<const char*> ops_without_gpu_kernel() {
  std::vector<const char*> names;
  for (const Op* op : all_ops())
    if (!kernels().contains(op) && !op->cpu_only && !op->composite && !op->exchange && !op->alias &&
        !op->storage && op != &kCopy && op != &kNoOp)
      names.push_back(op->name);
  return names;
}

std::vector<const Op*> ops_that_take_half() {
  std::vector<const Op*> ops;
  for (const Op* op : all_ops())
    if (const auto found = kernels().find(op); found != kernels().end() && found->second.takes_half)
      ops.push_back(op);
  return ops;
}

}  // namespace belfry::cuda
