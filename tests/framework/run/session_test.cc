#include "belfry/framework/run/session.h"

#include <numeric>

#include "belfry/framework/core_ops/add_n.h"
#include "belfry/framework/core_ops/assign.h"
#include "belfry/framework/core_ops/constant.h"
#include "belfry/framework/core_ops/initializers.h"
#include "belfry/framework/core_ops/no_op.h"
#include "belfry/framework/core_ops/placeholder.h"
#include "belfry/framework/core_ops/random.h"
#include "belfry/framework/graph/scopes.h"
#include "belfry/tests/framework/framework_test_support.h"

namespace belfry {
namespace session_test {

using ::testing::AllOf;
using ::testing::HasSubstr;

float scalar(const Tensor& tensor) { return tensor.item<float>(); }

TEST(Session, ComputesAFetchFromAFeed) {
  Graph graph;
  const Output x = placeholder(graph, "x", DType::kF32, {kUnknownSize});
  const Output y = add_n({x, x, x});
  Session session(graph);
  const FeedValue feed{x, Tensor({2}, std::vector{1.f, 2.f})};
  EXPECT_EQ(session.run(y, {&feed, 1}), Tensor({2}, std::vector{3.f, 6.f}));
  const FeedValue longer{x, Tensor({3}, std::vector{1.f, 2.f, 3.f})};
  EXPECT_EQ(session.run(y, {&longer, 1}), Tensor({3}, std::vector{3.f, 6.f, 9.f}));
}

TEST(Session, ReadsSeeTheWriteThatTheyWaitFor) {
  Graph graph;
  const Variable v = variable(graph, "v", {}, {.initializer = init::ones()});
  Node& first = assign_add(v, constant(graph, 10));
  Output between;
  {
    ControlDependencies after(graph, {&first});
    between = v.read();
  }
  Node& second = assign_add(v, between);
  Session session(graph);
  const auto got = session.run({v, first.output(), between, second.output()});
  EXPECT_EQ(scalar(got[0]), 1);
  EXPECT_EQ(scalar(got[1]), 11);
  EXPECT_EQ(scalar(got[2]), 11);
  EXPECT_EQ(scalar(got[3]), 22);
  EXPECT_EQ(scalar(session.read(v)), 22);
}

TEST(Session, AnOldVersionThatIsUsedAfterTheWriteIsCopied) {
  Graph graph;
  const Variable v = variable(graph, "v", {3}, {.initializer = init::ones()});
  const Output old = v;
  Node& write = assign_add(v, constant(graph, {1, 2, 3}, {3}));
  const Output late = add_n({old, write.output()});  // needs both versions
  Session session(graph);
  EXPECT_EQ(session.run(late), Tensor({3}, std::vector{3.f, 4.f, 5.f}));
  EXPECT_EQ(session.run(late), Tensor({3}, std::vector{5.f, 8.f, 11.f}));
}

TEST(Session, WritesWithoutAnOrderAreRefusedWithBothLines) {
  Graph graph;
  const Variable v = variable(graph, "v", {}, {.initializer = init::ones()});
  Node* const both[] = {&assign_add(v, constant(graph, 1)), &assign_add(v, constant(graph, 2))};
  Session session(graph);
  try {
    session.run({group(graph, both)});
    FAIL() << "two unordered writes were accepted";
  } catch (const InvalidArgument& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("'v'"), std::string::npos) << text;
    EXPECT_NE(text.find("AssignAdd'"), std::string::npos) << text;
    EXPECT_NE(text.find("session_test.cc:"), text.rfind("session_test.cc:")) << text;
  }
}

TEST(Session, DevicesThatDoNotExistAreNamedWithThoseThatDo) {
  Graph graph;
  Output x;
  {
    DeviceScope on(graph, "/cpu:5");
    x = random_uniform(graph, {2});
  }
  Session session(graph, {.device_count = {{"CPU", 2}}});
  try {
    session.run(x);
    FAIL() << "cpu:5 of 2 was accepted";
  } catch (const InvalidArgument& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("was explicitly assigned to /device:CPU:5 but available devices are [ "
                        "/job:localhost/replica:0/task:0/device:CPU:0, "
                        "/job:localhost/replica:0/task:0/device:CPU:1 ]"),
              std::string::npos)
        << text;
  }
}

// Work on many devices that all depend on each other. The expected sum is computed by hand.
TEST(Session, LanesOrderEachOtherWhateverTheNumberOfThreads) {
  for (const int threads : {1, 2, 3, 8}) {
    Graph graph;
    const Variable v = variable(graph, "v", {1000}, {.initializer = init::ones()});
    std::vector<Output> layer(8, v);
    for (int depth = 0; depth < 20; ++depth) {
      std::vector<Output> next;
      for (int device = 0; device < 8; ++device) {
        DeviceScope on(graph, DeviceSpec::local("CPU", device));
        next.push_back(add_n({layer[static_cast<std::size_t>(device)],
                              layer[static_cast<std::size_t>((device + depth) % 8)]}));
      }
      layer = next;
    }
    Node& write = assign_add(v, layer[3]);
    Session session(graph, {.device_count = {{"CPU", 8}}, .threads = threads, .all_workers = true});
    CompiledStep& step = session.prepare({Fetch(write)});
    step.run();
    EXPECT_EQ(session.read(v).data<float>()[999], 1 + float(1 << 20));
    for (int i = 0; i < 50; ++i) {
      session.write(v, Tensor({1000}, std::vector<float>(1000, 1.f)));
      step.run();
      ASSERT_EQ(session.read(v).data<float>()[0], 1 + float(1 << 20));
    }
  }
}

TEST(Session, PeakMemoryReusesWhatIsDead) {
  Graph graph;
  Output x = random_uniform(graph, {1024});
  for (int i = 0; i < 100; ++i) x = add_n({x, constant(graph, Tensor({1024}, DType::kF32))});
  Session session(graph);
  session.run(x);
  EXPECT_EQ(session.peak_bytes().begin()->second, 2 * 4096) << "x, and what is fetched";
}

TEST(Session, WithoutMemoryToCompileNamesTheStep) {
  Graph graph;
  const Output x = random_uniform(graph, {4}, 0, 1, DType::kF32, "chance");
  for (const int shards : {1, 2}) {
    Session session(
        graph, {.shards_per_device = shards, .plan_hook = [](Plan&) { throw std::bad_alloc(); }});
    EXPECT_THAT(message_of<OutOfMemory>([&] { session.run(x); }),
                AllOf(HasSubstr("'chance'"),
                      HasSubstr("there was no memory left to compile the step that computes "
                                "it; use fewer "),
                      HasSubstr(shards > 1 ? "fewer shards" : "use fewer devices")));
  }
}

TEST(Session, AFailedAllocationNamesTheDeviceAndItsLimit) {
  Graph graph;
  const Output x = random_uniform(graph, {1 << 20});
  Session session(graph, {.memory_limit = {{"cpu:0", 1 << 20}}});
  try {
    session.run(x);
    FAIL() << "4 MiB fitted into 1 MiB";
  } catch (const OutOfMemory& error) {
    EXPECT_NE(std::string(error.what()).find("device:CPU:0"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("1048576"), std::string::npos) << error.what();
  }
}

}  // namespace session_test
}  // namespace belfry
