#include "belfry/towers/attention_layers.h"

#include <algorithm>
#include <cmath>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/framework/core_ops/constant.h"
#include "belfry/framework/core_ops/initializers.h"
#include "belfry/framework/core_ops/placeholder.h"
#include "belfry/framework/gradients/gradients.h"
#include "belfry/ops/reduce.h"
#include "belfry/ops/square.h"
#include "belfry/tests/support/interpreter.h"
#include "belfry/tests/support/op_test.h"
#include "belfry/tests/towers/towers_test_support.h"

namespace belfry {
namespace attention_layers_test {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

// Queries are 0, so that weights are equal; values are x with its columns exchanged.
TEST(SelfAttentionLayer, ProjectsTheMeanOfValuesUpToAPosition) {
  Graph graph;
  Tower tower(graph);
  const Output x = constant(graph, Tensor({1, 3, 2}, std::vector<float>{1, 2, 3, 6, 5, 10}));
  const Tensor qkv({2, 6}, std::vector<float>{0, 0, 1, 1, 0, 1, 0, 0, 1, 1, 1, 0});
  const Tensor out({2, 2}, std::vector<float>{1, 0, 0, 10});
  const Output y = causal_self_attention(
      tower, "attn", x, {.heads = 2, .init = init::value(qkv), .out = init::value(out)});
  const std::vector<Variable> variables = tower.variables();
  EXPECT_THAT(names_of(variables),
              ElementsAre("attn/qkv/W", "attn/qkv/b", "attn/out/W", "attn/out/b"));
  Interpreter interpreter;
  interpreter.write(variables[1], Tensor({6}, std::vector<float>{0, 0, 0, 0, 1, 0}));
  interpreter.write(variables[3], Tensor({2}, std::vector<float>{0, 100}));
  // Values are (3, 1), (7, 3) and (11, 5).
  const Tensor expected({1, 3, 2}, std::vector<float>{3, 110, 5, 120, 7, 130});
  const Tensor actual = interpreter.run(y);
  ASSERT_EQ(actual.shape(), expected.shape());
  for (std::size_t i = 0; i < 6; ++i)
    EXPECT_NEAR(actual.data<float>()[i], expected.data<float>()[i], 1e-4) << i;
}

// If equal vectors are turned, their scores depend on the distance of their positions.
TEST(SelfAttentionLayer, CanTurnQueriesAndKeysByTheirTimes) {
  Graph graph;
  Tower tower(graph);
  const Output x = constant(graph, Tensor({1, 2, 2}, std::vector<float>{1, 0, 1, 1}));
  const Tensor qkv({2, 6}, std::vector<float>{2, 0, 2, 0, 0, 0, 0, 0, 0, 0, 1, 0});
  const Tensor out({2, 2}, std::vector<float>{1, 0, 0, 1});
  const Output y = causal_self_attention(tower, "attn", x,
                                         {.heads = 1,
                                          .bias = false,
                                          .rotary = true,
                                          .init = init::value(qkv),
                                          .out = init::value(out)});
  EXPECT_THAT(names_of(tower.variables()), ElementsAre("attn/qkv/W", "attn/out/W"));
  // Scores of position 1 are 4 cos(1) / sqrt(2) and 4 / sqrt(2); values are 0 and 1.
  const double weight = 1 / (1 + std::exp(4 * (std::cos(1.0) - 1) / std::sqrt(2.0)));
  EXPECT_NEAR(evaluate(y).data<float>()[2], weight, 1e-6);
}

TEST(SelfAttentionLayer, TakesShortTypesAndBatchesOfAnySize) {
  Graph graph;
  Tower tower(graph);
  const Output x = placeholder(graph, "x", DType::kBF16, {kUnknownSize, 5, 6});
  EXPECT_EQ(causal_self_attention(tower, "attn", x, {.heads = 3}).type(), x.type());
  for (const Variable v : tower.variables()) EXPECT_EQ(v.dtype(), DType::kF32) << v.name();
}

TEST(SelfAttentionLayer, RefusesHeadsThatDoNotFit) {
  Graph graph;
  Tower tower(graph);
  const Output x = placeholder(graph, "x", DType::kF32, {2, 5, 6});
  EXPECT_THAT(
      message_of([&] { causal_self_attention(tower, "attn", x, {.heads = 4}); }),
      AllOf(HasSubstr("causal_self_attention layer 'attn' (built at attention_layers_test.cc:"),
            HasSubstr("4 heads do not divide the width of f32[2,5,6]")));
  EXPECT_THAT(message_of([&] { causal_self_attention(tower, "attn", x, {}); }),
              HasSubstr("0 heads do not divide"));
  const Output untimed = placeholder(graph, "z", DType::kF32, {2, kUnknownSize, 6});
  EXPECT_THAT(message_of([&] { causal_self_attention(tower, "attn", untimed, {.heads = 2}); }),
              HasSubstr("must be known"));
  const Output row = placeholder(graph, "row", DType::kF32, {2, 6});
  EXPECT_THAT(message_of([&] { causal_self_attention(tower, "attn", row, {.heads = 2}); }),
              HasSubstr("takes a tensor of rank 3"));
}

// Scores are zero, so each position gets the mean of all values that it sees.
TEST(AttentionLayer, AttendsToAllPositionsOfItselfOrOfAnother) {
  Graph graph;
  Tower tower(graph);
  const Output x = constant(graph, Tensor({1, 2, 2}, std::vector<float>{1, 2, 3, 6}));
  const Output memory = constant(graph, Tensor({1, 3, 1}, std::vector<float>{1, 2, 6}));
  const Output mask = constant(graph, Tensor({1, 3}, std::vector<float>{0, 0, -HUGE_VALF}));
  const Tensor same({2, 2}, std::vector<float>{1, 0, 0, 1});
  const Tensor qkv({2, 6}, std::vector<float>{0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 1});
  const Output self = multi_head_attention(
      tower, "self", x,
      {.heads = 2, .bias = false, .init = init::value(qkv), .out = init::value(same)});
  EXPECT_EQ(evaluate(self), Tensor({1, 2, 2}, std::vector<float>{2, 4, 2, 4}));
  const AttentionLayer of_zeros{.heads = 2, .bias = false, .init = init::zeros()};
  const Output cross = multi_head_attention(tower, "cross", x, memory, of_zeros);
  const Output masked = multi_head_attention(tower, "masked", x, memory, of_zeros, {.mask = mask});
  EXPECT_THAT(names_of(tower.variables()),
              ElementsAre("self/qkv/W", "self/out/W", "cross/q/W", "cross/kv/W", "cross/out/W",
                          "masked/q/W", "masked/kv/W", "masked/out/W"));
  Interpreter interpreter;
  for (const std::size_t i : {2u, 5u}) {
    interpreter.write(tower.variables()[i + 1], Tensor({1, 4}, std::vector<float>{0, 0, 1, 10}));
    interpreter.write(tower.variables()[i + 2], same);
  }
  EXPECT_EQ(interpreter.run(cross), Tensor({1, 2, 2}, std::vector<float>{3, 30, 3, 30}));
  EXPECT_EQ(interpreter.run(masked), Tensor({1, 2, 2}, std::vector<float>{1.5, 15, 1.5, 15}));
}

TEST(AttentionLayer, ProjectsToFewerHeadsOfKeys) {
  Graph graph;
  Tower tower(graph);
  const Output x = placeholder(graph, "x", DType::kF32, {kUnknownSize, 5, 8});
  EXPECT_EQ(
      multi_head_attention(tower, "attn", x,
                           {.heads = 4, .kv_heads = 2, .causal = true, .window = 3, .rotary = true})
          .type(),
      x.type());
  EXPECT_EQ(tower.variables()[0].shape(), (Shape{8, 16}));
}

// A position at a time, with a cache, gives what all positions at once give.
TEST(AttentionLayer, WithACacheComputesOnePositionAtATime) {
  const AttentionLayer layer{.heads = 4, .kv_heads = 2};
  Graph graph;
  Tower tower(graph);
  const VariableScope sharing(graph, "model", VariableReuse::kCreateOrGet);
  const std::int64_t time = 5;
  const Tensor x = random_values({1, time, 8}, -1, 1);
  const Output all = causal_self_attention(tower, "attn", constant(graph, x), layer);
  TokenStep step{.position = placeholder(graph, "position", DType::kI32, {1}),
                 .length = placeholder(graph, "length", DType::kI32, {1}),
                 .time = time};
  const Output one = placeholder(graph, "one", DType::kF32, {1, 1, 8});
  const KeyValueCache before = key_value_cache(tower, "cache", {1, time, 4});
  KeyValueCache after = before;
  const Output y = causal_self_attention(tower, "attn", one, layer, step, after);
  EXPECT_EQ(tower.variables().size(), 4u);
  Interpreter interpreter;
  const Tensor expected = interpreter.run(all);
  Tensor keys({1, time, 4}, DType::kF32), values = keys;
  for (std::int32_t t = 0; t < time; ++t) {
    Tensor row({1, 1, 8}, DType::kF32);
    std::ranges::copy(x.data<float>().subspan(static_cast<std::size_t>(t) * 8, 8),
                      row.mutable_data<float>().begin());
    const std::vector<Tensor> found =
        interpreter.run({y, after.keys, after.values},
                        {{one, row},
                         {step.position, Tensor({1}, std::vector<std::int32_t>{t})},
                         {step.length, Tensor({1}, std::vector<std::int32_t>{t + 1})},
                         {before.keys, keys},
                         {before.values, values}});
    for (std::size_t c = 0; c < 8; ++c)
      EXPECT_NEAR(found[0].data<float>()[c],
                  expected.data<float>()[static_cast<std::size_t>(t) * 8 + c], 1e-6)
          << t;
    keys = found[1];
    values = found[2];
  }
}

// Attention whose weights are dropped with a probability of 1e-15, and attention itself.
TEST(AttentionLayer, WithDropoutSeesTheSameKeys) {
  const Tensor x = random_values({2, 5, 8}, -1, 1), memory = random_values({2, 4, 8}, -1, 1, 2);
  const Tensor lengths({2}, std::vector<std::int64_t>{0, 3});
  Tensor seen({2, 5, 4}, DType::kBool);
  for (std::size_t i = 0; i < 40; ++i) seen.mutable_data<bool>()[i] = i % 3 != 0 && i / 4 != 6;
  Tensor added = random_values({1, 4, 5, 4}, -1, 1, 3);
  added.mutable_data<float>()[5] = -HUGE_VALF;
  struct Case {
    AttentionLayer layer;
    bool cross = false;
    Tensor mask = Tensor(), lengths = Tensor();
  };
  const Case cases[] = {
      {.layer = {}},
      {.layer = {.kv_heads = 2, .causal = true, .window = 2}},
      {.layer = {.causal = true, .rotary = true}},
      {.layer = {.kv_heads = 1}, .cross = true, .lengths = lengths},
      {.layer = {}, .cross = true, .mask = seen},
      {.layer = {.causal = true}, .cross = true, .mask = added, .lengths = lengths}};
  for (const Case& of : cases) {
    SCOPED_TRACE(&of - cases);
    Graph graph;
    Tower tower(graph);
    const VariableScope sharing(graph, "model", VariableReuse::kCreateOrGet);
    AttentionInputs inputs;
    if (of.mask.elements() > 0) inputs.mask = constant(graph, of.mask);
    if (of.lengths.elements() > 0) inputs.lengths = constant(graph, of.lengths);
    std::vector<Output> ends;
    for (const double rate : {0.0, 1e-15}) {
      AttentionLayer layer = of.layer;
      layer.heads = 4;
      layer.dropout = rate;
      const Output from = constant(graph, x);
      const Output y = of.cross ? multi_head_attention(tower, "attn", from, constant(graph, memory),
                                                       layer, inputs)
                                : multi_head_attention(tower, "attn", from, layer, inputs);
      ends.push_back(y);
      for (const Output& gradient : gradients(reduce_sum(square(y)), tower.trainables()))
        ends.push_back(gradient);
    }
    const std::vector<Tensor> found = evaluate(ends);
    for (std::size_t i = 0; i < found.size() / 2; ++i)
      for (std::size_t e = 0; e < found[i].data<float>().size(); ++e)
        EXPECT_NEAR(found[i].data<float>()[e], found[i + found.size() / 2].data<float>()[e], 1e-4)
            << i << " " << e;
  }
}

// Scores are 0, so a query takes a quarter of each of four keys, or with dropout none or half.
TEST(AttentionLayer, DropsWeightsOnlyWhenItTrains) {
  Tensor values({1, 4, 1}, std::vector<float>{1, 10, 100, 1000});
  const auto result = [&](bool training) {
    Graph graph;
    Tower tower(graph, {}, training);
    const Output y =
        multi_head_attention(tower, "attn", constant(graph, values),
                             {.heads = 1,
                              .bias = false,
                              .dropout = 0.5,
                              .init = init::value(Tensor({1, 3}, std::vector<float>{0, 0, 1})),
                              .out = init::ones()});
    return evaluate(y);
  };
  const Tensor kept = result(false), dropped = result(true);
  std::set<float> sums;
  for (const float y : kept.data<float>()) EXPECT_NEAR(y, 1111 / 4.0, 1e-3);
  for (const float y : dropped.data<float>()) {
    sums.insert(y);
    for (double rest = std::round(2 * static_cast<double>(y)); rest >= 1;
         rest = std::floor(rest / 10))
      EXPECT_LE(std::fmod(rest, 10), 1) << y;  // digits of a sum of some values, once each
  }
  EXPECT_GT(sums.size(), 1U);
}

TEST(AttentionLayer, RefusesWhatDoesNotFit) {
  Graph graph;
  Tower tower(graph);
  const Output x = placeholder(graph, "x", DType::kF32, {2, 5, 6});
  const Output one = placeholder(graph, "one", DType::kF32, {2, 1, 6});
  EXPECT_THAT(message_of([&] { multi_head_attention(tower, "a", x, {.heads = 4}); }),
              AllOf(HasSubstr("multi_head_attention layer 'a' (built at attention_layers_test.cc:"),
                    HasSubstr("4 heads do not divide the width of f32[2,5,6]")));
  EXPECT_THAT(message_of([&] { multi_head_attention(tower, "b", x, {.heads = 3, .kv_heads = 2}); }),
              HasSubstr("2 heads of keys and values do not divide 3 heads"));
  EXPECT_THAT(
      message_of([&] { multi_head_attention(tower, "c", x, x, {.heads = 3, .rotary = true}); }),
      HasSubstr("rotary needs queries and keys of one sequence"));
  EXPECT_THAT(message_of([&] { multi_head_attention(tower, "e", x, {.heads = 3, .dropout = 1}); }),
              HasSubstr("dropout is a probability >= 0 and below 1, not 1"));
  TokenStep step{.position = placeholder(graph, "position", DType::kI32, {2}),
                 .length = placeholder(graph, "length", DType::kI32, {2}),
                 .time = 5};
  KeyValueCache cache = key_value_cache(tower, "cache", {2, 5, 4});
  const auto with_cache = [&](Output of, AttentionLayer layer) {
    return message_of([&] { causal_self_attention(tower, "d", of, layer, step, cache); });
  };
  EXPECT_THAT(with_cache(x, {.heads = 3}),
              HasSubstr("a cache takes one position at a time, not f32[2,5,6]"));
  EXPECT_THAT(with_cache(one, {.heads = 3, .window = 2}), HasSubstr("a cache has no window"));
  EXPECT_THAT(with_cache(one, {.heads = 3}),
              HasSubstr("the cache is f32[2,5,4], but must be f32[n,5,6]"));
}

}  // namespace attention_layers_test
}  // namespace belfry
