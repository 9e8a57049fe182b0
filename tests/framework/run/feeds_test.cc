// Feeds and fetches of a session.
#include <thread>

#include "belfry/framework/base/text.h"
#include "belfry/framework/core_ops/add_n.h"
#include "belfry/framework/core_ops/assign.h"
#include "belfry/framework/core_ops/constant.h"
#include "belfry/framework/core_ops/identity.h"
#include "belfry/framework/core_ops/initializers.h"
#include "belfry/framework/core_ops/placeholder.h"
#include "belfry/framework/graph/scopes.h"
#include "belfry/framework/run/session.h"
#include "belfry/tests/framework/framework_test_support.h"

namespace belfry {
namespace feeds_test {

using ::testing::AllOf;
using ::testing::HasSubstr;

class FeedsTest : public ::testing::Test {
 protected:
  Graph graph;
  Output x = placeholder(graph, "x", DType::kF32, {kUnknownSize});
  Output y = placeholder(graph, "y", DType::kF32, {2});
  Output sum = add_n({x, y}, "sum");
  Output twice = add_n({sum, sum}, "twice");
  Session session{graph};
};

TEST_F(FeedsTest, OfTheWrongShapeOrTypeAreRefusedByName) {
  EXPECT_THAT(message_of<InvalidArgument>([&] {
                session.run({sum}, {{x, floats({1, 2})}, {y, floats({1, 2, 3})}});
              }),
              AllOf(HasSubstr("Placeholder 'y' (built at feeds_test.cc:"),
                    HasSubstr("fed with shape [3], but it has [2]")));
  EXPECT_THAT(message_of<InvalidArgument>([&] {
                session.run({sum}, {{x, floats({1, 2})}, {y, Tensor({2}, DType::kF64)}});
              }),
              HasSubstr("fed with f64[2], but the step was prepared for f32[2]"));
  // Each shape fits its placeholder, but they do not fit each other.
  EXPECT_THAT(message_of<InvalidArgument>([&] {
                session.run({sum}, {{x, floats({1})}, {y, floats({1, 2})}});
              }),
              HasSubstr("AddN 'sum'"));
}

TEST_F(FeedsTest, ThatAreMissingAreNamed) {
  EXPECT_THAT(message_of<InvalidArgument>([&] {
                session.run({sum}, {{x, floats({1, 2})}});
              }),
              HasSubstr("Placeholder 'y' (built at feeds_test.cc:"));
}

TEST_F(FeedsTest, OfAStepAreCheckedAtEachRun) {
  CompiledStep& step = session.prepare({sum}, {{x, {2}}, {y, {2}}});
  const Tensor good[] = {floats({1, 2}), floats({10, 20})};
  step.run(good);
  EXPECT_EQ(step.fetched(0), floats({11, 22}));
  EXPECT_THAT(message_of<InvalidArgument>([&] {
                step.run({good, 1});
              }),
              HasSubstr("the step takes 2 feeds, not 1"));
  const Tensor bad[] = {floats({1, 2}), floats({1})};
  EXPECT_THAT(message_of<InvalidArgument>([&] { step.run(bad); }),
              HasSubstr("fed with f32[1], but the step was prepared for f32[2]"));
  step.run(good);
  EXPECT_EQ(step.fetched(0), floats({11, 22}));
}

TEST_F(FeedsTest, AreWrittenInBracesForListsOfAnyKind) {
  const std::vector<Output> outputs{twice, sum};
  const std::vector<Fetch> fetches{twice, sum};
  EXPECT_EQ(session.run(outputs, {{sum, floats({1, 2})}}),
            session.run({twice, sum}, {{sum, floats({1, 2})}}));
  EXPECT_EQ(session.run(fetches, {{sum, floats({1, 2})}}),
            session.run({twice, sum}, {{sum, floats({1, 2})}}));
}

TEST_F(FeedsTest, OfInnerNodesReplaceWhatIsBehindThem) {
  const auto got = session.run({twice, sum}, {{sum, floats({1, 2})}});
  EXPECT_EQ(got[0], floats({2, 4}));
  EXPECT_EQ(got[1], floats({1, 2}));
}

TEST_F(FeedsTest, OfAVariablesValueLeaveTheVariableAlone) {
  const Variable v = variable(graph, "v", {2}, {.initializer = init::zeros()});
  const Output read = v;
  Node& write = assign_add(v, read);
  EXPECT_EQ(session.run({write.output()}, {{read, floats({5, 6})}})[0], floats({5, 6}));
  EXPECT_EQ(session.read(v), floats({5, 6}));
}

TEST_F(FeedsTest, AreNeverWritten) {
  // Kernels that work in place would overwrite feeds if these were in an arena.
  const Tensor ones = floats({1, 1});
  session.run({twice}, {{x, ones}, {y, ones}});
  EXPECT_EQ(ones, floats({1, 1}));
}

TEST_F(FeedsTest, EachShapeIsCompiledOnceAndKept) {
  const Output z = add_n({x, x});
  const FeedType two{x, {2}}, three{x, {3}};
  const Fetch fetch(z);
  CompiledStep* const first = &session.prepare({&fetch, 1}, {&two, 1});
  EXPECT_NE(&session.prepare({&fetch, 1}, {&three, 1}), first);
  EXPECT_EQ(&session.prepare({&fetch, 1}, {&two, 1}), first);
}

TEST(Fetches, NeverAliasMemoryOfTheSession) {
  Graph graph;
  const Variable v = variable(graph, "v", {2}, {.initializer = init::ones()});
  const Output c = constant(graph, floats({7, 7}));
  const Output x = placeholder(graph, "x", DType::kF32, {2});
  Node& write = assign_add(v, c);
  const Tensor feed = floats({3, 4});
  Session session(graph);
  const std::vector<Fetch> fetches = {v, write.output(), c, identity(c), x, identity(identity(v))};
  const FeedValue feeds[] = {{x, feed}};
  auto got = session.run(fetches, feeds);
  const std::vector<Tensor> kept = got;
  const auto again = session.run(fetches, feeds);
  for (std::size_t i = 0; i < got.size(); ++i) {
    EXPECT_EQ(got[i], kept[i]);
    for (const Tensor& other : again) EXPECT_NE(got[i].raw(), other.raw());
    std::ranges::fill(got[i].mutable_data<float>(), -1.f);
  }
  EXPECT_EQ(kept[0], floats({1, 1}));
  EXPECT_EQ(kept[1], floats({8, 8}));
  EXPECT_EQ(feed, floats({3, 4}));
  EXPECT_EQ(session.read(v), floats({15, 15}));
  EXPECT_EQ(session.run(c), floats({7, 7}));
}

TEST(Fetches, OfVariablesGiveTheValueFromBeforeTheStep) {
  Graph graph;
  const Variable v = variable(graph, "v", {1}, {.initializer = init::zeros()});
  Node& write = assign_add(v, constant(graph, floats({1})));
  Session session(graph);
  for (float i = 0; i < 3; ++i) {
    const auto got = session.run({v, write, write.output()});
    EXPECT_EQ(got[0], floats({i}));
    EXPECT_EQ(got[1].elements(), 0);
    EXPECT_EQ(got[2], floats({i + 1}));
  }
}

TEST(Session, RunsFromSeveralThreadsAtOnce) {
  Graph graph;
  const Output x = placeholder(graph, "x", DType::kF32, {kUnknownSize});
  const Variable v = variable(graph, "v", {1}, {.initializer = init::zeros()});
  Node& count = assign_add(v, constant(graph, floats({1})));
  std::vector<Output> parts;
  for (int d = 0; d < 4; ++d) {
    DeviceScope on(graph, cpu(d));
    parts.push_back(add_n({x, x}));
  }
  const Output y = add_n(parts);
  std::vector<Variable> fresh;
  for (int i = 0; i < 20; ++i) fresh.push_back(variable(graph, cat("fresh", i), {50}));
  const Output reads[] = {fresh[0], fresh[19]};  // nothing is built while threads run
  EXPECT_NE(reads[0], reads[1]);
  Session session(graph, {.device_count = {{"CPU", 4}}, .threads = 3, .all_workers = true});
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 40; ++i) {
        const auto value = static_cast<float>(100 * t + i);
        const FeedValue feed{x, Tensor({3}, std::vector<float>(3, value))};
        const Tensor got = session.run(y, {&feed, 1});
        for (const float element : got.data<float>()) wrong += element != 8 * value;
        session.run({count});
        // This compiles, and makes first values, while others run.
        session.read(fresh[static_cast<std::size_t>(i % 20)]);
        wrong += session.step() < 1;
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(session.read(v), floats({160}));
  EXPECT_EQ(session.step(), 160u);
  Session alone(graph);
  EXPECT_EQ(session.read(fresh[19]), alone.read(fresh[19]));
}

TEST(Session, TellsWhereNodesAreWithoutFeeds) {
  Graph graph;
  const Output x = placeholder(graph, "x", DType::kF32, {kUnknownSize});
  Output y;
  {
    DeviceScope on(graph, cpu(1));
    y = add_n({x, x});
  }
  Session session(graph, {.device_count = {{"CPU", 2}}});
  session.run({y}, {{x, floats({1})}});
  EXPECT_EQ(session.placement(y), cpu(1));
  EXPECT_EQ(session.placement(x), cpu(1));  // with its only consumer
  const Variable v = variable(graph, "v", {1});
  EXPECT_EQ(session.placement(v), cpu(0));
  EXPECT_EQ(session.placement(v.ref()), cpu(0));
}

TEST(Session, RefusesWhatBelongsToAnotherGraph) {
  Graph graph, other;
  const Output foreign = constant(other, 1);
  const Variable v = variable(other, "v", {1});
  Session session(graph);
  EXPECT_THAT(message_of<InvalidArgument>([&] { session.run(foreign); }),
              HasSubstr("belongs to another graph"));
  EXPECT_THAT(message_of<InvalidArgument>([&] { session.read(v); }),
              HasSubstr("belongs to another graph"));
  EXPECT_THAT(message_of<InvalidArgument>([&] { session.write(v, floats({1})); }),
              HasSubstr("belongs to another graph"));
}

TEST(Session, RefusesValuesThatAVariableCannotHold) {
  Graph graph;
  const Variable v = variable(graph, "v", {2});
  Session session(graph);
  EXPECT_THAT(message_of<InvalidArgument>([&] { session.write(v, floats({1})); }),
              HasSubstr("is f32[2], but was written with f32[1]"));
  EXPECT_THROW(session.write(v, Tensor({2}, DType::kF64)), InvalidArgument);
  EXPECT_THROW(session.read(Variable()), InvalidArgument);
}

}  // namespace feeds_test
}  // namespace belfry
