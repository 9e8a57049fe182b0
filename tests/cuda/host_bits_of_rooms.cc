// As host_bits.cc: the ops of ops/pointwise, ops/indexing and ops/shapes, and extremes.
#include <functional>

#include <gtest/gtest.h>

#include "belfry/framework/gradients/gradients.h"
#include "belfry/ops/indexing/cumsum.h"
#include "belfry/ops/indexing/segments.h"
#include "belfry/ops/indexing/take.h"
#include "belfry/ops/indexing/top_k.h"
#include "belfry/ops/pointwise/activations.h"
#include "belfry/ops/pointwise/clip.h"
#include "belfry/ops/pointwise/comparisons.h"
#include "belfry/ops/pointwise/log_softmax.h"
#include "belfry/ops/pointwise/maximum.h"
#include "belfry/ops/pointwise/power.h"
#include "belfry/ops/pointwise/sign.h"
#include "belfry/ops/pointwise/where.h"
#include "belfry/ops/reduce_max.h"
#include "belfry/ops/shapes/pad.h"
#include "belfry/ops/shapes/rearrange.h"
#include "belfry/ops/shapes/resize.h"
#include "belfry/ops/shapes/triangle.h"
#include "belfry/ops/square.h"
#include "belfry/tests/cuda/host_bits.h"
#include "belfry/tests/support/op_test.h"

namespace belfry {
namespace host_bits {

TEST(HostBits, OfActivations) {
  const Builder builders[] = {[](Inputs x) { return leaky_relu(x[0], 0.2); },
                              [](Inputs x) { return elu(x[0], 1.5); },
                              [](Inputs x) { return hard_swish(x[0]); },
                              [](Inputs x) { return hard_sigmoid(x[0]); },
                              [](Inputs x) { return softplus(x[0], 2); },
                              [](Inputs x) { return clip(x[0], -3, 5); },
                              [](Inputs x) { return abs(x[0]); }};
  for (const Builder& build : builders) {
    expect_host_bits(build, {random_values({3001}, -9, 9)});
    expect_host_bits(gradient(build, 1),
                     {random_values({3001}, -9, 9), random_values({3001}, -1, 1, 2)});
  }
  expect_host_bits([](Inputs x) { return sign(x[0]); }, {random_values({3001})});
}

TEST(HostBits, OfTwoOperandsAndTruths) {
  using Binary = Output (*)(Operand, Operand, At);
  for (const Binary op : {Binary(maximum), Binary(minimum), Binary(pow), Binary(equal),
                          Binary(not_equal), Binary(less), Binary(less_equal)}) {
    const Builder build = [op](Inputs x) { return op(x[0], x[1], {}); };
    expect_host_bits(build, {random_values({3001}, 0, 20), random_values({3001}, -9, 9, 2)});
    expect_host_bits(build, {random_values({3, 1, 5, 1, 7}), random_values({1, 4, 1, 6, 1})});
  }
  const Builder largest = [](Inputs x) { return maximum(x[0], x[1]); };
  expect_host_bits(gradient(largest, 2), {random_values({5, 64}), random_values({64}, -2, 2, 2),
                                          random_values({5, 64}, -1, 1, 3)});
  const Builder both = [](Inputs x) {
    return logical_or(logical_and(greater(x[0], 0), less(x[0], x[1])), logical_not(isfinite(x[1])));
  };
  expect_host_bits(both, {random_values({3, 5, 7}), random_values({5, 1})});
  const Builder chosen = [](Inputs x) { return where(less(x[0], 0.5), x[1], x[2]); };
  expect_host_bits(chosen, {random_values({3001}), random_values({3001}), random_values({})});
  expect_host_bits(chosen,
                   {random_values({5, 1, 7}), random_values({4, 1}), random_values({5, 4, 7})});
}

TEST(HostBits, OfLogarithmsOfSums) {
  const Builder logs = [](Inputs x) { return log_softmax(x[0]); };
  for (const std::int64_t n : {1, 10, 1000, 2500}) {
    const Tensor x = random_values({5, n}, -9, 9), dy = random_values({5, n}, -1, 1, 2);
    expect_host_bits(logs, {x});
    expect_host_bits(gradient(logs, 1), {x, dy});
    expect_host_bits([](Inputs in) { return logsumexp(in[0]); }, {x});
  }
}

TEST(HostBits, OfExtremesAndTheirGradients) {
  for (const auto reduce : {static_cast<Output (*)(Output, std::vector<int>, At)>(reduce_max),
                            static_cast<Output (*)(Output, std::vector<int>, At)>(reduce_min)})
    for (const int axis : {0, 1, 2}) {
      const Builder build = [=](Inputs x) { return reduce(x[0], {axis}, At()); };
      expect_host_bits(build, {random_values({30, 300, 7})});
      Shape of_y{30, 300, 7};
      of_y[static_cast<std::size_t>(axis)] = 1;
      const Builder kept = [=](Inputs x) { return reduce_max(x[0], {axis}, ReducedAxes::kKept); };
      expect_host_bits(gradient(kept, 1), {random_values({30, 300, 7}), random_values(of_y)});
    }
  expect_host_bits([](Inputs x) { return reduce_max(x[0]); }, {random_values({70000})});
}

TEST(HostBits, OfSumsOfRowsWithOneId) {
  const Tensor rows = random_values({3000, 7}), ids = integers({3000}, 50);
  expect_host_bits([](Inputs x) { return segment_sum(x[0], x[1], 50); }, {rows, ids});
  expect_host_bits([](Inputs x) { return segment_max(x[0], x[1], 50); }, {rows, ids});
  expect_host_bits([](Inputs x) { return scatter_add(x[0], x[1], x[2]); },
                   {random_values({50, 7}), ids, rows});
  expect_host_bits(
      [](Inputs x) { return scatter_add(x[0], x[1], x[2], {.axis = 1, .batch_dims = 1}); },
      {random_values({30, 20, 7}), integers({30, 100}, 20), random_values({30, 100, 7})});
  expect_host_bits([](Inputs x) { return scatter_add(x[0], x[1], x[2], {.axis = 1}); },
                   {random_values({30, 20, 7}), integers({100}, 20), random_values({30, 100, 7})});
}

TEST(HostBits, OfCumulativeSums) {
  for (const bool reverse : {false, true})
    for (const int axis : {0, 1, 2})
      expect_host_bits([=](Inputs x) { return cumsum(x[0], {.axis = axis, .reverse = reverse}); },
                       {random_values({9, 700, 5})});
}

TEST(HostBits, OfTheLargest) {
  const Builder build = [](Inputs x) { return top_k(x[0], 40).values; };
  expect_host_bits(build, {random_values({9, 700})});
  expect_host_bits([](Inputs x) { return argmin(x[0], 0); }, {random_values({700, 9})});
}

TEST(HostBits, OfElementsInAnotherOrder) {
  const Tensor images = random_values({6, 20, 31, 5});
  using Build = std::function<Output(Inputs)>;
  const auto expect_gradient = [](const Build& build, const Tensor& x) {
    expect_host_bits(build, {x});
    expect_host_bits([=](Inputs in) { return gradients(square(build(in)), {in[0]})[0]; }, {x});
  };
  for (const PadMode mode : {PadMode::kConstant, PadMode::kReflect, PadMode::kEdge, PadMode::kWrap})
    expect_gradient(
        [=](Inputs x) {
          return pad(x[0], {{}, {2, 1}, {3, 9}, {1, 0}}, {.mode = mode, .value = 2});
        },
        images);
  expect_gradient([](Inputs x) { return tile(x[0], {2, 1, 2, 3}); }, images);
  expect_gradient([](Inputs x) { return repeat_elements(x[0], 3, 0); }, images);
  expect_gradient([](Inputs x) { return strided_slice(x[0], {{}, {.step = -2}}); }, images);
  expect_gradient([](Inputs x) { return tril(x[0], 2); }, images);
  for (const ResizeMethod method :
       {ResizeMethod::kNearest, ResizeMethod::kNearestExact, ResizeMethod::kBilinear})
    for (const ImageSize size : {ImageSize{33, 17}, ImageSize{7, 60}})
      expect_gradient([=](Inputs x) { return resize(x[0], size, method); }, images);
}

}  // namespace host_bits
}  // namespace belfry
