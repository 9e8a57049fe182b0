// Variants of kernels give the same bits, by less work.
#include "belfry/framework/cuda/kernels/variants.h"

#include <cmath>
#include <cstring>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/framework/base/error.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/kernels/half.h"
#include "belfry/ops/all_finite.h"
#include "belfry/tests/cuda/node_kernels.h"

namespace belfry::cuda {
namespace variants_test {

struct Ran {
  std::vector<Tensor> results;
  int launches = 0;
};

TensorType type_of(const Tensor& tensor) { return {tensor.shape(), tensor.dtype()}; }

bool same_bits(const Tensor& a, const Tensor& b) {
  return type_of(a) == type_of(b) && std::memcmp(a.raw(), b.raw(), a.bytes()) == 0;
}

// Runs the node's kernel on values whose types may differ from those in the graph, as in a plan.
Ran run(const Node& node, const std::vector<Tensor>& values, std::vector<TensorType> outputs) {
  std::vector<TensorType> inputs;
  std::vector<Tensor> own = values;
  std::vector<void*> in, to;
  for (Tensor& value : own) {
    inputs.push_back(type_of(value));
    in.push_back(value.mutable_raw());
  }
  Ran ran;
  for (const TensorType& type : outputs) ran.results.emplace_back(type.shape, type.dtype);
  for (Tensor& result : ran.results) to.push_back(result.mutable_raw());
  HostAlgorithms algorithms(false);
  const WorkRange range = whole_range(node.op(), 0, inputs, outputs);
  KernelPlan plan(node, inputs, outputs, range);
  const QueueRun kernel = prepare_gpu_kernel(plan, algorithms);
  Tensor workspace(Shape{plan.workspace_bytes()}, DType::kU8);
  HostQueue queue;
  kernel(KernelPointers(in, to, workspace.mutable_raw(), range, 0), queue);
  ran.launches = queue.launches();
  return ran;
}

// Numbers between -1 and 1, some of them 0.
Tensor numbers(const Shape& shape, DType dtype, std::uint32_t seed) {
  Tensor wide(shape, DType::kF32);
  for (float& value : wide.mutable_data<float>()) {
    seed = seed * 1664525 + 1013904223;
    value = seed >> 28 == 0 ? 0 : static_cast<float>(static_cast<std::int32_t>(seed)) * 0x1p-31f;
  }
  if (!is_half(dtype)) return wide;
  Tensor narrow(shape, dtype);
  kernels::half_conversion(dtype).narrow(wide.data<float>().data(),
                                         reinterpret_cast<std::uint16_t*>(narrow.mutable_raw()),
                                         shape.elements());
  return narrow;
}

class Variants : public ::testing::Test {
 protected:
  void TearDown() override {
    for (const auto& [key, on] : Variant::all()) Variant::set({{key, true}});
  }
  // Expects equal results with the variant on and off; returns by how many launches it has fewer.
  static int saved(const char* key, const Node& node, const std::vector<Tensor>& values,
                   const std::vector<TensorType>& outputs) {
    Variant::set({{key, true}});
    const Ran on = run(node, values, outputs);
    Variant::set({{key, false}});
    const Ran off = run(node, values, outputs);
    for (std::size_t i = 0; i < outputs.size(); ++i)
      EXPECT_TRUE(same_bits(on.results[i], off.results[i])) << key << ", result " << i;
    return off.launches - on.launches;
  }
  Graph graph;
  Output placed(const TensorType& type) {
    return placeholder(graph, cat("input", names_++), type.dtype, type.shape);
  }
  const Node& node_of(const Op& op, const std::vector<Tensor>& values, NodeOptions options) {
    std::vector<Output> inputs;
    for (const Tensor& value : values) inputs.push_back(placed(type_of(value)));
    return graph.add(op, inputs, {}, std::move(options));
  }

 private:
  int names_ = 0;
};

TEST_F(Variants, OfChecksLookAtAllTensorsAtOnce) {
  for (int spoiled = -1; spoiled < 5; ++spoiled) {
    SCOPED_TRACE(spoiled);
    std::vector<Tensor> values;
    for (const std::int64_t size : {1, 5000, 0, 4096, 70})
      values.push_back(numbers({size}, DType::kF32, 9));
    if (spoiled >= 0 && values[static_cast<std::size_t>(spoiled)].bytes() > 0)
      values[static_cast<std::size_t>(spoiled)].mutable_data<float>().back() = NAN;
    const Node& node = node_of(kAllFinite, values, NodeOptions(AllFiniteOptions{}));
    const TensorType answer{{}, DType::kBool};
    EXPECT_EQ(saved("all_finite.all_at_once", node, values, {answer}), 3);
    EXPECT_EQ(run(node, values, {answer}).results[0].item<bool>(), spoiled < 0 || spoiled == 2);
  }
}

}  // namespace variants_test
}  // namespace belfry::cuda
