#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/framework/core_ops/add_n.h"
#include "belfry/framework/core_ops/constant.h"
#include "belfry/framework/core_ops/identity.h"
#include "belfry/framework/gradients/gradients.h"
#include "belfry/framework/run/session.h"

namespace belfry {
namespace graph_open_test {

using testing::AllOf;
using testing::HasSubstr;

template <class E = InvalidArgument, class Call>
std::string message_of(const Call& call) {
  try {
    call();
  } catch (const E& error) {
    return error.what();
  }
  return "nothing was thrown";
}

std::vector<std::string> names(const Graph& graph) {
  std::vector<std::string> result;
  for (std::size_t id = 0; id < graph.size(); ++id) {
    EXPECT_EQ(graph.node(id).id(), static_cast<int>(id));
    result.emplace_back(graph.node(id).name());
  }
  return result;
}

TEST(OpenNodes, GainInputsAndAreOrderedBehindThemWhenTheyAreClosed) {
  Graph graph;
  const Output before = constant(graph, 1, DType::kF32, "before");
  const std::size_t first = graph.size();
  const Output a = constant(graph, 10, DType::kF32, "a");
  Node& sum = graph.add_open(kAddN, std::vector<Output>{a}, "sum");
  const Output user = identity(sum.output(), "user");
  const Output apart = constant(graph, 7, DType::kF32, "apart");
  const Output b = add_n({before, a}, "b");
  EXPECT_EQ(graph.open(), &sum);
  graph.extend(sum, std::vector<Output>{b, before});
  const Output last = add_n({sum.output(), b}, "last");
  graph.close(first);
  EXPECT_EQ(graph.open(), nullptr);
  EXPECT_EQ(names(graph),
            (std::vector<std::string>{"before", "a", "apart", "b", "sum", "user", "last"}));
  Session session(graph);
  EXPECT_EQ(session.run(user).item<float>(), 22);
  EXPECT_EQ(session.run(last).item<float>(), 33);
  EXPECT_EQ(session.run(gradients(last, {a})[0]).item<float>(), 3);
  EXPECT_EQ(session.run(apart).item<float>(), 7);
}

TEST(OpenNodes, MayDependOnEachOther) {
  Graph graph;
  Node& one = graph.add_open(kAddN, std::vector<Output>{constant(graph, 1)}, "one");
  Node& two = graph.add_open(kAddN, std::vector<Output>{identity(one.output())}, "two");
  const Output late = constant(graph, 100);
  graph.extend(one, std::vector<Output>{late});
  graph.extend(two, std::vector<Output>{identity(one.output())});
  graph.close(0);
  for (std::size_t id = 0; id < graph.size(); ++id)
    for (const Output& input : graph.node(id).inputs())
      EXPECT_LT(input.node().id(), static_cast<int>(id));
  EXPECT_EQ(Session(graph).run(two.output()).item<float>(), 202);
}

TEST(OpenNodes, AreRefusedWhereTheirInputsMatter) {
  Graph graph;
  const Output a = constant(graph, 10);
  Node& sum = graph.add_open(kAddN, std::vector<Output>{a}, "sum");
  EXPECT_THAT(message_of([&] { gradients(sum.output(), {a}); }),
              AllOf(HasSubstr("AddN 'sum' (built at graph_open_test.cc:"),
                    HasSubstr("differentiate after replicate()")));
  EXPECT_THAT(message_of([&] { Session(graph).run(a); }), HasSubstr("AddN 'sum'"));
  EXPECT_NE(message_of([&] {
              graph.extend(sum, std::vector<Output>{constant(graph, {1, 2}, {2})});
            }),
            "nothing was thrown");
  EXPECT_EQ(sum.inputs().size(), 1U);
  graph.close(0);
  EXPECT_NE(message_of<InternalError>([&] { graph.extend(sum, std::vector<Output>{a}); }),
            "nothing was thrown");
}

TEST(OpenNodes, ThatWaitForEachOtherAreNamed) {
  Graph graph;
  const Output a = constant(graph, 1);
  Node& one = graph.add_open(kAddN, std::vector<Output>{a}, "one");
  Node& two = graph.add_open(kAddN, std::vector<Output>{one.output()}, "two");
  graph.extend(one, std::vector<Output>{two.output()});
  EXPECT_THAT(message_of([&] { graph.close(0); }),
              AllOf(HasSubstr("'one' (built at "), HasSubstr("'two' (built at "),
                    HasSubstr("wait for each other")));
}

}  // namespace graph_open_test
}  // namespace belfry
