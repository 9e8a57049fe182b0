// Kernels by oneDNN, and f32 kernels for tensors of 16 bits, keep nothing of a run. So several
// threads may run one prepared kernel at once.
#include <latch>
#include <thread>

#include <gtest/gtest.h>

#include "belfry/framework/core_ops/add_n.h"
#include "belfry/framework/core_ops/assign.h"
#include "belfry/framework/core_ops/placeholder.h"
#include "belfry/framework/gradients/gradients.h"
#include "belfry/framework/graph/variable.h"
#include "belfry/framework/kernels/half.h"
#include "belfry/framework/plan_kernels/host_kernel.h"
#include "belfry/ops/arithmetic.h"
#include "belfry/ops/concat.h"
#include "belfry/ops/convolution/avg_pool.h"
#include "belfry/ops/convolution/conv2d.h"
#include "belfry/ops/convolution/max_pool.h"
#include "belfry/ops/matmul.h"
#include "belfry/ops/reduce.h"
#include "belfry/ops/relu.h"
#include "belfry/ops/softmax.h"
#include "belfry/tests/support/op_test.h"

namespace belfry {
namespace reentrant_test {

struct Case {
  const char* name;
  DType dtype;
  std::vector<Shape> inputs;
  std::function<Output(Inputs)> build;
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

const Case kCases[] = {
    {"product", DType::kF32, {{40, 64}, {64, 80}}, [](Inputs x) { return matmul(x[0], x[1]); }},
    {"narrow", DType::kF32, {{40, 64}, {64, 10}}, [](Inputs x) { return matmul(x[0], x[1]); }},
    {"convolution",
     DType::kF32,
     {{2, 12, 12, 16}, {32, 3, 3, 16}},
     [](Inputs x) { return conv2d(x[0], x[1]); }},
    {"strided",
     DType::kF32,
     {{2, 13, 12, 16}, {32, 3, 3, 16}},
     [](Inputs x) { return conv2d(x[0], x[1], {.stride = 2}); }},
    {"depthwise",
     DType::kF32,
     {{2, 13, 12, 16}, {16, 3, 3, 1}},
     [](Inputs x) { return conv2d(x[0], x[1], {.dilation = 2, .groups = 16}); }},
    {"half_product", DType::kF16, {{15, 17}, {17, 9}}, [](Inputs x) { return matmul(x[0], x[1]); }},
    {"half_convolution",
     DType::kBF16,
     {{2, 6, 6, 4}, {5, 3, 3, 4}},
     [](Inputs x) { return conv2d(x[0], x[1]); }},
    {"half_windows",
     DType::kBF16,
     {{2, 6, 6, 3}},
     [](Inputs x) { return add(max_pool(x[0], {.window = 2}), avg_pool(x[0], {.window = 2})); }},
    {"half_rows",
     DType::kF16,
     {{5, 17}, {5, 3}, {20}},
     [](Inputs x) {
       return softmax(relu(add(concat(std::vector{x[0], x[1]}, 1), x[2])));
     }},
    {"half_sums",
     DType::kBF16,
     {{5, 17}, {5, 17}, {5, 17}},
     [](Inputs x) { return reduce_mean(add_n(x), {0}); }},
};

// A kernel that was prepared once.
struct Prepared {
  explicit Prepared(const Node& n) : node(n) {
    for (const Output& input : node.inputs()) inputs.push_back(input.type());
    for (std::size_t i = 0; i < node.outputs(); ++i) outputs.push_back(node.output_type(i));
    range = whole_range(node.op(), 0, inputs, outputs);
    KernelPlan plan(node, inputs, outputs, range);
    run = prepare_kernel(plan, false);
    workspace = plan.workspace_bytes();
  }

  const Node& node;
  std::vector<TensorType> inputs, outputs;
  WorkRange range;
  KernelRun run;
  std::int64_t workspace = 0;
};

Tensor random_of(const TensorType& type, unsigned seed) {
  const Tensor wide = random_values(type.shape, -1, 1, seed);
  if (!is_half(type.dtype)) return wide;
  Tensor half(type.shape, type.dtype);
  kernels::half_conversion(type.dtype)
      .narrow(wide.data<float>().data(), reinterpret_cast<std::uint16_t*>(half.mutable_raw()),
              wide.elements());
  return half;
}

// Runs a kernel once on its own memory; returns its outputs, and its inputs, as updates write some.
std::vector<Tensor> run(const Prepared& kernel, unsigned seed) {
  std::vector<Tensor> all;
  for (const TensorType& type : kernel.inputs) all.push_back(random_of(type, ++seed));
  for (const TensorType& type : kernel.outputs) all.emplace_back(type.shape, type.dtype);
  Tensor workspace({kernel.workspace}, DType::kU8);
  std::vector<void*> memory;
  for (Tensor& tensor : all) memory.push_back(tensor.mutable_raw());
  const std::span pointers(memory);
  kernel.run(KernelPointers(pointers.first(kernel.inputs.size()),
                            pointers.subspan(kernel.inputs.size()), workspace.mutable_raw(),
                            kernel.range, 0));
  return all;
}

void expect_reentrant(const Node& node) {
  constexpr unsigned kThreads = 4, kRounds = 10, kApart = 100;
  const Prepared kernel(node);
  std::vector<std::vector<Tensor>> alone;
  for (unsigned t = 0; t < kThreads; ++t) alone.push_back(run(kernel, t * kApart));
  std::latch start(kThreads);
  std::vector<std::jthread> threads;
  for (unsigned t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      start.arrive_and_wait();
      for (unsigned round = 0; round < kRounds; ++round)
        EXPECT_EQ(run(kernel, t * kApart), alone[t]) << node.describe();
    });
}

// Checks all nodes that have kernels to prepare; returns their number.
int expect_all_reentrant(const Graph& graph) {
  int checked = 0;
  for (std::size_t n = 0; n < graph.size(); ++n) {
    const Node& node = graph.node(n);
    if (node.op().storage || node.op().alias || node.inputs().empty()) continue;
    expect_reentrant(node);
    ++checked;
  }
  return checked;
}

class Reentrant : public testing::TestWithParam<Case> {};

TEST_P(Reentrant, OnePreparedKernelRunsOnSeveralThreadsAtOnce) {
  const Case& test = GetParam();
  Graph graph;
  std::vector<Output> inputs;
  for (const Shape& shape : test.inputs)
    inputs.push_back(placeholder(graph, "x", test.dtype, shape));
  const Output y = test.build(inputs);
  gradients(y, inputs);
  EXPECT_GE(expect_all_reentrant(graph), 2);
}

INSTANTIATE_TEST_SUITE_P(Kernels, Reentrant, testing::ValuesIn(kCases),
                         [](const auto& test) { return test.param.name; });

TEST(ReentrantWrites, AreToTheVariablesOfTheirOwnRun) {
  Graph graph;
  const Variable w = variable(graph, "w", {37}, {.dtype = DType::kBF16});
  expect_reentrant(assign_sub(w, placeholder(graph, "x", DType::kBF16, {37})));
}

}  // namespace reentrant_test
}  // namespace belfry
