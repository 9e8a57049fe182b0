#include "belfry/trainers/runs/run_checkpoints.h"

#include <gmock/gmock.h>

#include "belfry/framework/base/text.h"
#include "belfry/tests/trainers/runs/saved_runs.h"
#include "belfry/trainers/runs/checkpoint_listing.h"

namespace belfry {
namespace run_checkpoints_test {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

using RunCheckpointsTest = SavedRunsTest;

TEST_F(RunCheckpointsTest, AreThoseOfTheRunInOrderOfSteps) {
  const std::string run = save_run({3, 5, 9});
  files_.create_directory(run + "/checkpoints/step-00000010.tmp-1-2");
  files_.create_directory(run + "/checkpoints/step-100000000");
  ASSERT_TRUE(is_run_directory(run));
  const std::vector<RunCheckpoint> all = checkpoints_of_run(run);
  std::vector<std::string> names;
  for (const RunCheckpoint& one : all)
    names.push_back(cat(one.name, one.is_latest ? " latest" : "", one.is_best ? " best" : ""));
  EXPECT_THAT(names, ElementsAre("step-00000003 best", "step-00000005", "step-00000009 latest",
                                 "step-100000000"));
}

TEST_F(RunCheckpointsTest, OfAPathIsItselfOrTheLatestOfTheRun) {
  const std::string run = save_run({3, 5});
  EXPECT_EQ(checkpoint_at(run), run + "/checkpoints/latest");
  EXPECT_EQ(checkpoint_at(run + "/checkpoints/best"), run + "/checkpoints/best");
  files_.remove(run + "/checkpoints/latest");
  EXPECT_EQ(checkpoint_at(run), run + "/checkpoints/step-00000005") << "killed before the link";
}

TEST_F(RunCheckpointsTest, OfARunWithoutAnyAreNotFound) {
  files_.create_directory(at("run/checkpoints"));
  EXPECT_THROW(checkpoints_of_run(at("run")), NotFound);
  EXPECT_THROW(checkpoint_at(at("run")), NotFound);
}

TEST_F(RunCheckpointsTest, AreListedWithWhatIsKnownOfThem) {
  const std::string run = save_run({3, 5, 9});
  damage(run + "/checkpoints/step-00000005/manifest.json");
  const Listing listing = list_run(run);
  EXPECT_THAT(listing.text, AllOf(HasSubstr("step-00000005     cannot be read: "),
                                  HasSubstr("  latest\n"), HasSubstr("  best\n")));
  const std::list<Json>& rows = listing.json.at("checkpoints").items();
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows.front().at("step").integer(), 3);
  EXPECT_EQ(rows.back().at("latest").str(), "true");
  EXPECT_EQ(rows.back().at("time").text().size(), 20u);
}

TEST_F(RunCheckpointsTest, AreListedByTheirTensors) {
  save(at("a"), {{"fc/W", counting({2, 3})},
                 {"fc/W/Adam", counting({2, 3}), false},
                 {"step", Tensor(std::int64_t{1}), false}});
  const Listing listing = list_checkpoint(read_checkpoint_head(at("a")));
  EXPECT_THAT(
      listing.text,
      AllOf(HasSubstr("step 40, epoch 2, seed 7, shards 4, saved "),
            HasSubstr("  fc/W       f32   [2,3]                         24\n"),
            HasSubstr("  24  state\n"), HasSubstr("weights: 1 tensor, 6 elements, 24 bytes\n"),
            HasSubstr("state: 2 tensors, 7 elements, 32 bytes\n")));
  const Json& tensors = listing.json.at("tensors");
  ASSERT_EQ(tensors.items().size(), 3u);
  EXPECT_EQ(tensors.items().front().str(),
            R"({"name":"fc/W","dtype":"f32","shape":[2,3],"bytes":24,"trainable":true})");
  EXPECT_EQ(listing.json.at("epoch").integer(), 2);
}

TEST_F(RunCheckpointsTest, ThatTrainingDidNotSaveAreListedWithoutItsNumbers) {
  Graph graph;
  graph.create_variable({"w", {1}, {.initializer = init::zeros()}}, At());
  Session session(graph);
  save_checkpoint(session, at("a"));
  const Listing listing = list_checkpoint(read_checkpoint_head(at("a")));
  EXPECT_THAT(listing.text, Not(HasSubstr("epoch")));
  EXPECT_EQ(listing.json.at("epoch").kind(), Json::Kind::kNull);
}

}  // namespace run_checkpoints_test
}  // namespace belfry
