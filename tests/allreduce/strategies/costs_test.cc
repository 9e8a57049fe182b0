// The traffic of strategies, against the formulas of docs/strategies.md.
#include <algorithm>
#include <bit>
#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/allreduce/strategy.h"
#include "belfry/framework/core_ops/transfer.h"
#include "belfry/framework/plan/plan.h"
#include "belfry/framework/run/session.h"
#include "belfry/ops/square.h"
#include "belfry/tests/allreduce/strategies/library_strategies.h"
#include "belfry/tests/allreduce/tables.h"

namespace belfry {
namespace costs_test {

using testing::Contains;
using testing::IsSupersetOf;
using testing::Not;

struct Costs {
  std::int64_t transfers = 0, bytes = 0;
  int hops = 0;                    // transfers that wait for each other
  std::int64_t most_received = 0;  // received by one device
  bool operator==(const Costs&) const = default;
};

void PrintTo(const Costs& c, std::ostream* out) {
  *out << c.transfers << " transfers of " << c.bytes << " bytes, " << c.hops << " hops, "
       << c.most_received << " bytes into one device";
}

// The longest chain of transfers. A collective counts as a gather and a broadcast, as its records
// do.
int hops_of(const Plan& plan) {
  Indexed<PlanNode, int> depth(plan.nodes.size());
  for (const NodeIndex n : plan.nodes.indices()) {
    const PlanNode& node = plan.nodes[n];
    for (const Value& input : node.inputs) depth[n] = std::max(depth[n], depth[input.node]);
    if (node.op == &kTransfer) ++depth[n];
    if (node.op->collective) depth[n] += 2;
  }
  return depth.empty() ? 0 : std::ranges::max(depth);
}

// The traffic of a plan in which every tower uses its own results. Gradients are computed, as
// constants would exist on every device that needs them.
Costs measured(const Strategy& strategy, int towers, const std::vector<Shape>& shapes,
               const Packing& packing = {}) {
  TestGradients g(towers, shapes);
  for (int t = 0; t < towers; ++t) {
    DeviceScope on(g.graph, cpu(t));
    for (Gradient& x : g.rows[static_cast<std::size_t>(t)]) x.value = square(x.value);
  }
  const GradientTable reduced = strategy.reduce(g.table(), {.packing = packing});
  std::vector<Fetch> fetches;
  for (int t = 0; t < towers; ++t) {
    DeviceScope on(g.graph, cpu(t));
    for (int v = 0; v < reduced.variables(); ++v)
      fetches.emplace_back(square(reduced.at(t, v).value));
  }
  Session session(g.graph, {.device_count = {{"CPU", towers}}});
  const Plan& plan = *session.prepare(fetches).plan();
  Costs costs{.hops = hops_of(plan)};
  std::map<int, std::int64_t> received;
  for (const TransferRecord& record : plan.transfers) {
    ++costs.transfers;
    costs.bytes += record.bytes;
    received[record.to] += record.bytes;
  }
  for (const auto& [device, bytes] : received)
    costs.most_received = std::max(costs.most_received, bytes);
  return costs;
}

// The formulas, for one tensor whose number of elements is divisible by K and by P. Names without a
// branch have those of naive.
Costs expected(const std::string& name, std::int64_t towers, std::int64_t elements) {
  const std::int64_t bytes = 4 * elements, all = 2 * (towers - 1) * bytes;
  const std::int64_t even_share = all / towers;
  if (name == "hierarchical")
    return {2 * (towers - 1), all, towers == 2 ? 2 : 4, towers / 2 * bytes};
  if (name.starts_with("shuffle") || name.starts_with("pscpu") || name.starts_with("ring")) {
    const std::int64_t parts = name.ends_with("#3") ? 3 : 1;
    const int hops = name.starts_with("ring") ? static_cast<int>(2 * (towers - 1)) : 2;
    return {2 * (towers - 1) * std::min(parts * towers, elements), all, hops, even_share};
  }
  if (name == "halving_doubling") {
    const auto members =
        static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(towers)));
    const int hops = std::countr_zero(static_cast<std::uint64_t>(members));
    const bool folds = towers > members;
    return {2 * members * hops + 2 * (towers - members), all, 2 * hops + (folds ? 2 : 0),
            2 * (members - 1) * bytes / members + (folds ? bytes : 0)};
  }
  const std::int64_t parts = name == "collective#3" ? std::min<std::int64_t>(3, elements) : 1;
  return {2 * (towers - 1) * parts, all, 2, (towers - 1) * bytes};
}

// All strategies that serve CPUs of one process, pscpu, and those in three chunks that may be cut.
std::vector<std::string> specs(int towers) {
  std::vector<std::string> names = library_strategies();
  names.emplace_back("pscpu");
  std::vector<std::string> all;
  for (const std::string& name : names) {
    const auto strategy = make_strategy(name);
    if (!strategy->refusal(cpus(towers)).empty()) continue;
    all.push_back(name);
    if (strategy->in_chunks(3)) all.push_back(name + "#3");
  }
  return all;
}

TEST(Costs, AreOfAllStrategiesInChunksToo) {
  EXPECT_THAT(specs(4), IsSupersetOf({"naive", "naive_cpu", "colocate", "collective",
                                      "hierarchical", "shuffle", "pscpu", "ring",
                                      "halving_doubling", "shuffle#3", "ring#3", "collective#3"}));
  EXPECT_THAT(specs(3), Not(Contains("hierarchical")));
}

TEST(Costs, AreThoseOfTheFormulas) {
  for (const int towers : {2, 3, 4, 6, 8})
    for (const std::string& spec : specs(towers))
      EXPECT_EQ(measured(*make_strategy(spec), towers, {{24, 10}}), expected(spec, towers, 240))
          << spec << " of " << towers;
}

// The lengths are not divisible by anything, or are below the number of fragments.
TEST(Costs, OfAnyLengthMoveTheSameBytes) {
  for (const int towers : {2, 3, 4, 6, 8})
    for (const std::string& spec : specs(towers))
      for (const std::int64_t elements : {1, 5, 7, 1001}) {
        const Costs got = measured(*make_strategy(spec), towers, {{elements}});
        const Costs want = expected(spec, towers, elements);
        EXPECT_EQ(got.bytes, want.bytes)
            << spec << " of " << towers << ", " << elements << " elements";
        if (spec != "halving_doubling" || elements >= towers) {
          EXPECT_EQ(got.transfers, want.transfers)
              << spec << " of " << towers << ", " << elements << " elements";
          EXPECT_EQ(got.hops, want.hops) << spec << " of " << towers;
        }
      }
}

TEST(Costs, AddUpOverTensors) {
  const std::vector<Shape> shapes{{1000}, {30, 100}, {7}, {5000}, {}, {0}};
  for (const int towers : {2, 3, 4, 6, 8})
    for (const std::string& spec : specs(towers)) {
      std::int64_t bytes = 0;
      for (const Shape& shape : shapes) bytes += expected(spec, towers, shape.elements()).bytes;
      EXPECT_EQ(measured(*make_strategy(spec), towers, shapes).bytes, bytes)
          << spec << " of " << towers;
    }
}

TEST(Costs, OfNaiveCpuWithoutATowerThereAreOneTransferMoreEachWay) {
  Graph graph;
  std::vector<std::vector<Gradient>> rows(2);
  for (int t = 0; t < 2; ++t) {
    DeviceScope on(graph, cpu(t + 1));
    rows[static_cast<std::size_t>(t)] = {{square(constant(graph, Tensor({6}, DType::kF32))), {}}};
  }
  const GradientTable sums = make_strategy("naive_cpu")->reduce(GradientTable(rows));
  std::vector<Fetch> fetches;
  for (int t = 0; t < 2; ++t) {
    DeviceScope on(graph, cpu(t + 1));
    fetches.emplace_back(square(sums.at(t, 0).value));
  }
  Session session(graph, {.device_count = {{"CPU", 3}}});
  EXPECT_EQ(session.prepare(fetches).plan()->transfers.size(), 4U);
}

TEST(Costs, InFourPartsAreThoseOfFourTensors) {
  const std::vector<Shape> shapes{{1000}, {30, 100}, {7}, {5000}, {3}};
  constexpr std::int64_t kBytes = 4 * (1000 + 3000 + 7 + 5000 + 3);
  for (const char* name : {"naive", "hierarchical", "collective"}) {
    const Costs got = measured(*make_strategy(name), 4, shapes, {.parts = 4});
    EXPECT_EQ(got.bytes, 2 * 3 * kBytes) << name;
    EXPECT_EQ(got.transfers, 2 * 3 * 4) << name;
  }
}

}  // namespace costs_test
}  // namespace belfry
