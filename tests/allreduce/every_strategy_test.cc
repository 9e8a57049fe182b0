#include <bit>

#include <gtest/gtest.h>

#include "belfry/allreduce/bucketed.h"
#include "belfry/allreduce/gradient_packer.h"
#include "belfry/allreduce/strategy.h"
#include "belfry/framework/session.h"
#include "belfry/tests/allreduce/tables.h"
#include "belfry/tests/support/interpreter.h"

namespace belfry {
namespace {

void expect_bits(const Tensor& got, const std::vector<float>& want) {
  ASSERT_EQ(static_cast<std::size_t>(got.elements()), want.size());
  for (std::size_t i = 0; i < want.size(); ++i)
    ASSERT_EQ(std::bit_cast<std::uint32_t>(got.data<float>()[i]),
              std::bit_cast<std::uint32_t>(want[i]))
        << "element " << i << ": " << got.data<float>()[i] << " instead of " << want[i];
}

struct Case {
  std::string strategy;
  int towers;
  int parts;    // 0: not packed
  int kib = 0;  // per bucket; 0: no buckets
};

class EveryStrategy : public testing::TestWithParam<Case> {
 protected:
  std::unique_ptr<Strategy> strategy() const {
    std::unique_ptr<Strategy> made = make_strategy(GetParam().strategy);
    if (GetParam().kib > 0) return bucketed(std::move(made), GetParam().kib / 1024.0);
    return GetParam().parts > 0 ? packed(std::move(made), GetParam().parts) : std::move(made);
  }
  static std::vector<Shape> shapes() { return {{33, 40}, {7}, {2, 3, 5}, {3001}, {}}; }

  // Reduces and compares every tensor of every tower; the sum is divided by `divisor`.
  void expect_all(Reduction reduction, float divisor) const {
    TestGradients gradients(GetParam().towers, shapes());
    const GradientTable reduced = strategy()->reduce(gradients.table(), {.reduction = reduction});
    ASSERT_EQ(reduced.towers(), GetParam().towers);
    ASSERT_EQ(reduced.variables(), 5);
    for (int v = 0; v < reduced.variables(); ++v) {
      std::vector<float> want = gradients.tree(v, 0, GetParam().towers);
      for (float& x : want) x /= divisor;
      const std::vector<Tensor> got = evaluate(reduced.values(v));
      for (const Tensor& tensor : got) expect_bits(tensor, want);
    }
  }
};

TEST_P(EveryStrategy, GivesEachTowerTheCanonicalSumBitForBit) {
  EXPECT_TRUE(strategy()->canonical(GetParam().towers));
  expect_all(Reduction::kSum, 1);
}

TEST_P(EveryStrategy, DividesTheMeanOnceByTheNumberOfTowers) {
  expect_all(Reduction::kMean, static_cast<float>(GetParam().towers));
}

TEST_P(EveryStrategy, GivesTheSameBitsInASession) {
  TestGradients gradients(GetParam().towers, shapes());
  const GradientTable reduced = strategy()->reduce(gradients.table());
  Session session(gradients.graph, {.device_count = {{"CPU", GetParam().towers}}, .threads = 2});
  for (int v = 0; v < reduced.variables(); ++v) {
    std::vector<Fetch> fetches;
    for (const Output& value : reduced.values(v)) fetches.emplace_back(value);
    const std::vector<Tensor> want = evaluate(reduced.values(v));
    EXPECT_EQ(session.run(fetches), want) << "variable " << v;
  }
}

TEST_P(EveryStrategy, KeepsTheVariablesOfEachTower) {
  TestGradients gradients(GetParam().towers, shapes());
  const GradientTable reduced = strategy()->reduce(gradients.table());
  for (int t = 0; t < reduced.towers(); ++t) {
    EXPECT_EQ(reduced.device(t), cpu(t));
    for (int v = 0; v < reduced.variables(); ++v)
      EXPECT_EQ(reduced.at(t, v).variable, gradients.rows[t][v].variable);
  }
}

TEST_P(EveryStrategy, NamesTheLineThatAsksForIt) {
  TestGradients gradients(GetParam().towers, shapes());
  const std::size_t before = gradients.graph.size();
  const unsigned line = __LINE__ + 1;
  strategy()->reduce(gradients.table());
  ASSERT_GT(gradients.graph.size(), before);
  for (std::size_t id = before; id < gradients.graph.size(); ++id)
    EXPECT_EQ(gradients.graph.node(id).site().line, line) << gradients.graph.node(id).describe();
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const char* name : {"collective", "naive", "hierarchical", "colocate"})
    for (const int towers : {2, 3, 4, 6, 8})
      for (const int parts : {0, 4}) {
        if (std::string(name) == "hierarchical" && towers % 2 == 1) continue;
        if (std::string(name) == "colocate" && parts > 0) continue;
        all.push_back({name, towers, parts});
        for (const int kib : {1, 6, 1024})
          if (parts == 0) all.push_back({name, towers, 0, kib});
      }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Towers, EveryStrategy, testing::ValuesIn(cases()), [](const auto& test) {
  return cat(test.param.strategy, "_of_", test.param.towers, "_in_", test.param.parts, "_parts",
             test.param.kib > 0 ? cat("_or_buckets_of_", test.param.kib, "_kib") : "");
});

}  // namespace
}  // namespace belfry
