#include <gmock/gmock.h>

#include "belfry/framework/base/text.h"
#include "belfry/framework/core_ops/between_processes.h"
#include "belfry/framework/core_ops/fill.h"
#include "belfry/framework/core_ops/random.h"
#include "belfry/framework/run/session.h"
#include "belfry/ops/matmul.h"
#include "belfry/ops/relu.h"
#include "belfry/ops/softmax.h"
#include "belfry/tests/framework/passes/random_graph.h"

namespace belfry {
namespace passes_schedule_test {

TEST(Schedule, LaunchesStandInATopologicalOrderAndInThatOfTheirStrands) {
  for (unsigned seed = 0; seed < 40; ++seed) {
    RandomGraph random(seed, 1 + static_cast<int>(seed % 4), 60);
    const auto devices = cpu_devices(4);
    const Plan plan = compiled(devices, random.fetches);
    for (std::size_t l = 0; l < plan.launches.size(); ++l) {
      const Launch& launch = plan.launches[l];
      std::vector<int> deps;
      collect_deps(plan, launch.node, deps);
      for (const int dep : deps) ASSERT_LT(dep, static_cast<int>(l));
      const Strand& strand = plan.strands[launch.strand];
      ASSERT_EQ(strand.launches[static_cast<std::size_t>(launch.position)], LaunchIndex(l));
      for (const Wait& wait : launch.waits) ASSERT_LT(plan.awaited(wait), LaunchIndex(l));
    }
  }
}

TEST(Schedule, WaitsSufficeForAllDependencies) {
  for (unsigned seed = 0; seed < 40; ++seed) {
    RandomGraph random(seed, 1 + static_cast<int>(seed % 4), 60);
    const auto devices = cpu_devices(4);
    const Plan plan = compiled(devices, random.fetches);
    const auto before = happens_before(plan);
    for (std::size_t l = 0; l < plan.launches.size(); ++l) {
      std::vector<int> deps;
      collect_deps(plan, plan.launches[l].node, deps);
      for (const int dep : deps) ASSERT_TRUE(before[l][static_cast<std::size_t>(dep)]) << seed;
    }
  }
}

TEST(Schedule, NoWaitIsImpliedByTheOthers) {
  for (unsigned seed = 0; seed < 40; ++seed) {
    RandomGraph random(seed, 2 + static_cast<int>(seed % 3), 60);
    const auto devices = cpu_devices(4);
    const Plan plan = compiled(devices, random.fetches);
    const auto before = happens_before(plan);
    const auto launch_at = [&](StrandIndex strand, int position) {
      return static_cast<std::size_t>(plan.awaited({strand, position}).value());
    };
    for (const Launch& launch : plan.launches)
      for (const Wait& wait : launch.waits) {
        const std::size_t awaited = launch_at(wait.strand, wait.position);
        ASSERT_NE(wait.strand, launch.strand);
        if (launch.position > 0) {
          ASSERT_FALSE(before[launch_at(launch.strand, launch.position - 1)][awaited]) << seed;
        }
        for (const Wait& other : launch.waits)
          ASSERT_FALSE(before[launch_at(other.strand, other.position)][awaited]) << seed;
      }
  }
}

TEST(Schedule, ClocksCountWhatHasRun) {
  for (unsigned seed = 0; seed < 20; ++seed) {
    RandomGraph random(seed, 3, 50);
    const auto devices = cpu_devices(4);
    const Plan plan = compiled(devices, random.fetches);
    const auto before = happens_before(plan);
    for (std::size_t l = 0; l < plan.launches.size(); ++l) {
      Indexed<Strand, int> counts(plan.strands.size());
      for (std::size_t i = 0; i < l; ++i) counts[plan.launches[i].strand] += before[l][i];
      for (const StrandIndex strand : plan.strands.indices())
        ASSERT_EQ(plan.have_run(strand, LaunchIndex(l)), counts[strand]);
    }
  }
}

TEST(Schedule, DependenciesThroughOneStrandNeedOneWait) {
  Graph graph;
  const auto on = [&](int device, auto&& make) {
    DeviceScope scope(graph, cpu(device));
    return make();
  };
  const Output a = on(0, [&] { return fill(graph, {2}, 1); });
  const Output b = on(0, [&] { return add_n({a, a}); });
  const Output c = on(1, [&] { return add_n({a, b, b}); });
  const Output d = on(2, [&] { return add_n({a, b, c}); });
  const auto devices = cpu_devices(3);
  const Plan plan = compiled(devices, {d.node()});
  const auto waits = [&](const Output& output) {
    return plan.launches[static_cast<std::size_t>(launch_of(plan, planned(plan, output.node())))]
        .waits;
  };
  EXPECT_TRUE(waits(b).empty());
  EXPECT_EQ(waits(c), (std::vector<Wait>{{StrandIndex(0), 1}}));
  EXPECT_EQ(waits(d), (std::vector<Wait>{{StrandIndex(1), 0}}));  // c has waited for a and b
}

TEST(Schedule, CollectivesTakeTurnsOnTheirDevices) {
  Graph graph;
  std::vector<Output> parts;
  for (int d = 0; d < 3; ++d) {
    DeviceScope scope(graph, cpu(d));
    parts.push_back(fill(graph, {2}, d));
  }
  std::vector<Fetch> fetches;
  for (int i = 0; i < 6; ++i) fetches.emplace_back(all_reduce(parts)[0].node());
  const auto devices = cpu_devices(3);
  const Plan plan = compiled(devices, fetches);
  std::vector<int> turns(3);
  for (const Launch& launch : plan.launches)
    if (plan.node(launch.node).op == &kAllReduce)
      ++turns[static_cast<std::size_t>(plan.strands[launch.strand].device)];
  EXPECT_EQ(turns, (std::vector{2, 2, 2}));
}

// The strands of a plan's messages.
std::vector<std::string> strands_of_messages(const Plan& plan) {
  std::vector<std::string> all;
  for (const StrandIndex s : plan.strands.indices()) {
    if (!plan.exchanges(s)) continue;
    std::string& names = all.emplace_back();
    for (const LaunchIndex l : plan.strands[s].launches)
      names += cat(names.empty() ? "" : " ", plan.node(plan.launches[l].node).op->name);
  }
  return all;
}

// The plan of a process that sums `sums` rows of so many elements, each independent of the others.
std::shared_ptr<const Plan> plan_of_sums(Graph& graph, int sums, std::int64_t elements) {
  const ProcessPlace place = graph.process();
  std::vector<Fetch> fetches;
  for (int i = 0; i < sums; ++i) {
    const std::vector<Output> own{fill(graph, {elements}, i)};
    fetches.emplace_back(sum_over_processes(own, place, 1, false));
  }
  Session session(graph, {.dry_run = true, .planned_place = place});
  return session.prepare(fetches).plan();
}

TEST(Schedule, SumsThatNeedNotWaitForEachOtherAreUnderWayTogether) {
  Graph graph(1, {.rank = 0, .size = 4, .per_host = 4});
  EXPECT_THAT(strands_of_messages(*plan_of_sums(graph, 3, 40)),
              testing::Each("ReduceScatter AddPieces AllGather"));
}

TEST(Schedule, WorkersAddLongPieces) {
  Graph graph(1, {.rank = 0, .size = 4, .per_host = 4});
  EXPECT_THAT(strands_of_messages(*plan_of_sums(graph, 3, 1 << 20)),
              testing::Each("ReduceScatter AllGather"));
}

TEST(Schedule, MessagesShareStrandsIfThereAreMany) {
  Graph graph(1, {.rank = 0, .size = 4, .per_host = 4});
  const std::vector<std::string> strands = strands_of_messages(*plan_of_sums(graph, 20, 40));
  EXPECT_EQ(strands.size(), 8U);
  for (const std::string& names : strands)
    EXPECT_THAT(names, testing::StartsWith("ReduceScatter AddPieces AllGather ReduceScatter"));
}

// MPI adds what all processes post in one order.
TEST(Schedule, SumsOfMpiKeepTheirOrder) {
  Graph graph(1, {.rank = 0, .size = 2});
  std::vector<Fetch> fetches;
  for (int i = 0; i < 3; ++i) fetches.emplace_back(mpi_all_reduce(fill(graph, {2}, i)));
  Session session(graph, {.dry_run = true, .planned_place = graph.process()});
  EXPECT_THAT(strands_of_messages(*session.prepare(fetches).plan()),
              testing::ElementsAre("MpiAllReduce MpiAllReduce MpiAllReduce"));
}

TEST(Schedule, OnlyLargeCollectivesAreCutIntoParts) {
  const auto part = [](std::int64_t elements) {
    Graph graph;
    const Output x = fill(graph, {elements}, 1);
    const Output parts[] = {x, add_n({x, x})};
    const auto devices = cpu_devices(1);
    const Plan plan = compiled(devices, {all_reduce(parts)[0].node()});
    const Launch& launch = plan.launches.back();
    EXPECT_EQ(launch.range.size(), elements);
    return launch.part_size;
  };
  EXPECT_EQ(part(16 << 10), 16 << 10);        // 64 KiB: whole
  EXPECT_EQ(part((16 << 10) + 1), 16 << 10);  // two buffers of 64 KiB at a time
}

// Small parts would cost a sum of many tensors more than they balance.
TEST(Schedule, SumsOfManyTensorsHaveLongParts) {
  for (const auto& [kib, parts] : {std::pair(64, 1), std::pair(256, 4), std::pair(16 << 10, 64)}) {
    Graph graph;
    const Output x = fill(graph, {std::int64_t{kib} << 8}, 1);
    std::vector<Output> tensors(7, x);
    tensors.push_back(add_n({x, x}));
    const auto devices = cpu_devices(1);
    const Plan plan = compiled(devices, {all_reduce(tensors)[0].node()});
    EXPECT_EQ(plan.launches.back().parts(), parts) << kib << " KiB";
  }
}

TEST(Schedule, HugeLaunchesHaveNoMorePartsThanTicketsCount) {
  Graph graph;
  const Output made = random_uniform(graph, {std::int64_t{(32 << 10) + 63} << 20});
  const auto devices = cpu_devices(1);
  const Plan plan = compiled(devices, {made.node()});
  EXPECT_GT(plan.launches.back().parts(), kMostParts / 2);
  EXPECT_LE(plan.launches.back().parts(), kMostParts);
}

// All cores make first values, which are random numbers.
TEST(Schedule, RandomNumbersAreCutIntoParts) {
  const auto parts = [](const Output& made) {
    const auto devices = cpu_devices(1);
    return compiled(devices, {made.node()}).launches.back().parts();
  };
  Graph graph;
  EXPECT_EQ(parts(random_normal(graph, {16 << 10})), 1);  // 64 KiB
  EXPECT_EQ(parts(random_normal(graph, {1 << 20})), 32);
  EXPECT_EQ(parts(random_uniform(graph, {1 << 20})), 32);
  EXPECT_EQ(parts(random_normal(graph, {1 << 20}, 1, DType::kF16)), 1) << "one workspace";
  EXPECT_EQ(parts(fill(graph, {1 << 20}, 1)), 1) << "as fast as memory";
}

// Nothing else could occupy other workers.
TEST(Schedule, LargeLaunchesOfOneShardOnOneDeviceAreCutIntoParts) {
  Graph graph;
  const auto part_of = [&](const Output& made) {
    const auto devices = cpu_devices(1);
    const Plan plan = compiled(devices, {made.node()});
    for (const Launch& launch : plan.launches)
      if (plan.node(launch.node).node == &made.node()) return launch.part_size;
    return std::int64_t{0};
  };
  const auto filled = [&](Shape shape) { return fill(graph, shape, 1); };
  const auto product = [&](std::int64_t m, std::int64_t k, std::int64_t n) {
    return part_of(matmul(filled({m, k}), filled({k, n})));
  };
  EXPECT_EQ(product(300, 256, 256), 128);
  EXPECT_EQ(product(300, 256, 10), 300) << "few columns";
  EXPECT_EQ(product(300, 8, 256), 300) << "little work";
  EXPECT_EQ(product(12'800, 64, 256), 896) << "16 parts at most";
  EXPECT_EQ(product(0, 4'096, 4'096), 1);
  EXPECT_EQ(part_of(relu(filled({1 << 16}))), 1 << 15);
  EXPECT_EQ(part_of(relu(filled({1 << 15}))), 1 << 15) << "128 KiB";
  EXPECT_EQ(part_of(softmax(filled({100, 1 << 10}))), 34) << "by rows";
  EXPECT_EQ(part_of(relu(fill(graph, {1 << 16}, 1, DType::kF16))), 1 << 16) << "one workspace";
}

TEST(Schedule, LaunchesOfSeveralDevicesAreNotCut) {
  Graph graph;
  std::vector<Fetch> fetches;
  for (int d = 0; d < 2; ++d) {
    DeviceScope scope(graph, cpu(d));
    fetches.emplace_back(relu(fill(graph, {1 << 20}, d)).node());
  }
  const auto devices = cpu_devices(2);
  const Plan plan = compiled(devices, fetches);
  for (const Launch& launch : plan.launches) EXPECT_EQ(launch.parts(), 1);
}

TEST(Schedule, ABucketIsCutAsIfItsTensorsWereOne) {
  Graph graph;
  std::vector<std::vector<Output>> tensors;
  for (const std::int64_t elements : {9 << 10, 8 << 10, 1}) {
    const Output x = fill(graph, {elements}, 1);
    tensors.push_back({x, add_n({x, x})});
  }
  const auto devices = cpu_devices(1);
  const Plan plan = compiled(devices, {all_reduce_bucket(tensors)[0][0].node()});
  EXPECT_EQ(plan.launches.back().range.size(), (17 << 10) + 1);
  EXPECT_EQ(plan.launches.back().part_size, 16 << 10);
}

TEST(Schedule, BucketsTakeTurnsOnTheDevicesOfOneTensor) {
  Graph graph;
  std::vector<Output> parts;
  for (int d = 0; d < 2; ++d) {
    DeviceScope scope(graph, cpu(d));
    parts.push_back(fill(graph, {2}, d));
  }
  const std::vector<std::vector<Output>> tensors(3, parts);
  std::vector<Fetch> fetches;
  for (int i = 0; i < 2; ++i) fetches.emplace_back(all_reduce_bucket(tensors)[0][0].node());
  const auto devices = cpu_devices(2);
  const Plan plan = compiled(devices, fetches);
  EXPECT_EQ(plan.strands[0].launches.size(), 2u);
  EXPECT_EQ(plan.strands[1].launches.size(), 2u);
}

}  // namespace passes_schedule_test
}  // namespace belfry
