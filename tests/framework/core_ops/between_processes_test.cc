#include "belfry/framework/core_ops/between_processes.h"

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/framework/core_ops/add_n.h"
#include "belfry/framework/core_ops/add_pieces.h"
#include "belfry/framework/core_ops/assign.h"
#include "belfry/framework/core_ops/constant.h"
#include "belfry/framework/core_ops/covering_nodes.h"
#include "belfry/framework/core_ops/identity.h"
#include "belfry/framework/graph/exchange.h"
#include "belfry/framework/group/tags.h"
#include "belfry/framework/kernels/reduce.h"
#include "belfry/framework/plan/plan.h"
#include "belfry/framework/run/session.h"
#include "belfry/ops/operand.h"
#include "belfry/tests/framework/framework_test_support.h"
#include "belfry/tests/support/memory_group.h"
#include "belfry/tests/support/process_threads.h"

namespace belfry {
namespace between_processes_test {

using ::testing::ElementsAre;

TEST(CoveringNodes, OfAlignedTowersAreOne) {
  EXPECT_THAT(covering_nodes({2, 4}, 4), ElementsAre(TreeNode{2, 4}));
  EXPECT_THAT(covering_nodes({0, 8}, 8), ElementsAre(TreeNode{0, 8}));
  EXPECT_THAT(covering_nodes({5, 6}, 8), ElementsAre(TreeNode{5, 6}));
}

// The tree over six: ((0 1) 2) ((3 4) 5).
TEST(CoveringNodes, AreTheLargestInside) {
  EXPECT_THAT(covering_nodes({0, 2}, 6), ElementsAre(TreeNode{0, 2}));
  EXPECT_THAT(covering_nodes({2, 4}, 6), ElementsAre(TreeNode{2, 3}, TreeNode{3, 4}));
  EXPECT_THAT(covering_nodes({3, 6}, 6), ElementsAre(TreeNode{3, 6}));
  EXPECT_THAT(covering_nodes({1, 6}, 6),
              ElementsAre(TreeNode{1, 2}, TreeNode{2, 3}, TreeNode{3, 6}));
}

TEST(CoveringNodes, OfAllProcessesCoverEveryTowerOnce) {
  for (int size = 1; size <= 7; ++size)
    for (int towers = 1; towers <= 5; ++towers) {
      int next = 0;
      for (int r = 0; r < size; ++r)
        for (const TreeNode& node : covering_nodes({r * towers, (r + 1) * towers}, size * towers)) {
          EXPECT_EQ(node.begin, next);
          next = node.end;
        }
      EXPECT_EQ(next, size * towers);
    }
}

// The gradient of tower t: numbers whose sum depends on the order of additions.
std::vector<float> gradient_of(int tower, std::size_t elements) {
  std::vector<float> values;
  for (std::size_t i = 0; i < elements; ++i)
    values.push_back(
        std::pow(-3.7f, static_cast<float>((static_cast<std::size_t>(tower) + i) % 9)));
  return values;
}

// The sum of the canonical tree over all towers.
std::vector<float> sum_of_all(int towers, std::size_t elements) {
  std::vector<std::vector<float>> gradients;
  std::vector<const void*> terms;
  for (int t = 0; t < towers; ++t) gradients.push_back(gradient_of(t, elements));
  for (const std::vector<float>& gradient : gradients) terms.push_back(gradient.data());
  std::vector<float> sum(elements);
  void* const into[] = {sum.data()};
  kernels::tree_sum<float>(terms, into, 0, static_cast<std::int64_t>(elements));
  return sum;
}

// The part of the canonical tree that one process adds alone.
Output sum_of_node(Graph& graph, TreeNode node, std::size_t elements) {
  std::vector<Output> gradients;
  for (int t = node.begin; t < node.end; ++t)
    gradients.push_back(constant(graph, floats(gradient_of(t, elements))));
  return gradients.size() == 1 ? gradients[0] : add_n(gradients);
}

std::int64_t parts_of_additions(Session& session, Output sum) {
  const Fetch fetch(sum);
  const Plan& plan = *session.prepare({&fetch, 1}).plan();
  for (const Launch& launch : plan.launches)
    if (plan.node(launch.node).op == &kAddPieces) return launch.parts();
  return 0;
}

std::int64_t nodes_of(const Graph& graph, const Op& op) {
  return std::ranges::count_if(exchanges(graph),
                               [&](const Node* node) { return &node->op() == &op; });
}

// ReduceScatter, AddPieces and AllGather, in this order. Workers share additions of 200,000. Two
// processes add what arrives, by AddReceived.
TEST(SumOverProcesses, IsTheCanonicalSum) {
  for (const auto& [size, towers] : {std::pair(2, 1), std::pair(3, 2), std::pair(2, 3)}) {
    for (const std::size_t elements : {1u, 7u, 5000u, 200'000u}) {
      std::vector<float> expected = sum_of_all(size * towers, elements);
      const bool mean = elements == 5000;
      if (mean)
        for (float& value : expected) value /= static_cast<float>(size * towers);
      test::run_processes(size, [&](const std::shared_ptr<Processes>& processes) {
        const ProcessPlace place = processes->place();
        Graph graph(1, place);
        std::vector<Output> own;
        const TreeNode here{place.rank * towers, (place.rank + 1) * towers};
        for (const TreeNode& node : covering_nodes(here, size * towers))
          own.push_back(sum_of_node(graph, node, elements));
        const Output sum = sum_over_processes(own, place, towers, mean);
        Session session(graph, {.threads = 3, .all_workers = true, .processes = processes});
        EXPECT_EQ(nodes_of(graph, kAddReceived), size == 2 ? 1 : 0);
        if (elements == 200'000 && size > 2) {
          EXPECT_GT(parts_of_additions(session, sum), 1);
        }
        EXPECT_THAT(session.run({sum})[0].data<float>(), testing::ElementsAreArray(expected))
            << size << " x " << towers << ", " << elements << " elements";
      });
    }
  }
}

TEST(TreeLevels, AreGroupsThatAreNodesOfTheTree) {
  EXPECT_THAT(tree_levels(1), testing::IsEmpty());
  EXPECT_THAT(tree_levels(12), ElementsAre(12));
  EXPECT_THAT(tree_levels(64), ElementsAre(16, 4));
  EXPECT_THAT(tree_levels(96), ElementsAre(12, 8));
  EXPECT_THAT(tree_levels(1024), ElementsAre(16, 16, 4));
  EXPECT_THAT(tree_levels(34), ElementsAre(34)) << "groups of 17 are large";
  for (const int towers : {1, 3})
    for (const int first : {0, 12, 84})
      EXPECT_EQ(covering_nodes({first * towers, (first + 12) * towers}, 96 * towers).size(), 1u);
}

// As SumOverProcesses.IsTheCanonicalSum, level by level; 18 processes have one level. One element
// is one process's piece at each level.
TEST(SumOverProcesses, OfManyIsTheCanonicalSum) {
  for (const auto& [size, towers] : {std::pair(32, 1), std::pair(24, 2), std::pair(18, 1)}) {
    for (const std::size_t elements : {1u, 700u}) {
      const std::vector<float> expected = sum_of_all(size * towers, elements);
      test::MemoryNetwork network(size);
      test::run_in_memory(network, size, [&](const std::shared_ptr<Processes>& processes) {
        const ProcessPlace place = processes->place();
        Graph graph(1, place);
        std::vector<Output> own;
        const TreeNode here{place.rank * towers, (place.rank + 1) * towers};
        for (const TreeNode& node : covering_nodes(here, size * towers))
          own.push_back(sum_of_node(graph, node, elements));
        const Output sum = sum_over_processes(own, place, towers, false);
        Session session(graph, {.threads = 1, .processes = processes});
        EXPECT_THAT(session.run({sum})[0].data<float>(), testing::ElementsAreArray(expected))
            << size << " x " << towers << ", " << elements << " elements";
      });
      if (size == 32 && elements == 1) {
        EXPECT_LT(network.traffic(3).messages, 8);
      }
    }
  }
}

TEST(GatherOverProcesses, GivesTheRowsOfAllInAFewRounds) {
  for (const int size : {2, 3, 4, 5, 9, 16, 33}) {
    test::MemoryNetwork network(size);
    test::run_in_memory(network, size, [&](const std::shared_ptr<Processes>& processes) {
      const auto rank = static_cast<float>(processes->rank());
      Graph graph(1, processes->place());
      const Output rows =
          gather_over_processes(constant(graph, floats({rank, -rank})), processes->place());
      std::vector<float> expected;
      for (int r = 0; r < size; ++r)
        expected.insert(expected.end(), {static_cast<float>(r), static_cast<float>(-r)});
      Session session(graph, {.threads = 1, .processes = processes});
      EXPECT_THAT(session.run({rows})[0].data<float>(), testing::ElementsAreArray(expected));
    });
    if (size == 33) {
      EXPECT_LE(network.traffic(7).messages, 3 + 3 + 2 * 2 + 2) << "rounds, and the end";
    }
  }
}

// There are two nodes of each kind: within hosts, and between hosts.
TEST(SumOverProcesses, OfHostsAddsWithinEachFirst) {
  for (const auto& [size, per_host, towers] :
       {std::tuple(4, 2, 1), std::tuple(4, 2, 3), std::tuple(8, 2, 2), std::tuple(8, 4, 1),
        std::tuple(6, 3, 1)}) {
    for (const std::size_t elements : {1u, 5000u}) {
      const std::vector<float> expected = sum_of_all(size * towers, elements);
      test::run_on_hosts(size, per_host, [&](const std::shared_ptr<Processes>& processes) {
        const ProcessPlace place = processes->place();
        EXPECT_EQ(place.per_host, per_host);
        Graph graph(1, place);
        const TreeNode here{place.rank * towers, (place.rank + 1) * towers};
        std::vector<Output> own;
        for (const TreeNode& node : covering_nodes(here, size * towers))
          own.push_back(sum_of_node(graph, node, elements));
        const Output sum = sum_over_processes(own, place, towers, false);
        EXPECT_EQ(nodes_of(graph, kReduceScatter), 2);
        EXPECT_EQ(nodes_of(graph, kAllGather), size / per_host == 2 ? 1 : 2);
        Session session(graph, {.threads = 1, .processes = processes});
        EXPECT_THAT(session.run({sum})[0].data<float>(), testing::ElementsAreArray(expected))
            << size << " / " << per_host << " x " << towers << ", " << elements << " elements";
      });
    }
  }
}

// Both get the row of the other one, and nothing comes back.
TEST(SumOverProcesses, OfTwoHostsIsAddedByBoth) {
  for (const int per_host : {1, 2}) {
    for (const std::size_t elements : {1u, 5000u, 200'000u}) {
      const int size = 2 * per_host;
      const std::vector<float> expected = sum_of_all(size * 3, elements);
      test::run_on_hosts(size, per_host, [&](const std::shared_ptr<Processes>& processes) {
        const ProcessPlace place = processes->place();
        Graph graph(1, place);
        std::vector<Output> own;
        for (const TreeNode& node :
             covering_nodes({place.rank * 3, (place.rank + 1) * 3}, size * 3))
          own.push_back(sum_of_node(graph, node, elements));
        const Output sum = sum_over_processes(own, place, 3, false);
        EXPECT_EQ(nodes_of(graph, kAllGather), per_host - 1) << "within the host";
        Session session(graph, {.threads = 2, .processes = processes});
        EXPECT_THAT(session.run({sum})[0].data<float>(), testing::ElementsAreArray(expected));
      });
    }
  }
}

// The tree over six is ((0 1) 2) ((3 4) 5): the two ranks of the second host are no node.
TEST(SumOverProcesses, OfHostsThatAreNoNodesAddsOverAllAtOnce) {
  const std::vector<float> expected = sum_of_all(6, 40);
  test::run_on_hosts(6, 2, [&](const std::shared_ptr<Processes>& processes) {
    const ProcessPlace place = processes->place();
    Graph graph(1, place);
    const Output sum = sum_over_processes({{sum_of_node(graph, {place.rank, place.rank + 1}, 40)}},
                                          place, 1, false);
    EXPECT_EQ(nodes_of(graph, kReduceScatter), 1);
    Session session(graph, {.threads = 1, .processes = processes});
    EXPECT_THAT(session.run({sum})[0].data<float>(), testing::ElementsAreArray(expected));
  });
}

// As a launcher places them that goes around the hosts. Groups of 16 are on all of them.
TEST(SumOverProcesses, OfHostsWithEverySecondRankIsTheCanonicalSum) {
  for (const int size : {6, 32}) {
    const std::vector<float> expected = sum_of_all(size, 40);
    test::MemoryNetwork network(size, size / 2, true);
    test::run_in_memory(network, size, [&](const std::shared_ptr<Processes>& processes) {
      const ProcessPlace place = processes->place();
      EXPECT_EQ(processes->host(1), "host1");
      EXPECT_EQ(place.per_host, 1);
      Graph graph(1, place);
      const Output sum = sum_over_processes(
          {{sum_of_node(graph, {place.rank, place.rank + 1}, 40)}}, place, 1, false);
      Session session(graph, {.threads = 1, .processes = processes});
      EXPECT_THAT(session.run({sum})[0].data<float>(), testing::ElementsAreArray(expected));
    });
  }
}

// A process sends its own terms to nobody, and they lie where the sum is to be.
TEST(SumOverProcesses, CopiesNothingOfItsOwn) {
  test::run_processes(3, [](const std::shared_ptr<Processes>& processes) {
    const ProcessPlace place = processes->place();
    Graph graph(1, place);
    const std::vector<Output> own{constant(graph, floats(gradient_of(place.rank, 600))) * 2.0};
    const Fetch sum(identity(sum_over_processes(own, place, 1, true)));
    Session session(graph, {.threads = 1, .processes = processes});
    const Plan& plan = *session.prepare({&sum, 1}).plan();
    BufferIndex given, added, gathered;
    for (const NodeIndex n : plan.nodes.indices()) {
      const PlanNode& node = plan.nodes[n];
      if (node.op == &kReduceScatter) {
        EXPECT_EQ(node.types[0].shape[0], 2);
      }
      if (node.op == &kAddPieces) given = plan.buffer(node.inputs[0]);
      if (node.op == &kAddPieces) added = plan.buffer_of[n][0];
      if (node.op == &kAllGather) gathered = plan.buffer_of[n][0];
    }
    EXPECT_TRUE(given);
    EXPECT_EQ(given, added);
    EXPECT_EQ(added, gathered);
  });
}

// The sum of all is made where it is to lie, as allreduce_bench does in place.
TEST(SumOverProcesses, OfAVariableIsAddedAndGatheredInTheVariable) {
  constexpr std::size_t kElements = 600;
  for (const int size : {2, 3}) {
    const std::vector<float> expected = sum_of_all(size, kElements);
    test::run_processes(size, [&](const std::shared_ptr<Processes>& processes) {
      const ProcessPlace place = processes->place();
      Graph graph(1, place);
      const Variable v = variable(graph, "v", {static_cast<std::int64_t>(kElements)});
      const std::vector<Output> own{v.read()};
      const Fetch write(assign(v, sum_over_processes(own, place, 1, false)));
      Session session(graph, {.threads = 1, .processes = processes});
      CompiledStep& step = session.prepare({&write, 1});
      const Plan& plan = *step.plan();
      for (const PlanNode& node : plan.nodes) {
        if (node.op == &kAssign) {
          EXPECT_TRUE(same_memory(plan, node.inputs[0], node.inputs[1]));
        }
      }
      session.write(v, floats(gradient_of(place.rank, kElements)));
      step.run();
      EXPECT_THAT(session.read(v).data<float>(), testing::ElementsAreArray(expected));
    });
  }
}

// Pieces of 3, 2 and 2 elements go around once, each multiplied by every process on its way.
TEST(RingSend, BringsThePieceOfTheProcessBefore) {
  test::run_processes(3, [](const std::shared_ptr<Processes>& processes) {
    const ProcessPlace place = processes->place();
    const auto rank_at = [&](int hop) { return (place.rank + place.size - hop) % place.size; };
    const Cuts cuts = even_cuts(7, place.size);
    Graph graph(1, place);
    const auto own = static_cast<std::size_t>(piece_of(cuts, place.rank).size());
    Output piece = constant(graph, floats(std::vector<float>(own, 1)));
    for (int hop = 1; hop <= place.size; ++hop) {
      piece = ring_send(piece * (place.rank + 2.0), place, cuts, rank_at(hop));
      EXPECT_EQ(piece.shape(), Shape({piece_of(cuts, rank_at(hop)).size()}));
    }
    EXPECT_EQ(nodes_of(graph, kRingSend), 3);
    Session session(graph, {.threads = 1, .processes = processes});
    EXPECT_THAT(session.run({piece})[0].data<float>(),
                testing::ElementsAreArray(std::vector<float>(own, 2 * 3 * 4)));
  });
}

// Programs call it under a launcher of MPI (tests/examples/processes_test.cc).
TEST(MpiAllReduce, IsRefusedWhereTheGroupAddsNothing) {
  EXPECT_THAT(message_of<CommError>([] {
                test::run_processes(2, [](const std::shared_ptr<Processes>& processes) {
                  Graph graph(1, processes->place());
                  const Output sum = mpi_all_reduce(constant(graph, floats({1, 2})));
                  Session session(graph, {.threads = 1, .processes = processes});
                  session.run({sum});
                });
              }),
              testing::HasSubstr("TCP moves bytes and adds none; start the processes by MPI"));
}

// MPI need not have tags above 32,767, and the room `group` has the last ones.
TEST(Exchanges, OfAnyNumberHaveTagsThatEveryMpiHas) {
  Graph graph(1, {0, 2});
  const Output x = constant(graph, floats({1}));
  float memory[2] = {};
  void* const inputs[] = {&memory[0]};
  void* const outputs[] = {&memory[0]};
  const KernelPointers pointers(inputs, outputs, nullptr, {0, 1}, 0);
  const auto tag = [&](const Output& gathered) {
    return gathered.node().op().exchange(gathered.node(), pointers).sent[0].tag;
  };
  EXPECT_EQ(tag(gather_over_processes(x, {0, 2})), 0);
  for (int i = 1; i < kStepTags; ++i) gather_over_processes(x, {0, 2});
  EXPECT_EQ(tag(gather_over_processes(x, {0, 2})), 0);
  EXPECT_EQ(tag(gather_over_processes(x, {0, 2})), 1);
  EXPECT_LE(kStepTags, kFirstReservedTag);
  EXPECT_LE(int{kEndTag}, 32'767);
}

TEST(MpiAllReduce, IsOfF32AndF64) {
  Graph graph(1, {0, 2});
  EXPECT_EQ(mpi_all_reduce(constant(graph, floats({1, 2}))).shape(), Shape({2}));
  EXPECT_THAT(message_of<InvalidArgument>([&] {
                mpi_all_reduce(constant(graph, Tensor({1}, std::vector<std::int32_t>{1})));
              }),
              testing::HasSubstr("MPI adds f32 or f64, not i32"));
}

}  // namespace between_processes_test
}  // namespace belfry
