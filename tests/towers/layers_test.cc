#include "belfry/towers/layers.h"

#include <algorithm>
#include <cmath>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/framework/base/text.h"
#include "belfry/framework/core_ops/constant.h"
#include "belfry/framework/core_ops/initializers.h"
#include "belfry/framework/core_ops/placeholder.h"
#include "belfry/framework/gradients/gradients.h"
#include "belfry/framework/run/session.h"
#include "belfry/ops/cast.h"
#include "belfry/ops/operand.h"
#include "belfry/ops/reshape.h"
#include "belfry/ops/slice.h"
#include "belfry/tests/support/interpreter.h"
#include "belfry/tests/support/op_test.h"
#include "belfry/tests/towers/towers_test_support.h"
#include "belfry/towers/replicate.h"

namespace belfry {
namespace layers_test {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

TEST(Conv2dLayer, MakesAFilterAndABias) {
  Graph graph;
  Tower tower(graph);
  const Output y = conv2d(tower, "conv0", iota(graph, {2, 7, 5, 3}), {.filters = 8, .stride = 2});
  EXPECT_EQ(y.shape(), (Shape{2, 4, 3, 8}));
  const std::vector<Variable> variables = tower.variables();
  EXPECT_THAT(names_of(variables), ElementsAre("conv0/W", "conv0/b"));
  EXPECT_EQ(variables[0].shape(), (Shape{8, 3, 3, 3}));
  EXPECT_EQ(variables[1].shape(), (Shape{8}));
  EXPECT_EQ(evaluate(variables[1]), Tensor({8}, DType::kF32));
}

TEST(Conv2dLayer, HasFiltersForTheChannelsOfAGroup) {
  Graph graph;
  Tower tower(graph);
  const Output x = iota(graph, {2, 7, 5, 6});
  const ConvLayer wide{.filters = 8, .padding = Padding::kValid, .dilation = 2, .groups = 2};
  EXPECT_EQ(conv2d(tower, "conv0", x, wide).shape(), (Shape{2, 3, 1, 8}));
  EXPECT_EQ(conv2d(tower, "depthwise", x, {.filters = 6, .groups = 6}).shape(), x.shape());
  EXPECT_EQ(tower.variables()[0].shape(), (Shape{8, 3, 3, 3}));
  EXPECT_EQ(tower.variables()[2].shape(), (Shape{6, 3, 3, 1}));
}

TEST(Conv2dLayer, TakesPaddingAndSizesPerAxis) {
  Graph graph;
  Tower tower(graph);
  const Output x = iota(graph, {2, 7, 5, 6});
  EXPECT_EQ(conv2d(tower, "conv0", x, {.filters = 8, .stride = 2, .padding = 1}).shape(),
            (Shape{2, 4, 3, 8}));
  EXPECT_EQ(conv2d(tower, "conv1", x,
                   {.filters = 8, .kernel = {3, 1}, .stride = {2, 1}, .padding = {1, 0, 2, 0}})
                .shape(),
            (Shape{2, 3, 7, 8}));
  EXPECT_EQ(tower.variables()[2].shape(), (Shape{8, 3, 1, 6}));
  EXPECT_EQ(conv2d_transpose(tower, "up", x, {.filters = 8, .kernel = 4, .stride = 2, .padding = 1})
                .shape(),
            (Shape{2, 14, 10, 8}));
  EXPECT_THAT(message_of([&] {
                conv2d(tower, "conv2", x, {.filters = 8, .kernel = {0, 1}});
              }),
              HasSubstr("needs filters and a kernel of at least 1, not 8 and [0,1]"));
}

TEST(Conv1dLayer, MakesAFilterAndABias) {
  Graph graph;
  Tower tower(graph);
  const Output y = conv1d(tower, "conv0", iota(graph, {2, 9, 6}),
                          {.filters = 4, .kernel = 5, .padding = {4, 0}, .groups = 2});
  EXPECT_EQ(y.shape(), (Shape{2, 9, 4}));
  const std::vector<Variable> variables = tower.variables();
  EXPECT_THAT(names_of(variables), ElementsAre("conv0/W", "conv0/b"));
  EXPECT_EQ(variables[0].shape(), (Shape{4, 5, 3}));
  EXPECT_THAT(message_of([&] {
                conv1d(tower, "conv1", iota(graph, {2, 9}), {.filters = 4});
              }),
              HasSubstr("conv1d layer 'conv1'"));
}

TEST(GroupNormLayer, MakesGammaAndBeta) {
  Graph graph;
  Tower tower(graph);
  const Output x = iota(graph, {2, 3, 4});
  EXPECT_EQ(group_norm(tower, "gn", x, {.groups = 2}).shape(), x.shape());
  EXPECT_THAT(names_of(tower.variables()), ElementsAre("gn/gamma", "gn/beta"));
  EXPECT_THAT(message_of([&] { group_norm(tower, "gn1", x, {.groups = 3}); }),
              HasSubstr("3 groups do not divide the channels of f32[2,3,4]"));
}

TEST(InstanceNormLayer, HasVariablesOnlyIfAffine) {
  Graph graph;
  Tower tower(graph);
  const Output x = iota(graph, {2, 3, 4});
  const Output plain = instance_norm(tower, "in", x);
  EXPECT_TRUE(tower.variables().empty());
  const Output affine = instance_norm(tower, "in1", x, {.affine = true});
  EXPECT_THAT(names_of(tower.variables()), ElementsAre("in1/gamma", "in1/beta"));
  EXPECT_EQ(evaluate(plain), Interpreter().run(affine));
}

TEST(Conv2dTransposeLayer, MakesAFilterAndABias) {
  Graph graph;
  Tower tower(graph);
  const Output y = conv2d_transpose(tower, "up", iota(graph, {2, 3, 4, 6}),
                                    {.filters = 4, .stride = 2, .groups = 2});
  EXPECT_EQ(y.shape(), (Shape{2, 6, 8, 4}));
  const std::vector<Variable> variables = tower.variables();
  EXPECT_THAT(names_of(variables), ElementsAre("up/W", "up/b"));
  EXPECT_EQ(variables[0].shape(), (Shape{6, 3, 3, 2}));
  EXPECT_EQ(variables[1].shape(), (Shape{4}));
}

TEST(Conv2dTransposeLayer, SpreadsEachPixelAndAddsTheBias) {
  Graph graph;
  Tower tower(graph);
  const Output x = constant(graph, Tensor({1, 1, 1, 2}, std::vector<float>{3, 5}));
  const Tensor weights({2, 2, 2, 1}, std::vector<float>{1, 2, 3, 4, 100, 200, 300, 400});
  const Output y = conv2d_transpose(
      tower, "up", x, {.filters = 1, .kernel = 2, .stride = 2, .init = init::value(weights)});
  Interpreter interpreter;
  interpreter.write(tower.variables()[1], Tensor({1}, std::vector<float>{0.5}));
  EXPECT_EQ(interpreter.run(y),
            Tensor({1, 2, 2, 1}, std::vector<float>{503.5, 1006.5, 1509.5, 2012.5}));
}

TEST(Conv2dLayer, StartsAsGlorotUniform) {
  Graph graph;
  Tower tower(graph);
  conv2d(tower, "conv0", iota(graph, {1, 4, 4, 3}), {.filters = 64, .kernel = 5});
  const Tensor w = evaluate(tower.variables()[0]);
  const double limit = std::sqrt(6.0 / (25 * 3 + 25 * 64));
  double largest = 0;
  for (const float x : w.data<float>()) largest = std::max(largest, std::abs(double{x}));
  EXPECT_LE(largest, limit);
  EXPECT_GT(largest, 0.95 * limit);
}

TEST(DenseLayer, MultipliesAndAddsTheBias) {
  Graph graph;
  Tower tower(graph);
  const Tensor weights({2, 3}, std::vector<float>{1, 2, 3, 4, 5, 6});
  const Output y =
      dense(tower, "fc", iota(graph, {2, 2}, 1), {.units = 3, .init = init::value(weights)});
  Interpreter interpreter;
  interpreter.write(tower.variables()[1], Tensor({3}, std::vector<float>{10, 20, 30}));
  EXPECT_EQ(interpreter.run(y), Tensor({2, 3}, std::vector<float>{19, 32, 45, 29, 46, 63}));
}

TEST(DenseLayer, TakesAnyRank) {
  Graph graph;
  Tower tower(graph);
  const VariableScope shared(graph, "shared", VariableReuse::kCreateOrGet);
  const Output rows = iota(graph, {6, 4});
  const auto layer = [&](Output x) { return dense(tower, "fc", x, {.units = 5}); };
  const Output y = layer(rows), z = layer(reshape(rows, {1, 3, 2, 4}));
  const Output v = layer(iota(graph, {4}, 8));
  EXPECT_EQ(z.shape(), (Shape{1, 3, 2, 5}));
  EXPECT_EQ(v.shape(), (Shape{5}));
  EXPECT_THAT(names_of(tower.variables()), ElementsAre("shared/fc/W", "shared/fc/b"));
  Interpreter interpreter;
  EXPECT_EQ(interpreter.run(reshape(z, {6, 5})), interpreter.run(y));
  EXPECT_EQ(interpreter.run(reshape(v, {1, 5})), interpreter.run(slice(y, {2, 0}, {1, 5})));
}

TEST(DenseLayer, CanDoWithoutABias) {
  Graph graph;
  Tower tower(graph);
  dense(tower, "fc", iota(graph, {2, 2}), {.units = 3, .bias = false});
  EXPECT_THAT(names_of(tower.variables()), ElementsAre("fc/W"));
}

TEST(DenseLayer, TakesTheTypeOfItsInput) {
  Graph graph;
  Tower tower(graph);
  const Output x = placeholder(graph, "x", DType::kF64, {kUnknownSize, 4});
  const Output y = dense(tower, "fc", x, {.units = 3});
  EXPECT_EQ(y.type(), (TensorType{{kUnknownSize, 3}, DType::kF64}));
  EXPECT_EQ(tower.variables()[1].dtype(), DType::kF64);
}

TEST(Layers, NameTheLineThatCalledThem) {
  Graph graph;
  Tower tower(graph);
  const std::size_t before = graph.size();
  const Output x = iota(graph, {2, 4});
  const unsigned line = __LINE__ + 1;
  dense(tower, "fc", x, {.units = 3});
  for (std::size_t id = before; id < graph.size(); ++id) {
    if (&graph.node(id) == &x.node()) continue;
    EXPECT_EQ(graph.node(id).origin().site.line, line) << graph.node(id).describe();
  }
}

TEST(Layers, OpenAScopeOfTheirName) {
  Graph graph;
  replicate(graph, cpus(2), VariablePolicy::kReplicated, [&](Tower& tower) {
    const Output y = dense(tower, "head/fc", iota(graph, {2, 4}), {.units = 3});
    EXPECT_TRUE(y.name().starts_with(cat("tower", tower.index(), "/head/fc/"))) << y.name();
  });
}

TEST(Layers, RefuseASecondLayerOfTheSameNameNamingBothLines) {
  Graph graph;
  Tower tower(graph);
  const Output x = iota(graph, {2, 4});
  const unsigned line = __LINE__ + 1;
  dense(tower, "fc", x, {.units = 4});
  const std::string message = message_of([&] { dense(tower, "fc", x, {.units = 4}); });
  EXPECT_THAT(message, AllOf(HasSubstr("'fc/W'"), HasSubstr(cat("layers_test.cc:", line)),
                             HasSubstr(cat("layers_test.cc:", line + 1))));
}

TEST(Layers, ShareVariablesWhereTheScopeSaysSo) {
  Graph graph;
  Tower tower(graph);
  const Output x = iota(graph, {2, 4});
  for (int call = 0; call < 2; ++call) {
    VariableScope scope(graph, "disc", VariableReuse::kCreateOrGet);
    batch_norm(tower, "bn", dense(tower, "fc", x, {.units = 4}));
  }
  EXPECT_THAT(names_of(tower.variables()),
              ElementsAre("disc/fc/W", "disc/fc/b", "disc/bn/gamma", "disc/bn/beta",
                          "disc/bn/mean/EMA", "disc/bn/variance/EMA"));
}

TEST(Layers, RefuseWrongInputs) {
  Graph graph;
  Tower tower(graph);
  const Output image = iota(graph, {1, 4, 4, 3}), row = iota(graph, {2, 4});
  const Output open = placeholder(graph, "open", DType::kF32, {kUnknownSize, kUnknownSize, 3});
  EXPECT_THAT(message_of([&] { dense(tower, "fc", open, {.units = 4}); }),
              AllOf(HasSubstr("dense layer 'fc' (built at layers_test.cc:"),
                    HasSubstr("at most one dimension of f32[?,?,3] may be unknown")));
  EXPECT_THAT(message_of([&] { dense(tower, "fc", constant(graph, 1.0), {.units = 4}); }),
              HasSubstr("takes vectors of features, not f32[]"));
  EXPECT_THAT(message_of([&] { conv2d(tower, "conv", row, {.filters = 4}); }),
              HasSubstr("conv2d layer 'conv'"));
  EXPECT_THAT(message_of([&] { dense(tower, "", row, {.units = 4}); }), HasSubstr("needs a name"));
  EXPECT_THAT(message_of([&] { dense(tower, "fc", row, {}); }), HasSubstr("at least 1 unit"));
  EXPECT_THAT(message_of([&] { conv2d(tower, "conv", image, {}); }), HasSubstr("needs filters"));
  EXPECT_THAT(
      message_of([&] { conv2d(tower, "conv", image, {.filters = 4, .groups = 2}); }),
      AllOf(HasSubstr("conv2d layer 'conv' (built at layers_test.cc:"),
            HasSubstr("groups must divide the 3 channels of x and the 4 filters, which 2")));
  EXPECT_THAT(
      message_of([&] { conv2d_transpose(tower, "up", image, {.filters = 4, .groups = 3}); }),
      HasSubstr("conv2d_transpose layer 'up'"));
  EXPECT_THAT(message_of([&] { conv2d(tower, "conv", image, {.filters = 3, .groups = 0}); }),
              HasSubstr("which 0 does not"));
  EXPECT_THAT(message_of([&] { layer_norm(tower, "ln", row, {.epsilon = -1}); }),
              HasSubstr("epsilon must not be negative"));
  EXPECT_THAT(
      message_of([&] {
        dense(tower, "fc", placeholder(graph, "x", DType::kF32, {2, kUnknownSize}), {.units = 4});
      }),
      HasSubstr("must be known"));
}

TEST(LayerNormLayer, ScalesAndShiftsEachRow) {
  Graph graph;
  Tower tower(graph);
  const Output x = constant(graph, Tensor({2, 2}, std::vector<float>{1, 3, 12, 8}));
  const Output y = layer_norm(tower, "ln", x, {.epsilon = 0, .gamma = init::constant(3)});
  EXPECT_THAT(names_of(tower.variables()), ElementsAre("ln/gamma", "ln/beta"));
  Interpreter interpreter;
  interpreter.write(tower.variables()[1], Tensor({2}, std::vector<float>{0, 10}));
  EXPECT_EQ(interpreter.run(y), Tensor({2, 2}, std::vector<float>{-3, 13, 3, 7}));
}

TEST(RmsNormLayer, ScalesEachRow) {
  Graph graph;
  Tower tower(graph);
  const Output x = constant(graph, Tensor({2, 2}, std::vector<float>{-2, 2, 4, 4}));
  const Output y = rms_norm(tower, "norm", x, {.epsilon = 0});
  EXPECT_THAT(names_of(tower.variables()), ElementsAre("norm/gamma"));
  EXPECT_EQ(evaluate(y), Tensor({2, 2}, std::vector<float>{-1, 1, 1, 1}));
}

TEST(Layers, OfRowNormsComputeInF32ForShortTypes) {
  Graph graph;
  Tower tower(graph);
  const Output x = placeholder(graph, "x", DType::kBF16, {kUnknownSize, 4});
  const Output y = rms_norm(tower, "rms", layer_norm(tower, "ln", x));
  EXPECT_EQ(y.type(), (TensorType{{kUnknownSize, 4}, DType::kBF16}));
  for (const Variable v : tower.variables()) EXPECT_EQ(v.dtype(), DType::kF32) << v.name();
}

TEST(EmbeddingLayer, TakesTheRowsThatIdsName) {
  Graph graph;
  Tower tower(graph);
  const Tensor table({3, 2}, std::vector<float>{1, 2, 3, 4, 5, 6});
  const Output ids = constant(graph, Tensor({2, 2}, std::vector<std::int32_t>{2, 0, 0, 1}));
  const Output y =
      embedding(tower, "words", ids, {.rows = 3, .width = 2, .init = init::value(table)});
  EXPECT_THAT(names_of(tower.variables()), ElementsAre("words/table"));
  EXPECT_EQ(evaluate(y), Tensor({2, 2, 2}, std::vector<float>{5, 6, 1, 2, 1, 2, 3, 4}));
}

TEST(EmbeddingLayer, StartsAsNormalWithASmallDeviation) {
  Graph graph;
  Tower tower(graph);
  embedding(tower, "words", placeholder(graph, "ids", DType::kI32, {kUnknownSize}),
            {.rows = 100, .width = 64});
  double squares = 0;
  const Tensor w = evaluate(tower.variables()[0]);
  for (const float x : w.data<float>()) squares += x * x;
  EXPECT_NEAR(std::sqrt(squares / 6400), 0.02, 0.001);
}

TEST(EmbeddingLayer, GivesTheTypeThatIsAskedFor) {
  Graph graph;
  Tower tower(graph);
  const Output ids = placeholder(graph, "ids", DType::kI64, {kUnknownSize});
  const Output half = embedding(tower, "half", ids, {.rows = 3, .width = 2, .dtype = DType::kF16});
  EXPECT_EQ(half.type(), (TensorType{{kUnknownSize, 2}, DType::kF16}));
  EXPECT_EQ(embedding(tower, "wide", ids, {.rows = 3, .width = 2, .dtype = DType::kF64}).dtype(),
            DType::kF64);
  EXPECT_EQ(tower.variables()[0].dtype(), DType::kF32);
  EXPECT_EQ(tower.variables()[1].dtype(), DType::kF64);
}

TEST(EmbeddingLayer, RefusesToBeWithoutRows) {
  Graph graph;
  Tower tower(graph);
  const Output ids = placeholder(graph, "ids", DType::kI32, {kUnknownSize});
  EXPECT_THAT(message_of([&] { embedding(tower, "words", ids, {.width = 8}); }),
              AllOf(HasSubstr("embedding layer 'words' (built at layers_test.cc:"),
                    HasSubstr("not 0 and 8")));
}

TEST(DropoutLayer, ActsInTrainingOnly) {
  Graph graph;
  const Output x = iota(graph, {100}, 1);
  {
    Tower tower(graph, "train");
    const Tensor dropped = evaluate(dropout(tower, x, 0.5));
    int zeros = 0;
    for (const float y : dropped.data<float>()) zeros += y == 0 ? 1 : 0;
    EXPECT_GT(zeros, 20);
    EXPECT_LT(zeros, 80);
    EXPECT_EQ(dropout(tower, x, 0), x);
  }
  Tower tower(graph, "predict", false);
  EXPECT_EQ(dropout(tower, x, 0.5), x);
}

// The noise of 8 samples: for each sample normal numbers [2,2], and uniform ones.
std::vector<float> noise_of_samples(int devices, int shards) {
  Graph graph;
  std::vector<Fetch> fetches;
  const std::vector<TowerRecord> towers =
      replicate(graph, cpus(devices), VariablePolicy::kReplicated, [&](Tower& tower) {
        const Output x = placeholder(tower.graph(), "x", DType::kI32, {kUnknownSize});
        fetches.emplace_back(random_normal(tower, x, {2, 2}));
        fetches.emplace_back(cast(random_uniform(tower, x, {4}, 2, 3, DType::kF16), DType::kF32));
      });
  const std::int64_t rows = 8 / devices;
  std::vector<FeedType> feeds;
  for (int d = 0; d < devices; ++d)
    feeds.push_back({towers[static_cast<std::size_t>(d)].inputs[0], {rows}, d * rows});
  Session session(graph, {.device_count = {{"CPU", devices}}, .shards_per_device = shards});
  CompiledStep& step = session.prepare(fetches, feeds);
  step.run(std::vector(static_cast<std::size_t>(devices), Tensor({rows}, DType::kI32)));
  std::vector<float> all;
  for (const std::size_t op : {0, 1})
    for (std::size_t d = 0; d < static_cast<std::size_t>(devices); ++d) {
      const std::span<const float> some = step.fetched(2 * d + op).data<float>();
      all.insert(all.end(), some.begin(), some.end());
    }
  return all;
}

TEST(NoiseOfSamples, IsThatOfTheRowsOfAllTowers) {
  const std::vector<float> one = noise_of_samples(1, 1);
  ASSERT_EQ(one.size(), 64U);
  EXPECT_EQ(std::set(one.begin(), one.begin() + 32).size(), 32U) << "rows differ";
  for (std::size_t i = 32; i < 64; ++i) EXPECT_TRUE(one[i] >= 2 && one[i] <= 3) << one[i];
  for (const auto& [devices, shards] : {std::pair(1, 8), {2, 1}, {2, 4}, {4, 2}, {8, 1}})
    EXPECT_EQ(noise_of_samples(devices, shards), one) << devices << " devices, " << shards;
}

TEST(NoiseOfSamples, DiffersByCallAndInTrainingByStep) {
  Graph graph;
  const Output x = iota(graph, {50, 3});
  const auto draw = [&](bool training, const char* name) {
    Tower tower(graph, "", training);
    return random_normal(tower, x, {7}, 1, DType::kF32, name);
  };
  const auto at = [](Output noise, std::uint64_t step) {
    return evaluate(noise, {}, {.step = step});
  };
  const Output noise = draw(true, "noise"), tested = draw(false, "tested");
  EXPECT_EQ(noise.shape(), (Shape{50, 7}));
  EXPECT_NE(at(draw(true, "other"), 1), at(noise, 1));
  EXPECT_NE(at(noise, 2), at(noise, 1));
  EXPECT_EQ(at(tested, 2), at(tested, 1));
  EXPECT_NE(at(tested, 1), at(noise, 1));
}

TEST(NoiseOfSamples, IsDistributedAsItsNameSays) {
  Graph graph;
  Tower tower(graph);
  const Tensor sample = evaluate(random_normal(tower, iota(graph, {1000}), {100}, 2, DType::kF64));
  double sum = 0, squares = 0;
  for (const double z : doubles(sample)) sum += z, squares += z * z;
  EXPECT_NEAR(sum / 1e5, 0, 5 * 2 / std::sqrt(1e5));
  EXPECT_NEAR(squares / 1e5, 4, 0.08);
}

TEST(NoiseOfSamples, KeepsTheContractOfOpsAndStopsGradients) {
  const auto noise = [](Inputs x) {
    Tower tower(x[0].graph());
    return random_normal(tower, x[0], {3}, 2, x[0].dtype(), "noise");
  };
  const auto numbers = [](Inputs x) {
    Tower tower(x[0].graph());
    return random_uniform(tower, x[0], {}, -1, 1, x[0].dtype(), "noise");
  };
  for (const Builder& build : {Builder(noise), Builder(numbers)})
    check_op({.build = build, .inputs = {random_values({7, 5})}, .gradient = -1, .nan = false});
  Graph graph;
  Tower tower(graph);
  const Output x = iota(graph, {4, 2}), drawn = random_normal(tower, x, {2});
  EXPECT_EQ(evaluate(gradients(x * drawn, {x})[0]), evaluate(drawn));
  EXPECT_FALSE(gradients(drawn, {x})[0]);
}

TEST(NoiseOfSamples, RefusesAScalar) {
  Graph graph;
  Tower tower(graph);
  EXPECT_THAT(message_of([&] { random_normal(tower, constant(graph, 1, DType::kF32), {2}); }),
              HasSubstr("needs a batch of samples, not a scalar"));
}

}  // namespace layers_test
}  // namespace belfry
