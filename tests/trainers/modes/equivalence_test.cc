#include "belfry/trainers/modes/equivalence.h"

#include <algorithm>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "belfry/allreduce/strategy.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/core_ops/add_n.h"
#include "belfry/ops/matmul.h"
#include "belfry/ops/operand.h"
#include "belfry/tests/support/sanitizers.h"
#include "belfry/tests/trainers/core/small_problem.h"
#include "belfry/tests/trainers/util/fake_console.h"
#include "belfry/trainers/program/train.h"

namespace belfry {
namespace equivalence_test {

using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;
using testing::IsSupersetOf;
using testing::Not;
using testing::StartsWith;

// A user's strategy, which adds from left to right. It may claim that this is the canonical order.
class LeftToRight final : public Strategy {
 public:
  static inline bool claims_canonical = false;
  bool canonical(int) const override { return claims_canonical; }

 private:
  std::vector<std::vector<Output>> sum(const GradientTable& grads) const override {
    std::vector<Output> sums;
    for (int v = 0; v < grads.variables(); ++v) {
      Output total = grads.at(0, v).value;
      for (int t = 1; t < grads.towers(); ++t) total = total + grads.at(t, v).value;
      sums.push_back(total);
    }
    return std::vector(static_cast<std::size_t>(grads.towers()), sums);
  }
};

const StrategyRegistration left_to_right{"left_to_right",
                                         [] { return std::make_unique<LeftToRight>(); }};

struct ClaimsCanonical {
  ClaimsCanonical() { LeftToRight::claims_canonical = true; }
  ~ClaimsCanonical() { LeftToRight::claims_canonical = false; }
};

TrainerOptions options(int towers) {
  TrainerOptions result{.model = smooth_model, .optimizer = momentum(0.1), .batch_size = 4};
  result.devices.clear();
  for (int i = 0; i < towers; ++i) result.devices.push_back(DeviceSpec::local("CPU", i));
  return result;
}

const Equivalence::Entry* find(const Equivalence& result, const std::string& name) {
  for (const Equivalence::Entry& entry : result.entries)
    if (entry.mode.name() == name) return &entry;
  return nullptr;
}

TEST(Modes, AreAllTrainersWithAllStrategiesThatTheyTakeTheUsersToo) {
  std::vector<std::string> names;
  for (const Mode& mode : all_modes(options(4).devices)) {
    names.push_back(mode.name());
    EXPECT_NE(mode.trainer, "simple");
    const TrainerKind& kind = find_trainer(mode.trainer);
    EXPECT_TRUE(mode.allreduce.empty() || kind.accepts(mode.allreduce)) << mode.name();
  }
  EXPECT_THAT(names,
              IsSupersetOf({"parameter_server colocate", "parameter_server colocate bucketed",
                            "replicated collective", "replicated naive", "replicated hierarchical",
                            "replicated naive packed:2", "replicated naive bucketed",
                            "replicated naive unfused", "replicated naive unshared",
                            "replicated naive unfused unshared", "replicated left_to_right",
                            "replicated nccl", "async ordered", "async free"}));
  EXPECT_THAT(names, Not(Contains("replicated nccl bucketed"))) << "it cannot serve at all";
  EXPECT_EQ(all_modes(options(1).devices).back().name(), "replicated nccl")
      << "it cannot serve one tower either";
  EXPECT_EQ((Mode{"replicated", "naive", 2}.name()), "replicated naive packed:2");
  EXPECT_EQ(Mode{"simple"}.name(), "simple");
}

TEST(Modes, PutCanonicalOnesFirst) {
  const std::vector<Mode> modes = all_modes(options(4).devices);
  EXPECT_TRUE(std::ranges::is_partitioned(
      modes, [](const Mode& m) { return m.canonical(options(4).devices); }));
  EXPECT_TRUE(modes.front().canonical(options(4).devices));
  EXPECT_FALSE((Mode{"replicated", "left_to_right"}.canonical(options(4).devices)));
  EXPECT_FALSE((Mode{"replicated", "no_such_strategy"}.canonical(options(4).devices)));
  EXPECT_TRUE(Mode{"simple"}.canonical(options(1).devices));
  EXPECT_FALSE(Mode{"simple"}.canonical(options(2).devices));
}

// Such is a trainer of a user who gives it no strategies to choose from.
TEST(Modes, AreCanonicalForATrainerThatPromisesItAndCombinesInOneWay) {
  const TrainerKind own{.name = "own", .canonical = true};
  EXPECT_TRUE(combines_canonically(own, "", options(4).devices));
  EXPECT_FALSE(combines_canonically({.name = "own"}, "", options(4).devices));
}

TEST(CheckEquivalence, ShowsHowFarItIs) {
  const auto data = smooth_data(40);
  const Mode modes[] = {{"replicated", "naive"}, {"replicated", "collective"}};
  FakeConsole fake(false, /*per_look=*/4);  // so every second part has a line
  EXPECT_TRUE(check_equivalence(options(2), *data, 4, modes, &fake.console).holds());
  const std::string text = fake.printed();
  EXPECT_TRUE(
      text.starts_with("mode 1 of 2: replicated naive: step 1/4\n"
                       "mode 1 of 2: replicated naive: step 3/4\n"
                       "replicated naive: compared 1/8 variables\n"))
      << text;
  EXPECT_THAT(text, testing::HasSubstr("mode 2 of 2: replicated collective: step "));
  EXPECT_THAT(text, testing::HasSubstr("replicated collective: compared "));
}

TEST(CheckEquivalence, FindsAllCanonicalModesEqualWithTheirCosts) {
  const auto data = smooth_data(40);
  const Equivalence result = check_equivalence(options(4), *data, 7, all_modes(options(4).devices));
  EXPECT_TRUE(result.holds());
  EXPECT_EQ(result.steps, 7);
  for (const char* name : {"parameter_server colocate", "replicated collective",
                           "replicated hierarchical", "replicated naive"}) {
    const Equivalence::Entry* entry = find(result, name);
    ASSERT_TRUE(entry) << name;
    EXPECT_TRUE(entry->canonical) << name;
    EXPECT_EQ(entry->refusal, "") << name;
    std::set<std::string> variables;
    for (const auto& [variable, ulp, most] : entry->values) {
      variables.insert(variable);
      EXPECT_EQ(ulp, 0u) << name << " " << variable;
      EXPECT_EQ(most, 0) << name << " " << variable;
    }
    EXPECT_EQ(variables,
              (std::set<std::string>{"fc0/W", "fc0/b", "fc1/W", "fc1/b", "fc0/W/Momentum",
                                     "fc0/b/Momentum", "fc1/W/Momentum", "fc1/b/Momentum"}));
    EXPECT_GT(entry->peak_bytes, 0) << name;
    EXPECT_GT(entry->seconds, 0) << name;
  }
  // 31 gradients of 8 bytes go from three devices to the first, and back.
  EXPECT_EQ(find(result, "replicated collective")->bytes_moved, 2 * 3 * 31 * 8);
  // Without sharing there are three more copies of 31 variables and their slots.
  EXPECT_GE(find(result, "replicated collective unshared")->peak_bytes,
            find(result, "replicated collective")->peak_bytes + 3 * 2 * 31 * 8);
}

TEST(CheckEquivalence, MeasuresOtherOrdersAndDoesNotBlameThem) {
  const auto data = smooth_data(40);
  const Equivalence result = check_equivalence(options(4), *data, 7, all_modes(options(4).devices));
  const Equivalence::Entry* other = find(result, "replicated left_to_right");
  ASSERT_TRUE(other);
  EXPECT_FALSE(other->canonical);
  EXPECT_GT(other->max_ulp(), 0u);
  EXPECT_TRUE(result.holds());
}

TEST(CheckEquivalence, ReportsBothWaysOfAsyncAndJudgesNeither) {
  const auto data = smooth_data(40);
  const Mode modes[] = {{"replicated", "collective"},
                        {.trainer = "async", .async = "ordered"},
                        {.trainer = "async", .async = "free"}};
  const Equivalence result = check_equivalence(options(4), *data, 7, modes);
  EXPECT_TRUE(result.holds());
  for (const std::size_t i : {1, 2}) {
    const Equivalence::Entry& entry = result.entries[i];
    EXPECT_EQ(entry.refusal, "");
    EXPECT_FALSE(entry.canonical);
    EXPECT_GT(entry.max_ulp(), 0u);
    EXPECT_EQ(entry.values.size(), 8u);
  }
  EXPECT_THAT(result.to_table(), testing::AllOf(HasSubstr("async ordered (not canonical)"),
                                                HasSubstr("async free (not")));
}

TEST(CheckEquivalence, FindsAStrategyThatIsNotWhatItClaims) {
  const ClaimsCanonical claim;
  const auto data = smooth_data(40);
  const Mode modes[] = {{"replicated", "collective"}, {"replicated", "left_to_right"}};
  const Equivalence result = check_equivalence(options(4), *data, 7, modes);
  EXPECT_FALSE(result.holds());
  EXPECT_EQ(result.entries[0].max_ulp(), 0u);
  EXPECT_GT(result.entries[1].max_ulp(), 0u);
  EXPECT_THAT(result.to_table(), HasSubstr("MODES THAT MUST AGREE DIFFER"));
  EXPECT_THAT(result.to_table(), HasSubstr("fc0/W "));
}

TEST(CheckEquivalence, ComparesWithTheFirstCanonicalModeWhereverItIs) {
  const auto data = smooth_data(40);
  const Mode other{"replicated", "left_to_right"}, right{"replicated", "collective"};
  const Mode orders[][3] = {{other, right, {"replicated", "naive"}}, {other, other, right}};
  for (const auto& modes : orders) {
    const Equivalence result = check_equivalence(options(4), *data, 7, modes);
    EXPECT_TRUE(result.holds());
    for (const Equivalence::Entry& entry : result.entries)
      EXPECT_EQ(entry.max_ulp() == 0, entry.canonical) << entry.mode.name();
  }
  const Equivalence alone = check_equivalence(options(4), *data, 7, std::span(&other, 1));
  EXPECT_EQ(alone.entries[0].max_ulp(), 0u) << "of itself";
  EXPECT_EQ(alone.entries[0].values.size(), 8u);
}

TEST(CheckEquivalence, RefusesForOneTowerWhatTheFlagRefuses) {
  const auto data = smooth_data(40);
  for (const char* strategy : {"hierarchical", "nccl"}) {
    const Mode mode{"replicated", strategy};
    EXPECT_FALSE(mode.canonical(options(1).devices)) << strategy;
    const Mode modes[] = {{"replicated", "naive"}, mode};
    const Equivalence result = check_equivalence(options(1), *data, 1, modes);
    EXPECT_EQ(result.entries[1].refusal, make_strategy(strategy)->refusal(options(1).devices));
    EXPECT_NE(result.entries[1].refusal, "");
  }
  EXPECT_TRUE((Mode{"replicated", "ring"}.canonical(options(1).devices)))
      << "there is nothing to combine";
}

TEST(EquivalenceTable, HasColumnsAsWideAsTheirContents) {
  const std::string name(60, 'v');
  const Equivalence result{.steps = 1,
                           .entries = {{.mode = {"replicated", "ring"},
                                        .values = {{name, 5, 0.25}},
                                        .peak_bytes = 123'456'789'012'345'678},
                                       {.mode = {"async"}, .refusal = "why"}}};
  const std::string mode = "replicated ring (not canonical)", blanks(mode.size() - 4, ' ');
  EXPECT_EQ(result.to_table(),
            cat("  mode", blanks, "  variable", std::string(52, ' '),
                "  max_ulp  max_relative          peak_bytes  bytes_moved  seconds\n  ", mode,
                "  (all 1)", std::string(53, ' '),
                "        5          0.25  123456789012345678            0    0.000\n      ", blanks,
                "  ", name, "        5          0.25\n", "  async (not canonical): refused: why\n",
                "the 0 canonical modes agree bit for bit after 1 step\n"));
}

Output synchronised_model(Tower& tower, Output x, Output y) {
  const Output h = batch_norm(tower, "bn0", x, {.synchronised = true});
  return smooth_model(tower, batch_norm(tower, "bn1", tanh(h), {.synchronised = true}), y);
}

TEST(CheckEquivalence, HoldsForModelsWithSynchronisedLayers) {
  const auto data = smooth_data(80);
  const std::vector<int> numbers = kSanitized ? std::vector{3} : std::vector{1, 2, 3, 4, 6, 8};
  for (const int towers : numbers) {
    TrainerOptions wanted = options(towers);
    wanted.model = synchronised_model;
    const Equivalence result = check_equivalence(wanted, *data, 7, all_modes(wanted.devices));
    EXPECT_TRUE(result.holds()) << result.to_table();
    for (const Equivalence::Entry& entry : result.entries) {
      if (towers == 1 || entry.mode.trainer != "async") continue;
      const bool free = entry.mode.async == "free";
      EXPECT_THAT(entry.refusal,
                  AllOf(StartsWith(free ? "async=free cannot" : "trainer=async cannot"),
                        HasSubstr("weighted means, or use another trainer")));
    }
  }
}

// Uses one variable before and behind a synchronised layer.
Output tied_model(Tower& tower, Output x, Output y) {
  const Output w = variable(tower.graph(), "W", {4, 4}, {.dtype = DType::kF64});
  const Output h = batch_norm(tower, "bn0", matmul(x, w), {.synchronised = true});
  return smooth_model(tower, matmul(tanh(h), w), y);
}

TEST(CheckEquivalence, BlamesNoTrainerForTheOrderThatAModelLeavesIt) {
  const auto data = smooth_data(80);
  TrainerOptions wanted = options(4);
  wanted.model = tied_model;
  const Mode modes[] = {
      {"parameter_server", "colocate"}, {"replicated", "collective"}, {"replicated", "naive"}};
  const Equivalence result = check_equivalence(wanted, *data, 7, modes);
  EXPECT_TRUE(result.holds()) << result.to_table();
  EXPECT_FALSE(result.entries[0].canonical);
  EXPECT_GT(result.entries[0].max_ulp(), 0u);
  EXPECT_TRUE(result.entries[1].canonical);
  EXPECT_TRUE(result.entries[2].canonical);
}

// Shared variables then have fewer uses than there are towers, so another tree sums their
// gradients.
TEST(CheckEquivalence, BlamesNoTrainerWhenSynchronisedTowersHaveNoSamples) {
  // 6 towers share 12 samples, then 4 (one each), or 8 (two each). Either way the last two towers
  // get no samples in the second batch.
  for (const auto& [uneven, samples] : {std::pair{Uneven::kWeight, 16}, {Uneven::kPad, 20}}) {
    const auto data = smooth_data(samples);
    TrainerOptions wanted = options(6);
    wanted.model = synchronised_model;
    wanted.batch_size = 2;
    wanted.batches.uneven = uneven;
    const Mode modes[] = {
        {"parameter_server", "colocate"}, {"replicated", "collective"}, {"replicated", "naive"}};
    const Equivalence result = check_equivalence(wanted, *data, 6, modes);
    EXPECT_TRUE(result.holds()) << result.to_table();
    EXPECT_FALSE(result.entries[0].canonical);
    EXPECT_GT(result.entries[0].max_ulp(), 0u);
    EXPECT_LT(result.entries[0].max_ulp(), 1u << 20);
    EXPECT_TRUE(result.entries[1].canonical);
    EXPECT_TRUE(result.entries[2].canonical);
  }
}

TEST(CheckEquivalence, ListsModesThatCannotServeWithTheReason) {
  const auto data = smooth_data(40);
  const Mode modes[] = {
      {"replicated", "hierarchical"}, {"replicated", "naive"}, {"replicated", "naive", 2}};
  const Equivalence result = check_equivalence(options(3), *data, 2, modes);
  EXPECT_TRUE(result.holds());
  EXPECT_THAT(result.entries[0].refusal, HasSubstr("even number"));
  EXPECT_TRUE(result.entries[0].values.empty());
  EXPECT_EQ(result.entries[1].refusal, "");
  EXPECT_THAT(result.entries[2].refusal, HasSubstr("gradient_repacking=2: "));
  EXPECT_THAT(result.to_table(), HasSubstr("hierarchical (not canonical): refused: "));
  EXPECT_THROW(check_equivalence(options(3), *data, 2, std::span(modes, 1)), InvalidArgument);
  EXPECT_THROW(check_equivalence(options(3), *data, 0, modes), InvalidArgument);
}

TEST(CheckEquivalence, ListsEveryModeAndVariableAsJson) {
  const auto data = smooth_data(40);
  const Mode modes[] = {{"replicated", "naive"}, {"parameter_server", "colocate"}};
  const auto json =
      nlohmann::json::parse(check_equivalence(options(2), *data, 2, modes).to_json().str());
  ASSERT_EQ(json.size(), 16u);
  for (const auto& row : json) {
    EXPECT_EQ(row.size(), 11u);
    EXPECT_EQ(row["max_relative"], 0);
    EXPECT_TRUE(row.at("first_nonfinite_step").is_null());
    EXPECT_EQ(row["canonical"], true);
    EXPECT_EQ(row["max_ulp"], 0);
    EXPECT_GT(row["peak_bytes"], 0);
    EXPECT_GT(row["bytes_moved"], 0);
    EXPECT_GT(row["seconds"], 0);
  }
  EXPECT_EQ(json[0]["mode"], "replicated naive");
  EXPECT_EQ(json[0]["trainer"], "replicated");
  EXPECT_EQ(json[0]["allreduce"], "naive");
  EXPECT_EQ(json[0]["variable"], "fc0/W");
  EXPECT_EQ(json[15]["mode"], "parameter_server colocate");
}

int train_with(std::vector<std::string> arguments, std::string* output = nullptr) {
  arguments.insert(arguments.begin(), "program");
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  testing::internal::CaptureStdout();
  const int code = train(static_cast<int>(argv.size()), argv.data(),
                         {.model = smooth_model,
                          .data = [](bool) { return smooth_data(70); },
                          .optimizer = adam(0.01),
                          .batch_size = 4});
  const std::string text = testing::internal::GetCapturedStdout();
  if (output) *output = text;
  return code;
}

TEST(CheckEquivalence, IsAFlagOfEveryTrainingProgram) {
  std::string output;
  EXPECT_EQ(train_with({"--devices=cpu:4", "--check_equivalence=3"}, &output), 0);
  EXPECT_THAT(output, HasSubstr("replicated naive unfused"));
  EXPECT_THAT(output, HasSubstr("replicated left_to_right (not canonical)"));
  EXPECT_THAT(output, HasSubstr("canonical modes agree bit for bit after 3 steps"));
  EXPECT_EQ(train_with({"--devices=cpu:1", "--check_equivalence=1"}), 0);
  EXPECT_EQ(train_with({"--devices=cpu:3", "--check_equivalence=1"}), 0);
  testing::internal::CaptureStderr();
  EXPECT_EQ(
      train_with({"--devices=cpu:1", "--check_equivalence=5", "--learning_rate=1e200"}, &output),
      1);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "") << "the table says it by mode";
  EXPECT_THAT(output, HasSubstr("diverged: "));
  EXPECT_THAT(output, testing::ContainsRegex("training diverged in ([0-9]+) of [0-9]+ modes, and "
                                             "all NaNs count as equal"));
  const ClaimsCanonical claim;
  EXPECT_EQ(train_with({"--devices=cpu:4", "--check_equivalence=3"}), 1);
}

}  // namespace equivalence_test
}  // namespace belfry
