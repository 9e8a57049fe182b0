// BatchStatistics of several processes: its plan has GatherMoments and CombineGathered.
#include "belfry/ops/normalization/gather_moments.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/framework/core_ops/constant.h"
#include "belfry/framework/graph/exchange.h"
#include "belfry/framework/run/session.h"
#include "belfry/ops/normalization/batch_statistics.h"
#include "belfry/tests/support/memory_group.h"
#include "belfry/tests/support/process_threads.h"
#include "belfry/tests/support/sanitizers.h"

namespace belfry {
namespace gather_moments_test {

using Values = std::vector<float>;

// A tower's part, [3, 2], which differs between towers.
Output part_of(Graph& graph, int tower) {
  Values values;
  for (int i = 0; i < 6; ++i) values.push_back(static_cast<float>((7 * tower + 3 * i) % 11) / 3.f);
  return constant(graph, Tensor({3, 2}, values));
}

// Mean and variance over towers [begin, end), as the graph's process sees them.
Values moments_of(Graph& graph, int begin, int end, const std::shared_ptr<Processes>& processes) {
  std::vector<Output> parts;
  for (int t = begin; t < end; ++t) parts.push_back(part_of(graph, t));
  const Moments all = batch_statistics(parts);
  Session session(graph, {.threads = 1, .processes = processes});
  Values values;
  for (const Tensor& tensor : session.run({all.mean, all.variance}))
    for (const float value : tensor.data<float>()) values.push_back(value);
  return values;
}

TEST(GatherMoments, GivesTheMomentsOfOneProcess) {
  for (const auto& [size, towers] : {std::pair(2, 1), std::pair(3, 2), std::pair(2, 3)}) {
    Graph graph;
    const Values alone = moments_of(graph, 0, size * towers, nullptr);
    test::run_processes(size, [&, towers = towers](const std::shared_ptr<Processes>& processes) {
      Graph own(1, processes->place());
      const int first = processes->rank() * towers;
      EXPECT_EQ(moments_of(own, first, first + towers, processes), alone)
          << processes->size() << " x " << towers;
    });
  }
}

// With whom process `rank` of 8,192 exchanges a row at a level.
std::vector<int> peers_at(std::size_t level, int rank) {
  Graph graph(1, {rank, 8'192});
  const Output row = constant(graph, Tensor({1, 3}, Values(3)));
  const Node& node = graph.add(gather_moments_at(level), {row});
  Values in(3), out(16 * 3);
  void* const inputs[] = {in.data()};
  void* const outputs[] = {out.data()};
  std::vector<int> peers;
  for (const GroupMessage& message :
       node.op().exchange(node, KernelPointers(inputs, outputs, nullptr, {0, 1}, 0)).sent)
    peers.push_back(message.peer);
  return peers;
}

// 8,192 are 2 x 16 x 16 x 16. Tests have no level 3 otherwise.
TEST(GatherMoments, OfALevelHasPeersFartherAwayEachTime) {
  using ::testing::ElementsAre;
  EXPECT_EQ(gather_moments_at(3).name, std::string("GatherMoments3"));
  EXPECT_THAT(peers_at(3, 5), ElementsAre(4096 + 5));
  EXPECT_THAT(peers_at(3, 4096 + 5), ElementsAre(5));
  EXPECT_THAT(peers_at(1, 4096 + 5), ElementsAre(4117, 4133, 4149, 4165, 4181, 4197, 4213, 4229,
                                                 4245, 4261, 4277, 4293, 4309, 4325, 4341));
}

// Groups of 16 processes merge their moments (MergeMoments), which two more levels gather
// (GatherMoments1, GatherMoments2).
TEST(GatherMoments, OfManyProcessesMergesGroupByGroup) {
  if (kSanitized) GTEST_SKIP() << "a thousand threads are too slow under sanitizers";
  constexpr int kSize = 512;
  Graph graph;
  const Values alone = moments_of(graph, 0, kSize, nullptr);
  test::MemoryNetwork network(kSize);
  test::run_in_memory(network, kSize, [&](const std::shared_ptr<Processes>& processes) {
    Graph own(1, processes->place());
    const int rank = processes->rank();
    EXPECT_EQ(moments_of(own, rank, rank + 1, processes), alone);
  });
  EXPECT_LT(network.traffic(5).messages, 15 + 15 + 1 + 10);
}

}  // namespace gather_moments_test
}  // namespace belfry
