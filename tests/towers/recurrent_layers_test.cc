#include "belfry/towers/recurrent_layers.h"

#include <cmath>
#include <memory>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/framework/core_ops/constant.h"
#include "belfry/framework/core_ops/initializers.h"
#include "belfry/framework/core_ops/placeholder.h"
#include "belfry/framework/gradients/gradients.h"
#include "belfry/framework/graph/scopes.h"
#include "belfry/ops/operand.h"
#include "belfry/ops/recurrent/whole_recurrence.h"
#include "belfry/ops/reduce.h"
#include "belfry/tests/support/interpreter.h"
#include "belfry/tests/support/op_test.h"
#include "belfry/tests/towers/towers_test_support.h"

namespace belfry {
namespace recurrent_layers_test {

using testing::ElementsAre;
using testing::HasSubstr;

// sin(0.7 i + k) for element i, times `size`.
Tensor pattern(const Shape& shape, int k, double size = 1) {
  std::vector<double> values;
  for (std::int64_t i = 0; i < shape.elements(); ++i)
    values.push_back(size * std::sin(0.7 * static_cast<double>(i) + k));
  return Tensor(shape, std::move(values));
}

// Half of pattern 1, 2, ... for the first, second, ... variable.
Initializer patterns() {
  return [made = std::make_shared<int>(0)](Graph& graph, const Shape& shape, DType) {
    return constant(graph, pattern(shape, ++*made, 0.5));
  };
}

using Layer = RecurrentOutputs (*)(Tower&, std::string_view, Output, RecurrentLayer, At);

struct Expected {
  double loss;
  std::vector<double> y;          // of row 1, which has two times
  double x;                       // the gradient times pattern 7, summed
  std::vector<double> variables;  // the same by pattern 9
};

// Two layers, both directions, lengths 4 and 2, and first states: torch.nn.LSTM and torch.nn.GRU of
// PyTorch 2 in f64, with packed sequences.
void expect_values(Layer layer, bool has_c, const Expected& expected) {
  Graph graph;
  Tower tower(graph);
  const Output x = constant(graph, pattern({2, 4, 2}, 0));
  RecurrentLayer options{.hidden = 3, .layers = 2, .bidirectional = true, .init = patterns()};
  options.lengths = constant(graph, Tensor({2}, std::vector<std::int32_t>{4, 2}));
  for (int s = 0; s < 4; ++s) {
    options.h.push_back(constant(graph, pattern({2, 3}, 30 + s)));
    if (has_c) options.c.push_back(constant(graph, pattern({2, 3}, 40 + s)));
  }
  const RecurrentOutputs found = layer(tower, "rnn", x, options, {});
  const auto weighed = [&](Output value, int k) {
    return reduce_sum(value * constant(graph, pattern(value.shape(), k)));
  };
  Output loss = weighed(found.y, 5);
  for (int s = 0; s < 4; ++s) loss = loss + 0.5 * weighed(found.h[static_cast<std::size_t>(s)], s);
  for (const Output& c : found.c) loss = loss + 0.25 * reduce_sum(c);
  EXPECT_EQ(found.c.size(), has_c ? 4 : 0);
  EXPECT_NEAR(doubles(evaluate(loss))[0], expected.loss, 1e-13);
  const std::vector<double> y = doubles(evaluate(found.y));
  for (std::size_t i = 0; i < 12; ++i) EXPECT_NEAR(y[24 + i], expected.y[i], 1e-13) << i;
  for (std::size_t i = 36; i < 48; ++i) EXPECT_EQ(y[i], 0);
  std::vector<Output> wanted{x};
  for (const Variable& v : tower.variables()) wanted.push_back(v);
  const std::vector<Output> grads = gradients(loss, wanted);
  EXPECT_NEAR(doubles(evaluate(weighed(grads[0], 7)))[0], expected.x, 1e-13);
  ASSERT_EQ(grads.size(), 17);
  for (std::size_t i = 1; i < grads.size(); ++i)
    EXPECT_NEAR(doubles(evaluate(weighed(grads[i], 9)))[0], expected.variables[i - 1], 1e-13)
        << tower.variables()[i - 1].name();
}

TEST(LstmLayer, HasTheValuesAndGradientsOfPyTorch) {
  expect_values(
      lstm, true,
      {.loss = -0.610403815977487,
       .y = {0.0290449572375578, 0.124428590705201, 0.133780161505123, 0.198666987523409,
             0.200978155660963, 0.145735663810971, 0.0239197065168537, 0.0328737622697155,
             -0.0394720060122217, 0.269292472045678, 0.249526221982271, 0.160741156215045},
       .x = -0.340514451585707,
       .variables = {-0.0391072298769068, 1.00763188136113, 0.0295568967279808, 1.00763188136113,
                     -0.0519252059106638, 1.37266967632097, -0.0729364046007185, 1.37266967632097,
                     -0.133874444907648, 1.26932514330673, 0.20274293796416, 1.26932514330673,
                     -0.000422789567432431, 0.705052955030053, 0.116715074094837,
                     0.705052955030053}});
}

TEST(GruLayer, HasTheValuesAndGradientsOfPyTorch) {
  expect_values(
      gru, false,
      {.loss = 2.85672720400353,
       .y = {0.639765926159044, 0.422107198788222, -0.114142408619507, -0.655718769379751,
             -0.865914530994368, -0.600372557479096, 0.726481362467001, 0.583289352096581,
             0.0811890938999434, -0.591582446016753, -0.895830317215246, -0.70966334901225},
       .x = -0.396230570114317,
       .variables = {1.99259513936249, 1.31816732771049, 0.181848715993411, 0.756623738087912,
                     1.35374754012555, -0.0281907451962366, -0.508420375586142, -0.164965576125383,
                     -0.280497348359581, 0.207883180812632, 0.183712756441668, 0.0177376846319205,
                     -0.279704309847806, -0.123978535510645, 1.25959976215625,
                     -0.142011875401654}});
}

TEST(LstmLayer, NamesItsVariables) {
  Graph graph;
  Tower tower(graph);
  const Output x = placeholder(graph, "x", DType::kF32, {kUnknownSize, 5, 4});
  const RecurrentOutputs found = lstm(tower, "rnn", x, {.hidden = 3, .layers = 2});
  EXPECT_EQ(found.y.shape(), (Shape{kUnknownSize, 5, 3}));
  EXPECT_EQ(found.h.size(), 2);
  EXPECT_EQ(found.c[1].shape(), (Shape{kUnknownSize, 3}));
  const std::vector<Variable> variables = tower.variables();
  EXPECT_THAT(names_of(variables),
              ElementsAre("rnn/layer0/input/W", "rnn/layer0/input/b", "rnn/layer0/hidden/W",
                          "rnn/layer0/hidden/b", "rnn/layer1/input/W", "rnn/layer1/input/b",
                          "rnn/layer1/hidden/W", "rnn/layer1/hidden/b"));
  EXPECT_EQ(variables[0].shape(), (Shape{4, 12}));
  EXPECT_EQ(variables[4].shape(), (Shape{3, 12}));
  EXPECT_EQ(variables[6].shape(), (Shape{3, 12}));
  EXPECT_EQ(variables[7].shape(), (Shape{12}));
  // Uniform in +-1 / sqrt(3), as PyTorch's are.
  double largest = 0;
  for (const double value : doubles(evaluate(variables[0])))
    largest = std::max(largest, std::abs(value));
  EXPECT_LE(largest, 1 / std::sqrt(3.0));
  EXPECT_GE(largest, 0.9 / std::sqrt(3.0));
}

TEST(GruLayer, OfBothDirectionsWithoutBiasNamesItsVariables) {
  Graph graph;
  Tower tower(graph);
  const Output x = placeholder(graph, "x", DType::kF64, {2, 5, 4});
  const RecurrentOutputs found =
      gru(tower, "rnn", x, {.hidden = 3, .bidirectional = true, .bias = false, .trainable = false});
  EXPECT_EQ(found.y.type(), (TensorType{{2, 5, 6}, DType::kF64}));
  const std::vector<Variable> variables = tower.variables();
  EXPECT_THAT(names_of(variables),
              ElementsAre("rnn/layer0/input/W", "rnn/layer0/hidden/W", "rnn/layer0/reverse/input/W",
                          "rnn/layer0/reverse/hidden/W"));
  EXPECT_EQ(variables[0].shape(), (Shape{4, 9}));
  EXPECT_EQ(variables[0].dtype(), DType::kF64);
  EXPECT_FALSE(variables[0].trainable());
}

TEST(LstmLayer, Of16BitsHasVariablesOfF32) {
  Graph graph;
  Tower tower(graph);
  const Output x = placeholder(graph, "x", DType::kBF16, {2, 5, 4});
  EXPECT_EQ(lstm(tower, "rnn", x, {.hidden = 3}).y.dtype(), DType::kBF16);
  EXPECT_EQ(tower.variables()[0].dtype(), DType::kF32);
}

TEST(LstmLayer, DropsWhatAllLayersButTheLastReturnInTraining) {
  const auto dropouts = [](bool training, int layers) {
    Graph graph;
    Tower tower(graph, {}, training);
    const Output x = placeholder(graph, "x", DType::kF32, {2, 5, 4});
    lstm(tower, "rnn", x, {.hidden = 3, .layers = layers, .dropout = 0.5});
    int count = 0;
    for (std::size_t id = 0; id < graph.size(); ++id)
      count += graph.node(id).op().name == std::string("Dropout");
    return count;
  };
  EXPECT_EQ(dropouts(true, 1), 0);
  EXPECT_EQ(dropouts(true, 3), 2);
  EXPECT_EQ(dropouts(false, 3), 0);
}

TEST(RecurrentLayers, LeaveEachDirectionOfEachLayerToCudnnOnAGpu) {
  const auto whole = [](const char* device, Layer layer, const Op& op) {
    Graph graph;
    const DeviceScope on(graph, device);
    Tower tower(graph);
    const Output x = placeholder(graph, "x", DType::kF32, {2, 5, 4});
    layer(tower, "rnn", x, {.hidden = 3, .layers = 2, .bidirectional = true, .cudnn = true}, {});
    int count = 0;
    for (std::size_t id = 0; id < graph.size(); ++id) count += &graph.node(id).op() == &op;
    return count;
  };
  EXPECT_EQ(whole("/gpu:0", lstm, kWholeLstm), 4);
  EXPECT_EQ(whole("/gpu:0", gru, kWholeGru), 4);
  EXPECT_EQ(whole("/cpu:0", lstm, kWholeLstm), 0);
}

TEST(RecurrentLayers, RefuseWhatDoesNotFit) {
  Graph graph;
  Tower tower(graph);
  const Output x = placeholder(graph, "x", DType::kF32, {2, 5, 4});
  const auto refusal = [&](Layer layer, Output from, const RecurrentLayer& options) {
    try {
      layer(tower, "rnn", from, options, {});
    } catch (const InvalidArgument& error) {
      return std::string(error.what());
    }
    return std::string("nothing thrown");
  };
  EXPECT_THAT(refusal(lstm, placeholder(graph, "flat", DType::kF32, {2, 4}), {.hidden = 3}),
              HasSubstr("lstm layer 'rnn' (built at"));
  EXPECT_THAT(refusal(lstm, placeholder(graph, "flat", DType::kF32, {2, 4}), {.hidden = 3}),
              HasSubstr("takes a tensor of rank 3, not f32[2,4]"));
  EXPECT_THAT(
      refusal(gru, placeholder(graph, "any", DType::kF32, {2, kUnknownSize, 4}), {.hidden = 3}),
      HasSubstr("must be known"));
  EXPECT_THAT(refusal(gru, x, {}), HasSubstr("hidden units and layers of at least 1, not 0 and 1"));
  EXPECT_THAT(refusal(gru, x, {.hidden = 3, .dropout = 1}),
              HasSubstr("dropout must be in [0, 1), not 1"));
  EXPECT_THAT(refusal(lstm, x, {.hidden = 3, .bidirectional = true, .h = {x}}),
              HasSubstr("needs 2 first states h, one per layer and direction, or none, not 1"));
  EXPECT_THAT(refusal(lstm, x, {.hidden = 3, .layers = 3, .c = {x}}),
              HasSubstr("needs 3 first states c, one per layer and direction, or none, not 1"));
  EXPECT_THAT(refusal(gru, x, {.hidden = 3, .c = {x}}), HasSubstr("has no first states c, only h"));
  EXPECT_THROW(lstm(tower, "", x, {.hidden = 3}), InvalidArgument);
}

}  // namespace recurrent_layers_test
}  // namespace belfry
