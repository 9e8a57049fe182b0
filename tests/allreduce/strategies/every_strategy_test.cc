#include <bit>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/allreduce/strategy.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/run/session.h"
#include "belfry/tests/allreduce/strategies/library_strategies.h"
#include "belfry/tests/allreduce/tables.h"
#include "belfry/tests/support/interpreter.h"
#include "belfry/tests/support/sanitizers.h"
#include "belfry/tests/support/test_devices.h"

namespace belfry {
namespace every_strategy_test {

using testing::ElementsAre;
using testing::IsSupersetOf;

void expect_bits(const Tensor& got, const std::vector<float>& want) {
  ASSERT_EQ(static_cast<std::size_t>(got.elements()), want.size());
  for (std::size_t i = 0; i < want.size(); ++i)
    ASSERT_EQ(std::bit_cast<std::uint32_t>(got.data<float>()[i]),
              std::bit_cast<std::uint32_t>(want[i]))
        << "element " << i << ": " << got.data<float>()[i] << " instead of " << want[i];
}

constexpr Packing kPackings[] = {
    {}, {.parts = 4}, {.small_bytes = 1024}, {.bucket_mb = 1.0 / 1024}, {.bucket_mb = 6.0 / 1024}};

struct Case {
  std::string spec;
  int towers;
};

void PrintTo(const Case& of, std::ostream* out) { *out << of.spec << " of " << of.towers; }

// Odd shapes, shapes smaller than the number of towers, empty ones, and a scalar.
std::vector<Shape> odd_shapes() {
  return {{33, 40}, {7}, {2, 3, 5}, {3001}, {}, {0, 4}, {3}, {1, 1}};
}

// The values of every tower, per variable. They are computed together, as variables share nodes.
std::vector<std::vector<Tensor>> evaluate_all(const GradientTable& table) {
  std::vector<Output> outputs;
  for (int v = 0; v < table.variables(); ++v)
    for (const Output& value : table.values(v)) outputs.push_back(value);
  const std::vector<Tensor> all = evaluate(outputs);
  std::vector<std::vector<Tensor>> values;
  for (auto first = all.begin(); first != all.end(); first += table.towers())
    values.emplace_back(first, first + table.towers());
  return values;
}

void expect_bits_in_session(const std::string& spec, const Packing& packing, int towers,
                            std::vector<Shape> shapes) {
  TestGradients gradients(test::devices(towers), std::move(shapes));
  const GradientTable reduced =
      make_strategy(spec)->reduce(gradients.table(), {.packing = packing});
  Session session(gradients.graph, test::on_devices(towers, 2));
  const auto values = evaluate_all(reduced);
  for (int v = 0; v < reduced.variables(); ++v) {
    std::vector<Fetch> fetches;
    for (const Output& value : reduced.values(v)) fetches.emplace_back(value);
    EXPECT_EQ(session.run(fetches), values[static_cast<std::size_t>(v)]) << "variable " << v;
  }
}

class EveryStrategy : public testing::TestWithParam<Case> {
 protected:
  // None, and every packing that the strategy supports.
  static std::vector<Packing> packings() {
    std::vector<Packing> all(std::begin(kPackings), std::end(kPackings));
    if (GetParam().spec == "colocate")
      std::erase_if(all, [](const Packing& p) { return p.parts > 0 || p.small_bytes > 0; });
    return all;
  }
  static GradientTable reduce(const TestGradients& gradients, const ReduceOptions& how,
                              At at = {}) {
    return make_strategy(GetParam().spec)->reduce(gradients.table(), how, at);
  }

  // Reduces and compares every tensor of every tower; the sum is divided by `divisor`.
  static void expect_all(Reduction reduction, float divisor) {
    TestGradients gradients(GetParam().towers, odd_shapes());
    for (const Packing& packing : packings()) {
      const GradientTable reduced = reduce(gradients, {.reduction = reduction, .packing = packing});
      ASSERT_EQ(reduced.towers(), GetParam().towers);
      ASSERT_EQ(reduced.variables(), std::ssize(odd_shapes()));
      const auto values = evaluate_all(reduced);
      for (int v = 0; v < reduced.variables(); ++v) {
        std::vector<float> want = gradients.tree(v, 0, GetParam().towers);
        for (float& x : want) x /= divisor;
        for (const Tensor& tensor : values[static_cast<std::size_t>(v)]) expect_bits(tensor, want);
      }
    }
  }
};

TEST_P(EveryStrategy, GivesEachTowerTheCanonicalSumBitForBit) { expect_all(Reduction::kSum, 1); }

TEST_P(EveryStrategy, DividesTheMeanOnceByTheNumberOfTowers) {
  expect_all(Reduction::kMean, static_cast<float>(GetParam().towers));
}

TEST_P(EveryStrategy, GivesTheSameBitsInASession) {
  const int towers = GetParam().towers;
  BELFRY_NEED_DEVICES(towers);
  for (const Packing& packing : packings())
    expect_bits_in_session(GetParam().spec, packing, towers, odd_shapes());
}

TEST_P(EveryStrategy, KeepsTheVariablesOfEachTower) {
  TestGradients gradients(GetParam().towers, odd_shapes());
  for (const Packing& packing : packings()) {
    const GradientTable reduced = reduce(gradients, {.packing = packing});
    for (int t = 0; t < reduced.towers(); ++t) {
      EXPECT_EQ(reduced.device(t), cpu(t));
      for (int v = 0; v < reduced.variables(); ++v)
        EXPECT_EQ(reduced.at(t, v).variable, gradients.rows[t][v].variable);
    }
  }
}

TEST_P(EveryStrategy, NamesTheLineThatAsksForIt) {
  TestGradients gradients(GetParam().towers, odd_shapes());
  for (const Packing& packing : packings()) {
    const std::size_t before = gradients.graph.size();
    const unsigned line = __LINE__ + 1;
    reduce(gradients, {.packing = packing});
    ASSERT_GT(gradients.graph.size(), before);
    for (std::size_t id = before; id < gradients.graph.size(); ++id)
      EXPECT_EQ(gradients.graph.node(id).origin().site.line, line)
          << gradients.graph.node(id).describe();
  }
}

// The names that `--allreduce` takes, as its error lists them: "... (strategies: collective, naive;
// aliases: xring)".
std::vector<std::string> accepted_names() {
  const std::string message = message_of([] { make_strategy("?"); });
  const std::string_view begin = "(strategies: ", aliases = "; aliases: ";
  std::string list = message.substr(message.rfind(begin) + begin.size());
  list.replace(list.find(aliases), aliases.size(), ", ");
  list.erase(list.rfind(')'));
  std::vector<std::string> names;
  for (const std::string_view name : split(list, ','))
    names.emplace_back(name.substr(name.find_first_not_of(' ')));
  return names;
}

// The strategies of the library, under one name each, some in chunks, and some by sizes of tensors.
std::set<std::string> specs() {
  std::set<std::string> all = {"collective#3",
                               "shuffle#3",
                               "ring#2",
                               "ring#5",
                               "xring#3",
                               "naive:100:ring",
                               "shuffle:1K:collective:4K:hierarchical"};
  for (const std::string& name : accepted_names())
    if (!name.starts_with(kNamesOfTests)) all.insert(main_strategy_name(name));
  return all;
}

// Those that serve so many CPUs of one process, and say that their order is canonical, or is not.
std::vector<Case> cases(bool canonical) {
  std::vector<Case> all;
  for (const std::string& spec : specs())
    for (const int towers : {2, 3, 4, 6, 7, 8}) {
      const auto strategy = make_strategy(spec);
      if (strategy->refusal(cpus(towers)).empty() && strategy->canonical(towers) == canonical)
        all.push_back({spec, towers});
    }
  return all;
}

std::string name_of(const Case& of) {
  std::string name = cat(of.spec, "_of_", of.towers);
  for (char& c : name)
    if (c == ':' || c == '#') c = '_';
  return name;
}

INSTANTIATE_TEST_SUITE_P(Towers, EveryStrategy, testing::ValuesIn(cases(true)),
                         [](const auto& test) { return name_of(test.param); });

// Strategies that add in another order than the tree.
class OtherOrders : public testing::TestWithParam<Case> {};

TEST_P(OtherOrders, GiveEachTowerTheSameSumWithinRounding) {
  if (kThreadSanitized) GTEST_SKIP() << "computes on one thread";
  const auto [spec, towers] = GetParam();
  TestGradients gradients(towers, odd_shapes());
  const auto strategy = make_strategy(spec);
  for (const Packing& packing : kPackings)
    for (const Reduction reduction : {Reduction::kSum, Reduction::kMean}) {
      const float divisor = reduction == Reduction::kMean ? static_cast<float>(towers) : 1;
      const GradientTable reduced =
          strategy->reduce(gradients.table(), {.reduction = reduction, .packing = packing});
      const auto values = evaluate_all(reduced);
      for (int v = 0; v < reduced.variables(); ++v) {
        const std::vector<float> want = gradients.tree(v, 0, towers);
        const std::vector<float> sizes = gradients.sum_of_magnitudes(v);
        const std::vector<Tensor>& got = values[static_cast<std::size_t>(v)];
        for (const Tensor& tensor : got) EXPECT_EQ(tensor, got[0]) << "variable " << v;
        ASSERT_EQ(got[0].shape(), odd_shapes()[v]);
        for (std::size_t i = 0; i < want.size(); ++i)
          ASSERT_NEAR(got[0].data<float>()[i], want[i] / divisor, 1e-6F * sizes[i] / divisor)
              << "variable " << v << ", element " << i;
      }
    }
}

TEST_P(OtherOrders, GiveTheSameBitsInASession) {
  const auto [spec, towers] = GetParam();
  BELFRY_NEED_DEVICES(towers);
  expect_bits_in_session(spec, {}, towers, {{33, 40}, {5}, {}});
}

INSTANTIATE_TEST_SUITE_P(Towers, OtherOrders, testing::ValuesIn(cases(false)),
                         [](const auto& test) { return name_of(test.param); });

// What the library promises, beyond what each strategy says of itself.
TEST(CanonicalOrders, AreThoseOfAllStrategiesButRings) {
  std::set<std::string> canonical, others;
  for (const Case& of : cases(true))
    if (of.towers == 4) canonical.insert(of.spec);
  for (const Case& of : cases(false))
    if (of.towers == 4) others.insert(of.spec);
  EXPECT_THAT(canonical,
              IsSupersetOf({"collective", "collective#3", "naive", "naive_cpu", "hierarchical",
                            "colocate", "shuffle", "shuffle#3", "pscpu", "halving_doubling"}));
  EXPECT_THAT(others, IsSupersetOf({"naive:100:ring", "ring", "ring#2", "ring#5", "xring#3"}));
}

}  // namespace every_strategy_test
}  // namespace belfry
