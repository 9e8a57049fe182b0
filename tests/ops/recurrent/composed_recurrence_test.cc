#include <gtest/gtest.h>

#include "belfry/framework/base/text.h"
#include "belfry/framework/core_ops/constant.h"
#include "belfry/framework/gradients/gradients.h"
#include "belfry/ops/recurrent/composed_recurrence_impl.h"
#include "belfry/tests/support/interpreter.h"
#include "belfry/tests/support/op_test.h"

namespace belfry {
namespace composed_recurrence_test {

using recurrent::ComposedRecurrence;

constexpr std::int64_t kBatch = 4, kTime = 5, kHidden = 3;

struct Kind {
  const Op &op, &grad;
  ComposedRecurrence &composed, &composed_grad;
  std::int64_t gates;
};
const Kind kKinds[] = {
    {kLstm, kLstmGrad, recurrent::composed_lstm, recurrent::composed_lstm_grad, 4},
    {kGru, kGruGrad, recurrent::composed_gru, recurrent::composed_gru_grad, 3}};

// Gates, hidden weights, h, c or the hidden bias, and lengths if they are wanted.
std::vector<Tensor> random_inputs(const Kind& kind, bool lengths) {
  const std::int64_t columns = kind.gates * kHidden;
  std::vector<Tensor> inputs{
      random_values({kBatch, kTime, columns}, -1, 1, 1),
      random_values({kHidden, columns}, -1, 1, 2), random_values({kBatch, kHidden}, -1, 1, 3),
      random_values(&kind.op == &kLstm ? Shape{kBatch, kHidden} : Shape{columns}, -1, 1, 4)};
  if (lengths) inputs.emplace_back(Shape{kBatch}, std::vector<std::int32_t>{2, 5, 0, 4});
  return inputs;
}

const Node& recurrence(const Kind& kind, Inputs x, bool reverse) {
  return x[0].graph().add(kind.op, x, {}, NodeOptions(RecurrenceOptions{.reverse = reverse}));
}

std::vector<Output> outputs_of(const Node& node) {
  std::vector<Output> outputs;
  for (std::size_t i = 0; i < node.outputs(); ++i) outputs.push_back(node.output(i));
  return outputs;
}

const Node& only(const Graph& graph, const Op& op) {
  const Node* found = nullptr;
  for (std::size_t id = 0; id < graph.size(); ++id)
    if (&graph.node(id).op() == &op) {
      EXPECT_EQ(found, nullptr);
      found = &graph.node(id);
    }
  return *found;
}

TEST(ComposedRecurrences, HaveTheOutputsOfTheOps) {
  for (const Kind& kind : kKinds)
    for (const bool reverse : {false, true})
      for (const bool lengths : {false, true}) {
        Graph graph;
        std::vector<Output> xs;
        for (const Tensor& x : random_inputs(kind, lengths))
          xs.push_back(constant(graph, is_floating(x.dtype()) ? to(x, DType::kF64) : x));
        const Node& node = recurrence(kind, xs, reverse);
        std::vector<Output> ys = outputs_of(node), directions;
        ys.erase(ys.begin() + 2), ys.erase(ys.begin());
        for (const Output& y : ys)
          directions.push_back(
              constant(graph, to(random_values(y.shape(), -1, 1, 9), DType::kF64)));
        gradients(ys, xs, {.initial = directions});
        const Node& grad = only(graph, kind.grad);
        const auto expect_equal = [&](const Node& of, ComposedRecurrence& composed) {
          const std::vector<Tensor> expected = evaluate(outputs_of(of)),
                                    found = evaluate(composed(of.inputs(), reverse));
          ASSERT_EQ(found.size(), expected.size());
          for (std::size_t i = 0; i < found.size(); ++i)
            EXPECT_LE(difference(found[i], expected[i]), 1e-14)
                << of.op().name << " " << i << " reverse " << reverse << " lengths " << lengths;
        };
        expect_equal(node, kind.composed);
        expect_equal(grad, kind.composed_grad);
      }
}

// Of all outputs of the op and of its gradient, by all their inputs.
TEST(ComposedRecurrences, GiveSecondGradientsThatKeepTheContractOfOps) {
  for (const Kind& kind : kKinds)
    for (const bool reverse : {false, true})
      for (const bool lengths : {false, true}) {
        SCOPED_TRACE(cat(kind.op.name, " reverse ", reverse, " lengths ", lengths));
        check_op({.build =
                      [&](Inputs x) {
                        const Output y = recurrence(kind, x, reverse).output(1);
                        const std::vector<Output> wanted(x.begin(), x.begin() + 4);
                        const std::vector<Output> first = gradients(y, wanted, {.initial = {y}});
                        return Built(gradients(first, wanted, {.initial = first}));
                      },
                  .inputs = random_inputs(kind, lengths),
                  .f32 = 4e-6,
                  .f64 = 1e-13,
                  .gradient = -1,
                  .library = true,
                  .nan = false});
      }
}

// Rows that have ended read nothing, not even NaN.
TEST(ComposedRecurrences, DoNotReadGatesAfterTheEnd) {
  for (const Kind& kind : kKinds) {
    std::vector<Tensor> inputs = random_inputs(kind, true);
    const auto second = [&] {
      Graph graph;
      std::vector<Output> xs;
      for (const Tensor& x : inputs) xs.push_back(constant(graph, x));
      const Output y = recurrence(kind, xs, false).output(1);
      const std::vector<Output> wanted(xs.begin(), xs.begin() + 4);
      const std::vector<Output> first = gradients(y, wanted, {.initial = {y}});
      return evaluate(gradients(first, wanted, {.initial = first}));
    };
    const std::vector<Tensor> expected = second();
    const std::int64_t row = kTime * kind.gates * kHidden;
    for (std::int64_t i = 2 * row; i < 3 * row; ++i)  // the row of length 0
      inputs[0].mutable_data<float>()[static_cast<std::size_t>(i)] = NAN;
    const std::vector<Tensor> found = second();
    for (std::size_t i = 0; i < found.size(); ++i) EXPECT_TRUE(found[i] == expected[i]) << i;
  }
}

}  // namespace composed_recurrence_test
}  // namespace belfry
