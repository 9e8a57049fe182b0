// Collectives by ranks in plans: one part per physical GPU, each on a strand for communication.
#include "belfry/framework/base/text.h"
#include "belfry/tests/framework/run/gpu_test_support.h"

namespace belfry {
namespace passes_ranks_test {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// The collectives of each strand that communicates, by device, in order.
std::map<int, std::vector<const Node*>> collectives_of(const Plan& plan) {
  std::map<int, std::vector<const Node*>> found;
  for (const Strand& strand : plan.strands)
    for (const LaunchIndex launch : strand.launches) {
      const PlanNode& node = plan.node(plan.launches[launch].node);
      EXPECT_EQ(strand.communicates, node.rank() != nullptr) << node.name();
      if (node.rank()) found[strand.device].push_back(node.node);
    }
  return found;
}

TEST(Ranks, ArePhysicalGpusWithACommunicationStrandEach) {
  for (const Layout layout : {Layout{1, 1}, {1, 4}, {2, 1}, {2, 3}, {8, 1}})
    for (const bool dry : {false, true}) {
      const test::StandInGpus gpus(layout.physical);
      const test::UseGpus use(gpus);
      const Towers model("GPU", layout.devices(), true);
      SessionOptions options = on_gpus(layout);
      options.dry_run = dry;
      Session session(model.graph, options);
      const Plan& plan = *session.prepare(model.fetches(), model.feed_types()).plan();
      const auto strands = collectives_of(plan);
      ASSERT_EQ(std::ssize(strands), layout.physical);
      for (const auto& [device, collectives] : strands) {
        EXPECT_EQ((device - 1) % layout.logical, 0) << "the first device of a physical GPU";
        EXPECT_EQ(collectives, strands.begin()->second);
      }
      for (const PlanNode& node : plan.nodes) {
        if (!node.rank()) continue;
        EXPECT_EQ(node.participants(), layout.logical);
        EXPECT_EQ(std::ssize(node.rank()->devices), layout.physical);
        EXPECT_EQ(node.name(), cat("NcclAllReduce/rank", node.rank()->number));
        EXPECT_EQ(std::set(node.devices.begin(), node.devices.end()).size(), node.devices.size());
      }
    }
}

// Towers are ready in different orders, so each of two collectives would come first somewhere.
TEST(Ranks, SeeCollectivesInOneOrderWhateverIsReadyFirst) {
  const test::StandInGpus gpus(3);
  const test::UseGpus use(gpus);
  Graph graph;
  std::vector<std::vector<Output>> tensors(4);
  for (int t = 0; t < 3; ++t) {
    DeviceScope on(graph, gpu(t));
    for (int i = 0; i < 4; ++i) {
      const int which = (i + t) % 4;
      Output x = constant(graph, {1.f + static_cast<float>(which)}, {1});
      for (int more = 0; more < i; ++more) x = tanh(x);
      tensors[at(which)].resize(3);
      tensors[at(which)][at(t)] = x;
    }
  }
  std::vector<Fetch> fetches;
  for (const auto& tensor : tensors) {
    const std::vector<Output> sums = nccl_all_reduce_bucket({&tensor, 1})[0];
    fetches.insert(fetches.end(), sums.begin(), sums.end());
  }
  Session session(graph, on_gpus({3, 1}));
  CompiledStep& step = session.prepare(fetches);
  const auto strands = collectives_of(*step.plan());
  ASSERT_EQ(strands.size(), 3u);
  for (const auto& [device, collectives] : strands) {
    EXPECT_EQ(collectives.size(), 4u);
    EXPECT_EQ(collectives, strands.begin()->second);
  }
  step.run();
}

TEST(Ranks, KeepTheNamesOfWhatTheyGive) {
  const test::StandInGpus gpus(2);
  const test::UseGpus use(gpus);
  Graph graph;
  std::vector<std::vector<Output>> tensors(2);
  for (std::size_t b = 0; b < 2; ++b)
    for (int t = 0; t < 4; ++t) {
      DeviceScope on(graph, gpu(t));
      tensors[b].push_back(constant(graph, {static_cast<float>(t)}, {1}));
    }
  const auto sums = nccl_all_reduce_bucket(tensors, {}, "sum");
  Session session(graph, on_gpus({2, 2}));
  const Plan& plan = *session.prepare({sums[0][0], sums[1][3]}).plan();
  std::vector<std::string> names;
  for (const NodeIndex n : plan.nodes.indices())
    for (std::size_t i = 0; plan.nodes[n].rank() && i < plan.nodes[n].types.size(); ++i)
      names.push_back(plan.name({n, static_cast<int>(i)}));
  EXPECT_THAT(names,
              ElementsAre("sum", "sum:1", "sum:4", "sum:5", "sum:2", "sum:3", "sum:6", "sum:7"));
}

TEST(Ranks, AreRefusedBesideCpusAndWithoutNccl) {
  test::StandInGpus gpus(1);
  const test::UseGpus use(gpus);
  const Towers model("GPU", 1, true);
  Graph mixed;
  std::vector<Output> x;
  for (const DeviceSpec& device : {gpu(0), cpu(0)}) {
    DeviceScope on(mixed, device);
    x.push_back(constant(mixed, {1}, {1}));
  }
  const Output sum = nccl_all_reduce_bucket({&x, 1}, {}, "sum")[0][0];
  Session session(mixed, on_gpus({1, 1}));
  EXPECT_THAT(
      message_of<InvalidArgument>([&] { session.prepare({sum}); }),
      AllOf(HasSubstr("NcclAllReduce 'sum'"), HasSubstr("NCCL needs GPUs, but participant 1"),
            HasSubstr("CPU:0; use collective")));
  gpus.set_nccl({.why_not = "NCCL cannot be loaded: libnccl.so.2"});
  Session without(model.graph, on_gpus({1, 1}));
  EXPECT_THAT(
      message_of<NotFoundError>([&] { without.prepare(model.fetches(), model.feed_types()); }),
      HasSubstr("NCCL cannot be loaded: libnccl.so.2; use collective"));
}

TEST(Ranks, AreLogicalGpusWhereNcclServesSeveralOnOne) {
  test::StandInGpus gpus(2);
  gpus.set_nccl({.version = 23000, .several_ranks = true});
  const test::UseGpus use(gpus);
  const Towers model("GPU", 4, true);
  Session session(model.graph, on_gpus({2, 2}));
  CompiledStep& step = session.prepare(model.fetches(), model.feed_types());
  EXPECT_EQ(collectives_of(*step.plan()).size(), 4u);
  step.run(model.feeds(0));
  EXPECT_EQ(gpus.calls().all_reduces, 8) << "once to connect, once to run";
}

}  // namespace passes_ranks_test
}  // namespace belfry
