// The ops that steps of the example programs run once per device, and not once per shard of its
// batch.
#include <regex>
#include <set>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/framework/base/text.h"
#include "belfry/tests/support/programs.h"

namespace belfry {
namespace serial_ops_test {

using testing::IsSubsetOf;

// The ops that devices with eight shards together run once, by the plans that a dry run logs. Plans
// without shards, such as those of evaluations, are ignored.
std::set<std::string> serial_ops(const std::string& program, std::vector<std::string> flags,
                                 const std::string& devices = "cpu:2") {
  flags.insert(flags.end(),
               {"--dry_run", "--devices=" + devices, "--global_batch_size=16", "--shards=8"});
  flags.insert(flags.begin(), {"BELFRY_LOG=debug", cat(BELFRY_BIN_DIR, "/", program)});
  const Finished done = run_program("env", flags);
  EXPECT_EQ(done.status, 0) << done.errors;
  static const std::regex strand("strand [0-9]+: .*?( in [0-9]+ shards)?");
  static const std::regex launch("  launch [0-9]+ .*: \\((\\w+)\\)");
  std::set<std::string> once, ops;
  bool divided = false, any_divided = false;
  std::istringstream lines(done.errors);
  for (std::string line; std::getline(lines, line);) {
    std::smatch match;
    if (line.starts_with("arena ") || line.starts_with("D arena ")) {  // the next plan
      if (any_divided) ops.merge(once);
      once.clear();
      divided = any_divided = false;
    } else if (std::regex_match(line, match, strand)) {
      divided = match[1].matched;
      any_divided = any_divided || divided;
    } else if (!divided && std::regex_match(line, match, launch)) {
      once.insert(match[1]);
    }
  }
  if (any_divided) ops.merge(once);
  EXPECT_FALSE(ops.empty()) << done.errors;
  return ops;
}

// Sums over shards and towers, updates of variables, forms of weights, and scalars. A GatherShards
// would mean that a batch is made whole for an op without a rule.
const std::set<std::string> kSums{"SumShards", "FusedUpdate"}, kScalars{"FillLike", "NoOp", "Copy"},
    kWeights{"PackWeights"}, kAdam{"AssignAdd"};
// Whether a step is finite. It reads sums over shards, so one device sums and then updates.
const std::set<std::string> kChecks{"AllFinite", "Unscale"}, kMomentum{"MomentumUpdate"};
// Ops that combine moments of shards, and move averages by them.
const std::set<std::string> kMoments{"CombineMoments", "Sub", "Mul", "AssignSub", "Counted"};

std::set<std::string> joined(std::initializer_list<std::set<std::string>> sets) {
  std::set<std::string> all;
  for (const std::set<std::string>& set : sets) all.insert(set.begin(), set.end());
  return all;
}

TEST(SerialOps, OfTheDigitsProgramAreSumsUpdatesAndScalars) {
  EXPECT_THAT(serial_ops("mnist", {"--dropout=0.5"}),
              IsSubsetOf(joined({kSums, kChecks, kScalars, kWeights, kAdam})));
}

TEST(SerialOps, OfTheBenchmarkedModelsAreSumsUpdatesMomentsAndScalars) {
  const std::set<std::string> small = joined({kSums, kChecks, kScalars, kWeights, kAdam});
  for (const char* model : {"mnist", "mlp", "gpt"})
    EXPECT_THAT(serial_ops("train_bench", {cat("--model=", model)}), IsSubsetOf(small)) << model;
  const std::set<std::string> with_moments = joined({kSums, kChecks, kScalars, kWeights, kMoments});
  for (const char* model : {"resnet20", "resnet50"})
    EXPECT_THAT(serial_ops("train_bench", {cat("--model=", model), "--image_size=32"}),
                IsSubsetOf(with_moments))
        << model;
}

// Gradients for the statistics are added over all shards of all towers, too.
TEST(SerialOps, OfSynchronisedBatchNormAddMomentsOfAllTowers) {
  for (const char* devices : {"cpu:1", "cpu:2"})
    EXPECT_THAT(
        serial_ops("train_bench", {"--model=resnet20", "--batch_norm=synchronised"}, devices),
        IsSubsetOf(joined({kSums, kChecks, kScalars, kWeights, kMoments, kMomentum, {"AddN"}})))
        << devices;
}

TEST(SerialOps, OfClippedGradientsAreTheirNormAndTheUpdates) {
  EXPECT_THAT(serial_ops("train_bench", {"--model=gpt", "--clip_norm=1", "--label_smoothing=0.1"}),
              IsSubsetOf(joined(
                  {kSums,
                   kChecks,
                   kScalars,
                   kAdam,
                   {"AllReduce", "SumsOfSquares", "GlobalNorm", "ClipFactor", "AdamUpdate"}})));
}

}  // namespace serial_ops_test
}  // namespace belfry
