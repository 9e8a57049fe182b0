// No combination of ways to train changes a bit of the trained model.
#include <algorithm>
#include <array>
#include <cstdlib>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/framework/base/text.h"
#include "belfry/tests/allreduce/prediction/machines.h"
#include "belfry/tests/allreduce/strategies/library_strategies.h"
#include "belfry/tests/support/sanitizers.h"
#include "belfry/tests/support/test_devices.h"
#include "belfry/trainers/core/trainer.h"
#include "belfry/trainers/core/trainer_kinds.h"
#include "belfry/trainers/data/synthetic_data.h"
#include "belfry/trainers/models/models.h"
#include "belfry/trainers/util/hash.h"

namespace belfry {
namespace product_test {

constexpr int kBatch = 4;  // per tower

// $BELFRY_PRODUCT_STEPS, or 20. Races show in the first steps.
int steps() {
  const char* given = std::getenv("BELFRY_PRODUCT_STEPS");
  return given ? std::atoi(given) : kSanitized ? 3 : 20;
}

// One combination of settings.
struct Cell {
  std::string trainer = "replicated";
  TrainerOptions options;
};

struct Setting {
  std::string name;
  std::function<void(Cell&)> apply;
};

// The numbers of towers, and the models with the size of their images.
const std::vector<int> kTowers = kSanitized ? std::vector{4} : std::vector{2, 4, 6, 8};
const std::vector<std::pair<std::string, int>> kModels{{"resnet20", 8}, {"mnist", 28}};

// Each strategy that the replicated trainer takes, and whose order is canonical for all these
// numbers of towers. The first is collective.
std::vector<Setting> canonical_strategies() {
  std::vector<Setting> settings;
  for (const std::string& name : library_strategies()) {
    const auto strategy = make_strategy(name);
    const auto serves = [&](int towers) {
      return strategy->canonical(towers) &&
             strategy->refusal(std::vector<DeviceSpec>(static_cast<std::size_t>(towers))).empty();
    };
    if (!find_trainer("replicated").accepts(name) || !std::ranges::all_of(kTowers, serves))
      continue;
    settings.push_back({name, [name](Cell& c) { c.options.aggregation.allreduce = name; }});
  }
  std::ranges::stable_partition(settings, [](auto& s) { return s.name == "collective"; });
  return settings;
}

// The choice is mostly naive or hierarchical: collectives take turns, so each pays the latency.
void choose(Cell& c) {
  c.options.aggregation.allreduce = "auto";
  c.options.aggregation.choice = {.buckets = {0},
                                  .machine = std::make_shared<const MachineDescription>(
                                      machine_of_links(8, {.latency_us = 50, .gbps = 100}))};
}

void colocate(Cell& c) {
  c.trainer = "parameter_server";
  c.options.aggregation.allreduce = "colocate";
}

std::vector<Setting> ways_to_combine() {
  std::vector<Setting> settings = canonical_strategies();
  settings.push_back({"auto", choose});
  settings.push_back({"colocate", colocate});
  return settings;
}

// Settings that must not change a bit, in one list per axis. The first of each axis is the
// reference. Settings apply in the order of the axes. A new way to train is a line here.
const std::vector<std::vector<Setting>>& axes() {
  static const std::vector<std::vector<Setting>> all{
      ways_to_combine(),
      {{"plain", [](Cell&) {}},
       {"packed",
        [](Cell& c) {
          c.options.aggregation.gradient_repacking =
              find_trainer(c.trainer).packs_gradients ? 3 : 0;
        }},
       {"bucketed",
        [](Cell& c) {
          c.options.aggregation.bucket_mb = 0.05;
          c.options.aggregation.choice.buckets = {0.05};
        }}},
      {{"fused", [](Cell& c) { c.options.session.fuse = true; }},
       {"apart", [](Cell& c) { c.options.session.fuse = false; }}},
      {{"shared", [](Cell& c) { c.options.session.share_replicas = true; }},
       {"private", [](Cell& c) { c.options.session.share_replicas = false; }}},
      {{"1 thread", [](Cell& c) { c.options.session.threads = 1; }},
       {"2 threads", [](Cell& c) { c.options.session.threads = 2; }},
       {"4 threads", [](Cell& c) { c.options.session.threads = 4; }}},
      {{"unwatched", [](Cell&) {}},
       {"watched",
        [](Cell& c) {
          c.options.log_gradient_norms = true;
          c.options.histograms = {.every = 3, .patterns = {"*", "gradients", "activations"}};
        }}},
  };
  return all;
}

using Choice = std::vector<std::size_t>;  // a setting of each axis

std::vector<Choice> product(const std::vector<std::size_t>& sizes) {
  std::vector<Choice> choices{{}};
  for (const std::size_t size : sizes) {
    std::vector<Choice> longer;
    for (const Choice& choice : choices)
      for (std::size_t i = 0; i < size; ++i) {
        longer.push_back(choice);
        longer.back().push_back(i);
      }
    choices = std::move(longer);
  }
  return choices;
}

// Settings of two axes: axis, setting, axis, setting.
using Pair = std::array<std::size_t, 4>;

std::set<Pair> pairs_of(const Choice& choice) {
  std::set<Pair> pairs;
  for (std::size_t a = 0; a < choice.size(); ++a)
    for (std::size_t b = a + 1; b < choice.size(); ++b) pairs.insert({a, choice[a], b, choice[b]});
  return pairs;
}

// Some of the choices, in which each pair of settings occurs. It always takes the choice with the
// most new pairs.
std::vector<Choice> pairwise(const std::vector<Choice>& all) {
  std::set<Pair> missing;
  for (const Choice& choice : all) missing.merge(pairs_of(choice));
  std::vector<Choice> chosen;
  while (!missing.empty()) {
    const auto fresh = [&](const Choice& choice) {
      return std::ranges::count_if(pairs_of(choice), [&](auto& p) { return missing.contains(p); });
    };
    const Choice best = *std::ranges::max_element(all, {}, fresh);
    for (const Pair& pair : pairs_of(best)) missing.erase(pair);
    chosen.push_back(best);
  }
  return chosen;
}

TEST(Pairwise, HoldsEveryPairInFewerCells) {
  const std::vector<Choice> all = product({3, 3, 3, 3});
  EXPECT_EQ(all.size(), 81u);
  const std::vector<Choice> chosen = pairwise(all);
  std::set<Pair> wanted, found;
  for (const Choice& choice : all) wanted.merge(pairs_of(choice));
  for (const Choice& choice : chosen) found.merge(pairs_of(choice));
  EXPECT_EQ(found, wanted);
  EXPECT_EQ(wanted.size(), 6u * 9u);
  EXPECT_LE(chosen.size(), 15u);
  EXPECT_GE(chosen.size(), 9u);
}

class EqualBits : public testing::TestWithParam<std::tuple<std::pair<std::string, int>, int>> {
 protected:
  void SetUp() override { BELFRY_NEED_DEVICES(std::get<1>(GetParam())); }

  static std::string run(const Choice& choice) {
    const auto& [model, towers] = GetParam();
    const ModelSpec spec = find_model(model.first, model.second);
    const auto data = synthetic_data(spec.fields, spec.classes, towers * kBatch, 5);
    Cell cell{.options = {.model = spec.model,
                          .optimizer = spec.optimizer,
                          .batch_size = kBatch,
                          .epochs = steps()}};
    cell.options.devices = test::devices(towers);
    cell.options.session.logical_gpus = test::logical_gpus();
    cell.options.session.deterministic = true;
    for (std::size_t axis = 0; axis < choice.size(); ++axis) axes()[axis][choice[axis]].apply(cell);
    const auto trainer =
        std::make_unique<Trainer>(find_trainer(cell.trainer), std::move(cell.options), *data);
    trainer->train();
    EXPECT_EQ(trainer->steps(), steps());
    EXPECT_TRUE(differing_replicas(trainer->session(), trainer->graph()).empty());
    return cat(params_hash(trainer->session(), trainer->graph()), " ",
               state_hash(trainer->session(), trainer->graph()));
  }

  static std::vector<std::size_t> sizes() {
    std::vector<std::size_t> result;
    for (const auto& axis : axes()) result.push_back(axis.size());
    return result;
  }

  static void expect_equal(const std::vector<Choice>& choices) {
    const std::string reference = run(Choice(axes().size()));
    for (const Choice& choice : choices) EXPECT_EQ(run(choice), reference) << name(choice);
  }

  static std::string name(const Choice& choice) {
    std::vector<std::string> names;
    for (std::size_t axis = 0; axis < choice.size(); ++axis)
      names.emplace_back(axes()[axis][choice[axis]].name);
    return join(names);
  }
};

TEST(CanonicalStrategies, AreAmongTheWaysToCombine) {
  std::vector<std::string> names;
  for (const Setting& setting : ways_to_combine()) names.push_back(setting.name);
  EXPECT_EQ(names.front(), "collective");
  EXPECT_THAT(names, testing::IsSupersetOf(
                         {"naive", "naive_cpu", "shuffle", "hierarchical", "auto", "colocate"}));
}

TEST_P(EqualBits, InAPairwiseSelection) { expect_equal(pairwise(product(sizes()))); }

TEST_P(EqualBits, LongInEveryCombination) {
  if (kSanitized) GTEST_SKIP() << "too slow under sanitizers";
  expect_equal(product(sizes()));
}

INSTANTIATE_TEST_SUITE_P(Product, EqualBits,
                         testing::Combine(testing::ValuesIn(kModels), testing::ValuesIn(kTowers)),
                         [](const auto& test) {
                           return cat(std::get<0>(test.param).first, "_", std::get<1>(test.param));
                         });

}  // namespace product_test
}  // namespace belfry
