#include "belfry/ops/recurrent/recurrent.h"

#include <cmath>
#include <map>

#include <gtest/gtest.h>

#include "belfry/framework/core_ops/constant.h"
#include "belfry/framework/core_ops/placeholder.h"
#include "belfry/framework/gradients/gradients.h"
#include "belfry/framework/graph/scopes.h"
#include "belfry/framework/plan/plan.h"
#include "belfry/framework/run/session.h"
#include "belfry/ops/matmul.h"
#include "belfry/ops/operand.h"
#include "belfry/ops/precision.h"
#include "belfry/ops/reduce.h"
#include "belfry/ops/reshape.h"
#include "belfry/ops/sigmoid.h"
#include "belfry/ops/slice.h"
#include "belfry/ops/tanh.h"
#include "belfry/tests/support/interpreter.h"
#include "belfry/tests/support/op_test.h"

namespace belfry {
namespace recurrent_test {

using Build = RecurrentResult (*)(Output, const RecurrentWeights&, const RecurrentOptions&, At);

struct Kind {
  Build build;
  std::int64_t gates;
  bool has_c;
};
const Kind kKinds[] = {{lstm, 4, true}, {gru, 3, false}};

// Inputs of a recurrence: x, both weights, both biases, h, and c if the kind has it.
std::vector<Tensor> random_inputs(const Kind& kind, std::int64_t batch, std::int64_t time,
                                  std::int64_t features, std::int64_t hidden) {
  const std::int64_t columns = kind.gates * hidden;
  const double size = 1 / std::sqrt(static_cast<double>(hidden));
  std::vector<Tensor> inputs{random_values({batch, time, features}, -1, 1, 1),
                             random_values({features, columns}, -1, 1, 2),
                             random_values({hidden, columns}, -size, size, 3),
                             random_values({columns}, -1, 1, 4),
                             random_values({columns}, -1, 1, 5),
                             random_values({batch, hidden}, -1, 1, 6)};
  if (kind.has_c) inputs.push_back(random_values({batch, hidden}, -1, 1, 7));
  return inputs;
}

RecurrentResult build(const Kind& kind, Inputs x, Output lengths, bool reverse) {
  return kind.build(
      x[0], {.input = x[1], .hidden = x[2], .input_bias = x[3], .hidden_bias = x[4]},
      {.h = x[5], .c = kind.has_c ? x[6] : Output(), .lengths = lengths, .reverse = reverse}, {});
}

Built all_of(const RecurrentResult& r) {
  std::vector<Output> all{r.y, r.h};
  if (r.c) all.push_back(r.c);
  return all;
}

// The last input has the lengths, if there are any.
Builder recurrence(const Kind& kind, bool lengths = false, bool reverse = false) {
  return [=](Inputs x) { return all_of(build(kind, x, lengths ? x.back() : Output(), reverse)); };
}

Tensor lengths_of(std::vector<std::int32_t> lengths) {
  const auto count = static_cast<std::int64_t>(lengths.size());
  return Tensor({count}, std::move(lengths));
}

// The recurrence of one time after another by other ops.
RecurrentResult composed(const Kind& kind, Inputs x, bool reverse) {
  const std::int64_t batch = x[0].shape()[0], time = x[0].shape()[1], n = x[2].shape()[0];
  RecurrentResult r{.h = x[5], .c = kind.has_c ? x[6] : Output()};
  for (std::int64_t step = 0; step < time; ++step) {
    const std::int64_t t = reverse ? time - 1 - step : step;
    const Output now = reshape(slice(x[0], {0, t, 0}, {-1, 1, -1}), {batch, x[0].shape()[2]});
    const Output of_x = matmul(now, x[1]) + x[3], of_h = matmul(r.h, x[2]) + x[4];
    const auto part = [n](Output from, std::int64_t gate) {
      return slice(from, {0, gate * n}, {-1, n});
    };
    if (kind.has_c) {
      const Output all = of_x + of_h;
      r.c = sigmoid(part(all, 1)) * r.c + sigmoid(part(all, 0)) * tanh(part(all, 2));
      r.h = sigmoid(part(all, 3)) * tanh(r.c);
    } else {
      const Output reset = sigmoid(part(of_x, 0) + part(of_h, 0));
      const Output update = sigmoid(part(of_x, 1) + part(of_h, 1));
      const Output fresh = tanh(part(of_x, 2) + reset * part(of_h, 2));
      r.h = (1 - update) * fresh + update * r.h;
    }
  }
  return r;
}

RecurrentWeights by_bias(Output x, std::vector<double> bias, std::int64_t hidden = 1) {
  Graph& graph = x.graph();
  const auto columns = static_cast<std::int64_t>(bias.size());
  return {.input = constant(graph, Tensor({1, columns}, std::vector<double>(bias.size(), 0))),
          .hidden = constant(graph, Tensor({hidden, columns}, std::vector<double>(bias.size(), 0))),
          .input_bias = constant(graph, Tensor({columns}, bias))};
}

// All of i, f, g and o are 1/2, so c goes 0, 1/4, 3/8.
TEST(Lstm, FollowsTheFormulas) {
  const Builder half = [](Inputs x) {
    const RecurrentResult r = lstm(x[0], by_bias(x[0], {0, 0, std::atanh(0.5), 0}));
    return Built(r.y);
  };
  const Builder cells = [](Inputs x) {
    return Built(lstm(x[0], by_bias(x[0], {0, 0, std::atanh(0.5), 0})).c);
  };
  const Tensor x({1, 2, 1}, std::vector<double>{5, -7});
  const std::vector<double> y = doubles(compute(half, {x}));
  ASSERT_EQ(y.size(), 2);
  EXPECT_NEAR(y[0], 0.5 * std::tanh(0.25), 1e-15);
  EXPECT_NEAR(y[1], 0.5 * std::tanh(0.375), 1e-15);
  EXPECT_NEAR(doubles(compute(cells, {x}))[0], 0.375, 1e-15);
}

// A gate is opened by a bias of 100 and closed by one of -100.
TEST(Lstm, HasItsGatesInTheOrderInputForgetCellOutput) {
  const auto h_and_c = [](std::vector<double> bias) {
    Graph graph;
    const Output x = constant(graph, Tensor({1, 1, 1}, std::vector<double>{1}));
    const RecurrentResult r =
        lstm(x, by_bias(x, bias), {.c = constant(graph, Tensor({1, 1}, std::vector<double>{3}))});
    const std::vector<Tensor> found = evaluate(std::vector<Output>{r.h, r.c});
    return std::vector<double>{doubles(found[0])[0], doubles(found[1])[0]};
  };
  const std::vector<double> kept = h_and_c({-100, 100, 0.5, 100});
  EXPECT_NEAR(kept[0], std::tanh(3.0), 1e-15);
  EXPECT_NEAR(kept[1], 3, 1e-15);
  const std::vector<double> taken = h_and_c({100, -100, 0.5, 100});
  EXPECT_NEAR(taken[1], std::tanh(0.5), 1e-15);
  const std::vector<double> hidden = h_and_c({100, 100, 0.5, -100});
  EXPECT_NEAR(hidden[0], 0, 1e-15);
  EXPECT_NEAR(hidden[1], 3 + std::tanh(0.5), 1e-14);
}

// r is 1/2 by zeros; z is 3/4; the gate of h is 2 by its bias.
TEST(Gru, FollowsTheFormulasAndHasItsGatesInTheOrderResetUpdateNew) {
  Graph graph;
  const Output x = constant(graph, Tensor({1, 1, 1}, std::vector<double>{9}));
  RecurrentWeights weights = by_bias(x, {0, std::log(3.0), 0.25});
  weights.hidden_bias = constant(graph, Tensor({3}, std::vector<double>{0, 0, 2}));
  const RecurrentResult r =
      gru(x, weights, {.h = constant(graph, Tensor({1, 1}, std::vector<double>{0.5}))});
  EXPECT_NEAR(doubles(evaluate(r.y))[0], 0.25 * std::tanh(1.25) + 0.75 * 0.5, 1e-15);
  EXPECT_EQ(doubles(evaluate(r.y)), doubles(evaluate(r.h)));
  EXPECT_FALSE(r.c);
}

Output squares(std::span<const Output> of) {
  Output sum;
  for (const Output& x : of) sum = sum ? sum + reduce_sum(x * x) : reduce_sum(x * x);
  return sum;
}

TEST(Recurrences, AreThoseOfOtherOpsWithTwoDerivatives) {
  for (const Kind& kind : kKinds)
    for (const bool reverse : {false, true}) {
      Graph graph;
      std::vector<Output> xs;
      for (const Tensor& x : random_inputs(kind, 3, 6, 5, 4))
        xs.push_back(constant(graph, to(x, DType::kF64)));
      const RecurrentResult fused = build(kind, xs, {}, reverse),
                            plain = composed(kind, xs, reverse);
      std::vector<Output> both{fused.h, plain.h};
      if (kind.has_c) both.insert(both.end(), {fused.c, plain.c});
      const auto loss = [&](const RecurrentResult& r) {
        const Output sum = reduce_sum(r.h * r.h);
        return r.c ? sum + reduce_sum(r.c) : sum;
      };
      const std::vector<Output> a = gradients(loss(fused), xs), b = gradients(loss(plain), xs);
      const std::vector<Output> second_a = gradients(squares(a), xs),
                                second_b = gradients(squares(b), xs);
      for (std::size_t i = 0; i < xs.size(); ++i)
        both.insert(both.end(), {a[i], b[i], second_a[i], second_b[i]});
      const std::vector<Tensor> results = evaluate(both);
      for (std::size_t i = 0; i < results.size(); i += 2)
        EXPECT_LE(difference(results[i], results[i + 1]), 1e-13) << kind.gates << " " << i;
    }
}

TEST(Recurrences, KeepTheirContract) {
  struct {
    std::int64_t batch, time, features, hidden;
    bool numeric;
  } const cases[] = {{3, 4, 2, 3, true}, {1, 1, 3, 1, true}, {5, 3, 7, 24, false}};
  for (const Kind& kind : kKinds)
    for (const auto& of : cases)
      for (const bool reverse : {false, true})
        check_op({.build = recurrence(kind, false, reverse),
                  .inputs = random_inputs(kind, of.batch, of.time, of.features, of.hidden),
                  .f32 = 4e-6,
                  .f64 = 1e-13,
                  .gradient = of.numeric ? 1e-6 : -1,
                  .library = true});
}

TEST(Recurrences, OfSeveralLengthsKeepTheirContract) {
  for (const Kind& kind : kKinds)
    for (const bool reverse : {false, true}) {
      std::vector<Tensor> inputs = random_inputs(kind, 5, 4, 2, 3);
      inputs.push_back(lengths_of({2, 4, 0, 1, 3}));
      check_op({.build = recurrence(kind, true, reverse),
                .inputs = inputs,
                .f32 = 4e-6,
                .f64 = 1e-13,
                .library = true,
                .nan = false});
    }
}

// The products of these sizes are a library's.
TEST(Recurrences, GradientsOfManyUnitsMatchPlainLoops) {
  for (const Kind& kind : kKinds)
    for (const bool lengths : {false, true}) {
      std::vector<Tensor> inputs = random_inputs(kind, 9, 5, 6, 40);
      inputs.push_back(random_values({9, 5, 40}, -1, 1, 9));
      if (lengths) inputs.push_back(lengths_of({5, 3, 1, 0, 2, 5, 4, 4, 2}));
      const std::size_t direction = kind.has_c ? 7 : 6;
      check_op({.build =
                    [&](Inputs x) {
                      const Output y = build(kind, x, lengths ? x.back() : Output(), lengths).y;
                      const std::vector<Output> wanted(x.begin(), x.begin() + 6);
                      return Built(gradients(y, wanted, {.initial = {x[direction]}}));
                    },
                .inputs = inputs,
                .f32 = 4e-6,
                .f64 = 1e-13,
                .gradient = -1,
                .library = true,
                .nan = false,
                .unknown = false});
    }
}

// A row of length n is the sequence of its first n times, in both directions.
TEST(Recurrences, OfALengthAreThoseOfAShorterSequence) {
  for (const Kind& kind : kKinds)
    for (const bool reverse : {false, true})
      for (const std::int64_t length : {1, 3}) {
        std::vector<Tensor> all = random_inputs(kind, 1, 5, 2, 4);
        std::vector<Tensor> cut = all;
        cut[0] = Tensor({1, length, 2}, DType::kF32);
        for (std::int64_t i = 0; i < 5 * 2; ++i) {
          const auto at = static_cast<std::size_t>(i);
          if (i < length * 2)
            cut[0].mutable_data<float>()[at] = all[0].data<float>()[at];
          else
            all[0].mutable_data<float>()[at] = NAN;  // is not read
        }
        all.push_back(lengths_of({static_cast<std::int32_t>(length)}));
        const auto results = [&](const std::vector<Tensor>& inputs, bool lengths) {
          Graph graph;
          std::vector<Output> xs;
          for (const Tensor& x : inputs) xs.push_back(constant(graph, x));
          Built built = recurrence(kind, lengths, reverse)(xs);
          built[0] = slice(built[0], {0, 0, 0}, {1, length, 4});
          return evaluate(built);
        };
        const std::vector<Tensor> ended = results(all, true), shorter = results(cut, false);
        for (std::size_t i = 0; i < ended.size(); ++i)
          EXPECT_LE(difference(ended[i], shorter[i]), 1e-6) << i << " " << reverse;
      }
}

TEST(Recurrences, OfARowWithoutTimesKeepItsStates) {
  for (const Kind& kind : kKinds) {
    std::vector<Tensor> inputs = random_inputs(kind, 2, 3, 2, 4);
    inputs.push_back(lengths_of({0, 2}));
    Graph graph;
    std::vector<Output> xs;
    for (const Tensor& x : inputs) xs.push_back(constant(graph, x));
    const std::vector<Tensor> found = evaluate(recurrence(kind, true)(xs));
    const std::vector<double> y = doubles(found[0]), h = doubles(found[1]), h0 = doubles(inputs[5]);
    for (std::size_t j = 0; j < 12; ++j) EXPECT_EQ(y[j], 0);
    for (std::size_t j = 0; j < 4; ++j) {
      EXPECT_EQ(h[j], h0[j]);
      EXPECT_EQ(h[4 + j], y[12 + 4 + j]);  // the last time of the other row
      EXPECT_EQ(y[12 + 8 + j], 0);
    }
  }
}

TEST(Recurrences, TakeLengthsOf64Bits) {
  std::vector<Tensor> inputs = random_inputs(kKinds[1], 2, 3, 2, 4);
  inputs.push_back(lengths_of({1, 3}));
  const Tensor y = compute(recurrence(kKinds[1], true), inputs);
  inputs.back() = Tensor({2}, std::vector<std::int64_t>{1, 3});
  EXPECT_TRUE(compute(recurrence(kKinds[1], true), inputs) == y);
}

TEST(Recurrences, StartFromZerosIfNoStateIsGiven) {
  for (const Kind& kind : kKinds) {
    std::vector<Tensor> inputs = random_inputs(kind, 2, 3, 2, 4);
    for (std::size_t i = 5; i < inputs.size(); ++i) inputs[i] = Tensor({2, 4}, DType::kF32);
    Graph graph;
    std::vector<Output> xs;
    for (const Tensor& x : inputs) xs.push_back(constant(graph, x));
    const RecurrentResult given = build(kind, xs, {}, false);
    const RecurrentResult none = kind.build(
        xs[0], {.input = xs[1], .hidden = xs[2], .input_bias = xs[3], .hidden_bias = xs[4]}, {},
        {});
    EXPECT_TRUE(evaluate(given.y) == evaluate(none.y));
  }
}

TEST(Recurrences, In16BitsAreComputedInF32) {
  for (const Kind& kind : kKinds)
    for (const DType dtype : {DType::kBF16, DType::kF16}) {
      const auto results = [&](DType computed) {
        Graph graph;
        std::vector<Output> xs;
        for (const Tensor& x : random_inputs(kind, 3, 5, 4, 8))
          xs.push_back(constant(graph, to(to(x, dtype), computed)));
        const RecurrentResult r = build(kind, xs, {}, false);
        EXPECT_EQ(r.y.dtype(), computed);
        EXPECT_EQ(r.h.dtype(), computed);
        std::vector<Output> all = gradients(reduce_sum(r.y * r.y), xs);
        all.push_back(r.y);
        return evaluate(all);
      };
      const std::vector<Tensor> exact = results(DType::kF32), rounded = results(dtype);
      for (std::size_t i = 0; i < exact.size(); ++i)
        EXPECT_LE(difference(to(rounded[i], DType::kF32), exact[i]),
                  dtype == DType::kBF16 ? 4e-2 : 5e-3)
            << i;
    }
}

TEST(Recurrences, ComputeInF32InMixedPrecision) {
  for (const Kind& kind : kKinds) {
    Graph graph;
    std::vector<Output> xs;
    for (const Tensor& x : random_inputs(kind, 3, 5, 4, 8)) xs.push_back(constant(graph, x));
    const AutocastScope scope(graph, autocasting(Precision::kBf16));
    EXPECT_EQ(build(kind, xs, {}, false).y.node().input(0).dtype(), DType::kF32);
  }
}

TEST(Recurrences, OfABatchInShardsAreComputedByThem) {
  for (const Kind& kind : kKinds) {
    Graph graph;
    std::vector<Output> xs;
    for (const Tensor& x : random_inputs(kind, 8, 5, 4, 6)) xs.push_back(constant(graph, x));
    xs[0] = placeholder(graph, "x", DType::kF32, {kUnknownSize, 5, 4});
    const RecurrentResult r = kind.build(xs[0], {.input = xs[1], .hidden = xs[2]}, {}, {});
    const Output dw = gradients(reduce_sum(r.y), {xs[2]})[0];
    Session session(graph, {.shards_per_device = 4, .threads = 1});
    CompiledStep& step = session.prepare({dw}, {FeedType{xs[0], {8, 5, 4}, 0}});
    std::map<std::string, int> runs;
    for (const PlanNode& node : step.plan()->nodes) runs[node.op->name] = step.plan()->runs(node);
    EXPECT_EQ(runs.at(kind.has_c ? kLstm.name : kGru.name), 4);
    EXPECT_EQ(runs.at(kind.has_c ? kLstmGrad.name : kGruGrad.name), 4);
  }
}

TEST(Recurrences, RefuseALengthThatIsLongerThanTheTime) {
  for (const Kind& kind : kKinds)
    for (const std::int32_t length : {4, -1}) {
      std::vector<Tensor> inputs = random_inputs(kind, 2, 3, 2, 4);
      inputs.push_back(lengths_of({3, length}));
      try {
        compute([&](Inputs x) { return build(kind, x, x.back(), false).y; }, inputs);
        FAIL();
      } catch (const InvalidArgument& error) {
        EXPECT_NE(std::string(error.what())
                      .find("length " + std::to_string(length) + " is not in [0, 3] (row 1)"),
                  std::string::npos)
            << error.what();
      }
    }
}

TEST(Recurrences, RefuseShapesThatDoNotFit) {
  const auto refused = [](Builder builder, std::vector<TensorType> types, const char* why) {
    expect_refused(builder, types, why);
  };
  const Builder plain = [](Inputs x) { return lstm(x[0], {.input = x[1], .hidden = x[2]}).y; };
  refused(plain, {{{2, 6}}, {{6, 8}}, {{2, 8}}}, "takes [batch, time, features]");
  refused(plain, {{{2, kUnknownSize, 6}}, {{6, 8}}, {{2, 8}}}, "must be known, and at least 1");
  refused(plain, {{{2, 5, 6}}, {{7, 8}}, {{2, 8}}}, "do not fit");
  refused(plain, {{{2, 5, 6}}, {{6, 9}}, {{3, 9}}}, "hidden weights must be [hidden, 4 * hidden]");
  refused(
      [](Inputs x) { return lstm(x[0], {.input = x[1], .hidden = x[2], .input_bias = x[3]}).y; },
      {{{2, 5, 6}}, {{6, 8}}, {{2, 8}}, {{1}}}, "biases must be [8], not [1]");
  const Builder from = [](Inputs x) {
    return gru(x[0], {.input = x[1], .hidden = x[2]}, {.h = x[3]}).y;
  };
  refused(from, {{{2, 5, 6}}, {{6, 9}}, {{3, 9}}, {{2, 4}}}, "h must be f32[2,3], not f32[2,4]");
  const Builder cell = [](Inputs x) {
    return gru(x[0], {.input = x[1], .hidden = x[2]}, {.c = x[3]}).y;
  };
  refused(cell, {{{2, 5, 6}}, {{6, 9}}, {{3, 9}}, {{2, 3}}}, "has no c, only h");
  const Builder ending = [](Inputs x) {
    return gru(x[0], {.input = x[1], .hidden = x[2]}, {.lengths = x[3]}).y;
  };
  refused(ending, {{{2, 5, 6}}, {{6, 9}}, {{3, 9}}, {{2}, DType::kF32}},
          "lengths must be i32[2], not f32[2]");
  refused(
      [](Inputs x) {
        return x[0].graph().add(kGru, {x[0], x[1]}).output();
      },
      {{{2, 5, 9}}, {{3, 9}}}, "takes 4 tensors, or 5 with lengths, not 2");
}

}  // namespace recurrent_test
}  // namespace belfry
