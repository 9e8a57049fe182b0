#include "belfry/framework/kernels/widened.h"

#include <algorithm>

namespace belfry {
namespace {

constexpr std::int64_t kWidenedAlignment = 256;

}  // namespace

bool has_half(const KernelPlan& plan) {
  for (std::size_t i = 0; i < plan.inputs(); ++i)
    if (is_half(plan.input(i).dtype)) return true;
  for (std::size_t i = 0; i < plan.outputs(); ++i)
    if (is_half(plan.output(i).dtype)) return true;
  return false;
}

Widened::Widened(const KernelPlan& plan) {
  const auto add = [&](const TensorType& type, std::size_t i, std::vector<TensorType>& types,
                       std::vector<Tensor>& tensors) {
    types.push_back(type);
    if (!is_half(type.dtype)) return;
    types.back().dtype = DType::kF32;
    tensors.push_back({i, type.dtype, type.shape.elements(), bytes});
    bytes += (types.back().bytes() + kWidenedAlignment - 1) / kWidenedAlignment * kWidenedAlignment;
  };
  const auto writes = static_cast<std::size_t>(plan.op().writes);
  for (std::size_t i = 0; i < plan.inputs(); ++i) {
    add(plan.input(i), i, inputs, read);
    if (i < writes) variables = read.size();
  }
  // The first outputs of an op that writes are the variables.
  std::vector<Tensor> none;
  for (std::size_t i = 0; i < plan.outputs(); ++i)
    add(plan.output(i), i, outputs, i < writes ? none : made);
}

void Widened::point(const KernelPointers& p, std::span<void*> in, std::span<void*> out) const {
  std::ranges::copy(p.mutable_inputs(), in.begin());
  std::ranges::copy(p.all_outputs(), out.begin());
  for (const Tensor& tensor : read) in[tensor.index] = p.workspace() + tensor.offset;
  for (const Tensor& tensor : made) out[tensor.index] = p.workspace() + tensor.offset;
}

}  // namespace belfry
