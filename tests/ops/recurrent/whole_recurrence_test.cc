#include "belfry/ops/recurrent/whole_recurrence.h"

#include <cmath>

#include <gtest/gtest.h>

#include "belfry/framework/core_ops/constant.h"
#include "belfry/framework/core_ops/placeholder.h"
#include "belfry/framework/gradients/gradients.h"
#include "belfry/framework/graph/scopes.h"
#include "belfry/ops/operand.h"
#include "belfry/ops/reduce.h"
#include "belfry/tests/support/interpreter.h"
#include "belfry/tests/support/op_test.h"

namespace belfry {
namespace whole_recurrence_test {

using Build = RecurrentResult (*)(Output, const RecurrentWeights&, const RecurrentOptions&, At);

struct Kind {
  Build whole, parts;
  const Op& op;
  std::int64_t gates;
  bool has_c;
};
const Kind kKinds[] = {{whole_lstm, lstm, kWholeLstm, 4, true},
                       {whole_gru, gru, kWholeGru, 3, false}};

// x, both weights, both biases, h, and c if the kind has it.
std::vector<Tensor> random_inputs(const Kind& kind, std::int64_t batch, std::int64_t time,
                                  std::int64_t features, std::int64_t hidden) {
  const std::int64_t columns = kind.gates * hidden;
  const double size = 1 / std::sqrt(static_cast<double>(hidden));
  std::vector<Tensor> inputs{random_values({batch, time, features}, -1, 1, 1),
                             random_values({features, columns}, -size, size, 2),
                             random_values({hidden, columns}, -size, size, 3),
                             random_values({columns}, -1, 1, 4),
                             random_values({columns}, -1, 1, 5),
                             random_values({batch, hidden}, -1, 1, 6)};
  if (kind.has_c) inputs.push_back(random_values({batch, hidden}, -1, 1, 7));
  return inputs;
}

RecurrentResult build(const Kind& kind, Build by, Inputs x, bool reverse) {
  return by(x[0], {.input = x[1], .hidden = x[2], .input_bias = x[3], .hidden_bias = x[4]},
            {.h = x[5], .c = kind.has_c ? x[6] : Output(), .reverse = reverse}, {});
}

Built all_of(const RecurrentResult& r) {
  std::vector<Output> all{r.y, r.h};
  if (r.c) all.push_back(r.c);
  return all;
}

TEST(WholeRecurrences, KeepTheirContract) {
  struct {
    std::int64_t batch, time, features, hidden;
    bool numeric;
  } const cases[] = {{3, 4, 2, 3, true}, {1, 1, 3, 1, true}, {5, 3, 7, 24, false}};
  for (const Kind& kind : kKinds)
    for (const auto& of : cases)
      for (const bool reverse : {false, true})
        check_op({.build = [&](Inputs x) { return all_of(build(kind, kind.whole, x, reverse)); },
                  .inputs = random_inputs(kind, of.batch, of.time, of.features, of.hidden),
                  .f32 = 4e-6,
                  .f64 = 1e-13,
                  .gradient = of.numeric ? 1e-6 : -1,
                  .library = true});
}

// Which other tests compare with PyTorch.
TEST(WholeRecurrences, AreThoseInPartsWithTheirGradients) {
  for (const Kind& kind : kKinds)
    for (const bool reverse : {false, true}) {
      Graph graph;
      std::vector<Output> xs;
      for (const Tensor& x : random_inputs(kind, 3, 6, 5, 4))
        xs.push_back(constant(graph, to(x, DType::kF64)));
      std::vector<Output> both;
      const RecurrentResult whole = build(kind, kind.whole, xs, reverse),
                            parts = build(kind, kind.parts, xs, reverse);
      EXPECT_EQ(&whole.y.node().op(), &kind.op);
      EXPECT_NE(&parts.y.node().op(), &kind.op);
      const auto loss = [](const RecurrentResult& r) {
        const Output sum = reduce_sum(r.y * r.y * r.y) + reduce_sum(r.h * r.h);
        return r.c ? sum + reduce_sum(r.c) : sum;
      };
      const std::vector<Output> a = gradients(loss(whole), xs), b = gradients(loss(parts), xs);
      for (const auto& [one, other] : {std::pair(whole.y, parts.y), std::pair(whole.h, parts.h)})
        both.insert(both.end(), {one, other});
      if (kind.has_c) both.insert(both.end(), {whole.c, parts.c});
      for (std::size_t i = 0; i < xs.size(); ++i) both.insert(both.end(), {a[i], b[i]});
      const std::vector<Tensor> results = evaluate(both);
      for (std::size_t i = 0; i < results.size(); i += 2)
        EXPECT_LE(difference(results[i], results[i + 1]), 1e-13) << kind.gates << " " << i;
    }
}

TEST(WholeRecurrences, NeedNeitherBiasesNorStates) {
  for (const Kind& kind : kKinds) {
    Graph graph;
    std::vector<Output> xs;
    for (const Tensor& x : random_inputs(kind, 2, 3, 2, 4)) xs.push_back(constant(graph, x));
    const RecurrentWeights weights{.input = xs[1], .hidden = xs[2]};
    const RecurrentResult whole = kind.whole(xs[0], weights, {}, {}),
                          parts = kind.parts(xs[0], weights, {}, {});
    EXPECT_LE(difference(evaluate(whole.y), evaluate(parts.y)), 1e-6);
    EXPECT_LE(difference(evaluate(whole.h), evaluate(parts.h)), 1e-6);
  }
}

TEST(WholeRecurrences, In16BitsAreComputedInF32) {
  for (const Kind& kind : kKinds)
    for (const DType dtype : {DType::kBF16, DType::kF16}) {
      Graph graph;
      std::vector<Output> xs;
      for (const Tensor& x : random_inputs(kind, 3, 5, 4, 8))
        xs.push_back(constant(graph, to(x, dtype)));
      const RecurrentResult r = build(kind, kind.whole, xs, false);
      EXPECT_EQ(r.y.dtype(), dtype);
      EXPECT_EQ(r.y.node().input(0).dtype(), DType::kF32);
    }
}

// Elsewhere the option changes nothing.
TEST(WholeRecurrences, AreBuiltOnGpusWhereCudnnIsAskedFor) {
  for (const Kind& kind : kKinds) {
    const auto is_whole = [&](const char* device, bool cudnn, bool lengths) {
      Graph graph;
      const DeviceScope on(graph, device);
      std::vector<Output> xs;
      for (const Tensor& x : random_inputs(kind, 2, 3, 2, 4)) xs.push_back(constant(graph, x));
      RecurrentOptions options{.cudnn = cudnn};
      if (lengths) options.lengths = placeholder(graph, "lengths", DType::kI32, {2});
      const Output y = kind.parts(xs[0], {.input = xs[1], .hidden = xs[2]}, options, {}).y;
      return &y.node().op() == &kind.op;
    };
    EXPECT_TRUE(is_whole("/gpu:0", true, false));
    EXPECT_FALSE(is_whole("/gpu:0", false, false));
    EXPECT_FALSE(is_whole("/gpu:0", true, true));
    EXPECT_FALSE(is_whole("/cpu:0", true, false));
  }
}

TEST(WholeRecurrences, RefuseShapesThatDoNotFit) {
  const Builder plain = [](Inputs x) {
    return whole_lstm(x[0], {.input = x[1], .hidden = x[2]}).y;
  };
  expect_refused(plain, {{{2, kUnknownSize, 6}}, {{6, 8}}, {{2, 8}}},
                 "must be known, and at least 1");
  expect_refused(plain, {{{2, 5, 6}}, {{7, 8}}, {{2, 8}}}, "input 1 must be f32[6,8]");
  expect_refused(plain, {{{2, 5, 6}}, {{6, 8}}, {{2, 9}}}, "input 2 must be f32[2,8]");
  const Builder of_half = [](Inputs x) {
    return x[0].graph().add(kWholeGru, x, {}, NodeOptions(RecurrenceOptions())).output();
  };
  std::vector<TensorType> half{{{2, 5, 6}}, {{6, 9}}, {{3, 9}}, {{9}}, {{9}}, {{2, 3}}};
  for (TensorType& type : half) type.dtype = DType::kF16;
  expect_refused(of_half, half, "takes f32 or f64, not f16[2,5,6]");
  const Builder with_lengths = [](Inputs x) {
    return whole_gru(x[0], {.input = x[1], .hidden = x[2]}, {.lengths = x[3]}).y;
  };
  expect_refused(with_lengths, {{{2, 5, 6}}, {{6, 9}}, {{3, 9}}, {{2}, DType::kI32}},
                 "takes no lengths");
  const Builder with_c = [](Inputs x) {
    return whole_gru(x[0], {.input = x[1], .hidden = x[2]}, {.c = x[3]}).y;
  };
  expect_refused(with_c, {{{2, 5, 6}}, {{6, 9}}, {{3, 9}}, {{2, 3}}}, "has no c, only h");
}

TEST(WholeRecurrences, HaveNoSecondGradient) {
  Graph graph;
  std::vector<Output> xs;
  for (const Tensor& x : random_inputs(kKinds[0], 2, 3, 2, 4)) xs.push_back(constant(graph, x));
  const Output dx = gradients(build(kKinds[0], whole_lstm, xs, false).y, {xs[0]})[0];
  EXPECT_THROW(gradients(dx, {xs[0]}), NotFoundError);
}

}  // namespace whole_recurrence_test
}  // namespace belfry
