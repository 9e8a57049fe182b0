#include "belfry/framework/gradients/gradients.h"

#include "belfry/framework/core_ops/add_n.h"
#include "belfry/framework/core_ops/assign.h"
#include "belfry/framework/core_ops/constant.h"
#include "belfry/framework/core_ops/fill.h"
#include "belfry/framework/core_ops/identity.h"
#include "belfry/framework/core_ops/initializers.h"
#include "belfry/framework/core_ops/placeholder.h"
#include "belfry/framework/graph/describe_with_forward.h"
#include "belfry/framework/graph/scopes.h"
#include "belfry/ops/arithmetic.h"
#include "belfry/ops/relu.h"
#include "belfry/ops/split.h"
#include "belfry/ops/square.h"
#include "belfry/ops/stop_gradient.h"
#include "belfry/tests/framework/framework_test_support.h"

namespace belfry {
namespace gradients_test {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

KernelRun does_nothing(KernelPlan&) {
  return [](const KernelPointers&) {};
}
std::vector<Output> wrong_shape(const Node& node, std::span<const Output>) {
  return {fill(node.graph(), {5}, 1)};
}
std::vector<Output> too_many(const Node&, std::span<const Output> grads) {
  return {grads[0], grads[0]};
}

OutputTypes twice(const ShapeContext& c) { return {c.type(0), c.type(0)}; }
KernelRun copies_twice(KernelPlan& plan) {
  const auto count = plan.input(0).shape.elements();
  return [count](const KernelPointers& p) {
    for (std::size_t i = 0; i < 2; ++i) std::copy_n(p.input<float>(0), count, p.output<float>(i));
  };
}
// Needs both gradients.
std::vector<Output> weighted_sum(const Node&, std::span<const Output> grads) {
  return {add(grads[0], mul(grads[1], fill(grads[1].graph(), grads[1].shape(), 10)))};
}
// Adds the gradients of outputs that have one.
std::vector<Output> present_sum(const Node&, std::span<const Output> grads) {
  std::vector<Output> present;
  for (const Output& grad : grads)
    if (grad) present.push_back(grad);
  return {add_n(present)};
}

const Op kTwiceTest{.name = "TwiceTest",
                    .inputs = 1,
                    .shape = twice,
                    .gradient = weighted_sum,
                    .reference = copies_twice};
const Op kTwicePresentTest{.name = "TwicePresentTest",
                           .inputs = 1,
                           .shape = twice,
                           .gradient = present_sum,
                           .missing_grads = true,
                           .reference = copies_twice};
const Op kNoGradientTest{.name = "NoGradientTest",
                         .inputs = 1,
                         .shape = same_as_input,
                         .no_gradient = "it is for tests",
                         .reference = does_nothing};
const Op kWrongGradientTest{.name = "WrongGradientTest",
                            .inputs = 1,
                            .shape = same_as_input,
                            .gradient = wrong_shape,
                            .reference = does_nothing};
const Op kTooManyGradientsTest{.name = "TooManyGradientsTest",
                               .inputs = 1,
                               .shape = same_as_input,
                               .gradient = too_many,
                               .reference = does_nothing};

Output times(Output value, double factor) {
  return mul(value, fill(value.graph(), value.shape(), factor));
}

Tensor value_of(const Output& output) { return Session(output.graph()).run(output); }

class GradientsTest : public ::testing::Test {
 protected:
  Output make(const char* name, std::vector<float> values) {
    return constant(graph, floats(values), name);
  }
  Graph graph;
  Output x = make("x", {1, -2, 3}), z = make("z", {5, 7, 11});
};

TEST_F(GradientsTest, FollowTheChainRule) {
  // d sum((3 x)^2) / dx = 18 x
  const auto g = gradients(square(times(x, 3)), {x});
  EXPECT_EQ(value_of(g[0]), floats({18, -36, 54}));
}

TEST_F(GradientsTest, OfAValueWithRespectToItselfAreOnes) {
  EXPECT_EQ(value_of(gradients(x, {x})[0]), floats({1, 1, 1}));
}

TEST_F(GradientsTest, WithRespectToInnerValuesAndInputsAtOnce) {
  const Output h = times(x, 2);
  const auto g = gradients(square(h), {h, x});
  EXPECT_EQ(value_of(g[0]), floats({4, -8, 12}));
  EXPECT_EQ(value_of(g[1]), floats({8, -16, 24}));
}

TEST_F(GradientsTest, OfSeveralUsesAreAddedInOrderOfTheConsumers) {
  const Output a = times(x, 2), b = times(x, 3), c = times(x, 4);
  const auto g = gradients(add_n({c, a, b}), {x});
  EXPECT_STREQ(g[0].node().op().name, "AddN");
  std::vector<std::string> forwards;
  for (const Output& part : g[0].node().inputs())
    forwards.emplace_back(part.node().origin().forward->name());
  EXPECT_THAT(forwards, ElementsAre(a.name(), b.name(), c.name()));
  EXPECT_EQ(value_of(g[0]), floats({9, 9, 9}));
}

TEST_F(GradientsTest, OfOneNodeThatUsesAValueTwiceCountBoth) {
  const auto g = gradients(mul(x, x), {x});
  EXPECT_EQ(value_of(g[0]), floats({2, -4, 6}));
}

TEST_F(GradientsTest, StopAtWhatIsTreatedAsConstant) {
  const Output h = times(x, 2);
  const Output y = add(square(h), x);
  EXPECT_EQ(value_of(gradients(y, {x}, {.stop = {h}})[0]), floats({1, 1, 1}));
  EXPECT_FALSE(gradients(square(h), {x}, {.stop = {h}})[0]);
  EXPECT_FALSE(gradients(stop_gradient(h), {x})[0]);
}

TEST_F(GradientsTest, StartFromTheGivenInitialGradient) {
  const auto g = gradients(times(x, 2), {x}, {.initial = {z}});
  EXPECT_EQ(value_of(g[0]), floats({10, 14, 22}));
  EXPECT_THAT(message_of<InvalidArgument>(
                  [&] { gradients(times(x, 2), {x}, {.initial = {constant(graph, 1)}}); }),
              AllOf(HasSubstr("initial gradient is f32[], but should be f32[3]")));
}

TEST_F(GradientsTest, AreEmptyWithoutAPath) {
  const auto g = gradients(square(x), {z, x});
  EXPECT_FALSE(g[0]);
  EXPECT_TRUE(g[1]);
  const Output later = square(x);
  EXPECT_FALSE(gradients(x, {later})[0]);
}

TEST_F(GradientsTest, OutputsWithoutGradientDoNotMatter) {
  const auto parts = split(x, 3, 0);
  const auto g = gradients(square(parts[1]), {x, parts[0], parts[1]});
  EXPECT_EQ(value_of(g[0]), floats({0, -4, 0}));
  EXPECT_FALSE(g[1]);
  EXPECT_EQ(value_of(g[2]), floats({-4}));
}

TEST_F(GradientsTest, OutputsWithoutGradientCountAsZerosForOpsThatNeedThem) {
  Node& node = graph.add(kTwiceTest, {x});
  EXPECT_EQ(value_of(gradients(node.output(0), {x})[0]), floats({1, 1, 1}));
  EXPECT_EQ(value_of(gradients(node.output(1), {x})[0]), floats({10, 10, 10}));
  Node& other = graph.add(kTwicePresentTest, {x});
  const std::size_t before = graph.size();
  EXPECT_EQ(value_of(gradients(other.output(1), {x})[0]), floats({1, 1, 1}));
  for (std::size_t id = before; id < graph.size(); ++id)
    EXPECT_EQ(graph.node(id).name().find("zeros"), std::string_view::npos);
}

TEST_F(GradientsTest, OfSeveralValuesAddUp) {
  const Output h = times(x, 2), ys[] = {square(h), h, z};
  const Output xs[] = {x, h, z};
  const auto g = gradients(ys, xs);
  EXPECT_EQ(value_of(g[0]), floats({10, -14, 26}));  // 8 x + 2
  EXPECT_EQ(value_of(g[1]), floats({5, -7, 13}));    // 2 h + 1
  EXPECT_EQ(value_of(g[2]), floats({1, 1, 1}));
  const auto weighted = gradients(ys, xs, {.initial = {Output(), z}});
  EXPECT_EQ(value_of(weighted[1]), floats({4 + 5, -8 + 7, 12 + 11}));
  EXPECT_THAT(message_of<InvalidArgument>([&] {
                gradients(h, {x}, {.initial = {z, z}});
              }),
              HasSubstr("2 initial gradients, but 1 tensors"));
}

// The example of TensorFlow's documentation.
TEST_F(GradientsTest, OfWhatStopsArePartialDerivatives) {
  const Output a = constant(graph, 0), b = mul(constant(graph, 2), a);
  const auto total = gradients(add(a, b), {a, b});
  EXPECT_EQ(value_of(total[0]).item<float>(), 3);
  EXPECT_EQ(value_of(total[1]).item<float>(), 1);
  const auto partial = gradients(add(a, b), {a, b}, {.stop = {a, b}});
  EXPECT_EQ(value_of(partial[0]).item<float>(), 1);
  EXPECT_EQ(value_of(partial[1]).item<float>(), 1);
}

TEST_F(GradientsTest, AreZerosWithoutAPathIfAsked) {
  const Variable v = variable(graph, "v", {2}, {.initializer = init::ones()});
  const Output n = constant(graph, 3, DType::kI32), xs[] = {z, v.ref(), n, x};
  const auto g = gradients(square(x), xs, {.unconnected = UnconnectedGradients::kZero});
  EXPECT_EQ(value_of(g[0]), floats({0, 0, 0}));
  EXPECT_EQ(value_of(g[1]), floats({0, 0}));
  EXPECT_EQ(value_of(g[2]).item<std::int32_t>(), 0);
  EXPECT_EQ(value_of(g[3]), floats({2, -4, 6}));
}

TEST_F(GradientsTest, OfNoXsAreNone) {
  EXPECT_TRUE(gradients(x, std::span<const Output>()).empty());
}

TEST_F(GradientsTest, OfGradientsExist) {
  const Output y = mul(square(x), x);  // x^3
  const auto first = gradients(y, {x});
  const auto second = gradients(first[0], {x});
  EXPECT_EQ(value_of(first[0]), floats({3, 12, 27}));
  EXPECT_EQ(value_of(second[0]), floats({6, -12, 18}));
}

TEST_F(GradientsTest, OfAnOpWithoutOneAreRefusedByName) {
  const Output y = graph.add(kNoGradientTest, {x}, "odd").output();
  EXPECT_THAT(message_of<NotFoundError>([&] { gradients(square(y), {x}); }),
              AllOf(HasSubstr("No gradient defined for operation 'odd' (op type: NoGradientTest), "
                              "built at gradients_test.cc:"),
                    HasSubstr("it is for tests"), HasSubstr("use stop_gradient")));
  EXPECT_FALSE(gradients(square(y), {z})[0]);  // not on the way
}

TEST_F(GradientsTest, ThroughAWriteAreRefused) {
  const Variable v = variable(graph, "v", {3}, {.initializer = init::zeros()});
  Node& write = assign_add(v, square(x));
  EXPECT_THAT(message_of<NotFoundError>([&] { gradients(square(write.output()), {x}); }),
              HasSubstr("it changes a variable"));
}

TEST_F(GradientsTest, OfAWrongShapeNameOpInputAndBothShapes) {
  const Output y = graph.add(kWrongGradientTest, {x}, "odd").output();
  EXPECT_THAT(message_of<InvalidArgument>([&] { gradients(y, {x}); }),
              HasSubstr("WrongGradientTest 'odd' (built at gradients_test.cc:"));
  EXPECT_THAT(message_of<InvalidArgument>([&] { gradients(y, {x}); }),
              HasSubstr("the gradient of input 0 is f32[5], but should be f32[3]"));
  const Output many = graph.add(kTooManyGradientsTest, {x}).output();
  EXPECT_THAT(message_of<InternalError>([&] { gradients(many, {x}); }),
              HasSubstr("its gradient has 2 results for 1 inputs"));
}

TEST_F(GradientsTest, OfIntegersAreRefused) {
  const Output n = constant(graph, 1, DType::kI32);
  EXPECT_THAT(message_of<InvalidArgument>([&] { gradients(n, {x}); }),
              HasSubstr("must be floating point, not i32"));
  EXPECT_THROW(gradients(Output(), {x}), InvalidArgument);
}

TEST_F(GradientsTest, RefuseEmptyTensorsAndThoseOfOtherGraphs) {
  Graph other;
  const Output far = constant(other, 1);
  EXPECT_THAT(message_of<InvalidArgument>([&] { gradients(x, {Output()}); }),
              HasSubstr("an Output of `xs` is empty"));
  EXPECT_THAT(message_of<InvalidArgument>([&] { gradients(x, {far}); }),
              HasSubstr("belongs to another graph"));
  EXPECT_THAT(message_of<InvalidArgument>([&] { gradients(x, {x}, {.stop = {far}}); }),
              HasSubstr("`stop` belongs to another graph"));
  EXPECT_THAT(message_of<InvalidArgument>([&] { gradients(x, {x}, {.initial = {far}}); }),
              HasSubstr("`initial` belongs to another graph"));
}

TEST_F(GradientsTest, ShareTheDeviceOfTheirForwardNodeIfAsked) {
  const auto device_of_gradient = [&](bool colocate) {
    Output h;
    {
      DeviceScope on(graph, "/cpu:1");
      h = relu(x);
    }
    DeviceScope elsewhere(graph, "/cpu:2");
    return gradients(square(h), {x}, {.colocate = colocate})[0].device().str();
  };
  EXPECT_EQ(device_of_gradient(true), "/device:CPU:1");
  EXPECT_EQ(device_of_gradient(false), "/device:CPU:2");
}

TEST_F(GradientsTest, RememberTheirForwardNodeAndItsLine) {
  const Output y = square(x);
  const SourceLine line = y.node().origin().site;
  const std::size_t forward_nodes = graph.size();
  const auto g = gradients(y, {x});
  EXPECT_EQ(g[0].node().origin().forward, &y.node());
  EXPECT_THAT(g[0].name(), ::testing::StartsWith("gradients/Square_grad/"));
  for (std::size_t id = forward_nodes; id < graph.size(); ++id)
    EXPECT_EQ(graph.node(id).origin().site, line) << graph.node(id).describe();
  EXPECT_EQ(describe_with_forward(g[0].node()), cat("a gradient of ", y.node().describe(), ", ",
                                                    g[0].node().op().name, " '", g[0].name(), "'"));
  EXPECT_EQ(describe_with_forward(y.node()), y.node().describe().str());
}

TEST_F(GradientsTest, LeaveTheirCallTheNewestLine) {
  const Output y = square(x);
  const unsigned line = __LINE__ + 1;
  gradients(y, {x});
  EXPECT_EQ(add(x, x, At(SourceLine())).node().origin().site.str(),
            cat("gradients_test.cc:", line, " or later"));
}

TEST_F(GradientsTest, OfVariablesAddUpOverTheirReads) {
  const Variable v = variable(graph, "v", {3}, {.initializer = init::value(floats({1, 2, 3}))});
  const Variable unused = variable(graph, "unused", {3}, {.initializer = init::zeros()});
  const Output y = add(square(v), mul(v.read(), z));
  const Variable both[] = {v, unused};
  const auto g = gradients(y, both);
  EXPECT_EQ(value_of(g[0]), floats({7, 11, 17}));
  EXPECT_FALSE(g[1]);
}

TEST_F(GradientsTest, ComputeGradientsLeavesOutWhatTheLossDoesNotDependOn) {
  const Variable v = variable(graph, "v", {}, {.initializer = init::ones()});
  const Variable unused = variable(graph, "unused", {}, {.initializer = init::ones()});
  const Output loss = square(v);
  const Variable both[] = {unused, v};
  const auto found = compute_gradients(loss, both);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].variable, v);
  EXPECT_EQ(value_of(found[0].value).item<float>(), 2);
  EXPECT_THAT(message_of<InvalidArgument>([&] { compute_gradients(loss, {}); }),
              AllOf(HasSubstr("No variables to optimize. "), HasSubstr("gradients_test.cc:")));
  EXPECT_THAT(message_of<InvalidArgument>([&] {
                compute_gradients(loss, {&unused, 1});
              }),
              AllOf(HasSubstr("No gradients provided for any variable: ['unused']. "),
                    HasSubstr("gradients_test.cc:")));
  EXPECT_THAT(message_of<InvalidArgument>([&] { compute_gradients(square(x), both); }),
              HasSubstr("must be a scalar"));
}

}  // namespace gradients_test
}  // namespace belfry
