#include "belfry/framework/cuda/gpu_kernel.h"

#include <map>

#include "belfry/framework/error.h"

namespace belfry::cuda {
namespace {

std::map<const Op*, GpuPrepare>& kernels() {
  static std::map<const Op*, GpuPrepare> all;
  return all;
}

}  // namespace

GpuKernel::GpuKernel(const Op& op, GpuPrepare prepare) { kernels()[&op] = prepare; }

GpuPrepare find_gpu_kernel(const Op& op) {
  const auto found = kernels().find(&op);
  return found == kernels().end() ? nullptr : found->second;
}

std::vector<const char*> ops_without_gpu_kernel() {
  std::vector<const char*> names;
  for (const Op* op : all_ops())
    if (!find_gpu_kernel(*op) && !op->cpu_only && !op->alias && !op->storage)
      names.push_back(op->name);
  return names;
}

}  // namespace belfry::cuda
