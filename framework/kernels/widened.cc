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

Widened::Widened(const KernelPlan& plan, std::span<const std::int64_t> pitches) {
  std::size_t number = 0;  // of the tensor, among inputs and outputs
  const auto add = [&](const TensorType& type, std::size_t i, std::vector<TensorType>& types,
                       std::vector<Tensor>& tensors) {
    const std::int64_t pitch = pitches.empty() ? 0 : pitches[number];
    ++number;
    types.push_back(type);
    if (!is_half(type.dtype)) return;
    types.back().dtype = DType::kF32;
    const std::int64_t elements = type.shape.elements();
    const std::int64_t columns = pitch > 0 ? type.shape.back() : elements;
    const std::int64_t rows = pitch > 0 ? elements / columns : 1;
    tensors.push_back({i, type.dtype, rows, columns, pitch > 0 ? pitch : columns, bytes});
    bytes += (rows * tensors.back().pitch * std::int64_t(sizeof(float)) + kWidenedAlignment - 1) /
             kWidenedAlignment * kWidenedAlignment;
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
