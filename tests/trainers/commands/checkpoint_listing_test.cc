#include "belfry/trainers/commands/checkpoint_listing.h"

#include <gmock/gmock.h>

#include "belfry/tests/trainers/runs/saved_runs.h"

namespace belfry {
namespace checkpoint_listing_test {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

using CheckpointListingTest = SavedRunsTest;

TEST_F(CheckpointListingTest, OfARunHasWhatIsKnownOfItsCheckpoints) {
  const std::string run = save_run({3, 5, 9});
  damage(run + "/checkpoints/step-00000005/manifest.json");
  const Listing listing = list_run(run);
  EXPECT_THAT(listing.text, AllOf(HasSubstr("step-00000005     cannot be read: "),
                                  HasSubstr("  latest\n"), HasSubstr("  best\n")));
  const std::list<JsonValue>& rows = listing.json.at("checkpoints").items();
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows.front().at("step").integer(), 3);
  EXPECT_EQ(rows.back().at("latest").str(), "true");
  EXPECT_EQ(rows.back().at("time").text().size(), 20u);
}

TEST_F(CheckpointListingTest, OfACheckpointHasItsTensors) {
  save(at("a"), {{"fc/W", counting({2, 3})},
                 {"fc/V", counting({2, 2}), false, VariableRole::kWeight},
                 {"fc/W/Adam", counting({2, 3}), false},
                 {"fc/W/ExponentialMovingAverage", counting({2, 3}), false, VariableRole::kAverage},
                 {"step", Tensor(std::int64_t{1}), false}});
  const Listing listing = list_checkpoint(read_checkpoint_head(at("a")));
  EXPECT_THAT(listing.text,
              AllOf(HasSubstr("step 40, epoch 2, seed 7, shards 4, saved "),
                    HasSubstr("                  24\n"), HasSubstr("  16  not trained\n"),
                    HasSubstr("  24  average\n"), HasSubstr("  24  state\n"),
                    HasSubstr("weights: 2 tensors, 10 elements, 40 bytes\n"),
                    HasSubstr("averages: 1 tensor, 6 elements, 24 bytes\n"
                              "validated: the moving averages of the weights\n"),
                    HasSubstr("state: 2 tensors, 7 elements, 32 bytes\n")));
  const JsonValue& tensors = listing.json.at("tensors");
  ASSERT_EQ(tensors.items().size(), 5u);
  EXPECT_EQ(tensors.items().front().str(),
            R"({"name":"fc/V","dtype":"f32","shape":[2,2],"bytes":16,"role":"weight",)"
            R"("trainable":false})");
  EXPECT_EQ(listing.json.at("validated").text(), "average");
  EXPECT_EQ(listing.json.at("weight_elements").integer(), 10);
  EXPECT_EQ(listing.json.at("trainable_elements").integer(), 6);
  EXPECT_EQ(listing.json.at("epoch").integer(), 2);
}

TEST_F(CheckpointListingTest, OfOneThatTrainingDidNotSaveLacksItsNumbers) {
  Graph graph;
  graph.create_variable({"w", {1}, {.initializer = init::zeros()}}, At());
  Session session(graph);
  save_checkpoint(session, at("a"));
  const Listing listing = list_checkpoint(read_checkpoint_head(at("a")));
  EXPECT_THAT(listing.text, Not(HasSubstr("epoch")));
  EXPECT_EQ(listing.json.at("epoch").kind(), JsonValue::Kind::kNull);
}

// A session counts a run per batch, and training counts updates.
TEST_F(CheckpointListingTest, HasTheStepsOfTraining) {
  Graph graph;
  graph.create_variable({"w", {1}, {.initializer = init::zeros()}}, At());
  Session session(graph);
  session.set_step(12);
  const auto list = [&](const JsonValue& steps) {
    remove_tree(files_, at("a"));
    save_checkpoint(session, at("a"), JsonValue::object().set("steps", steps));
    return list_checkpoint(read_checkpoint_head(at("a")));
  };
  const Listing listing = list(3);
  EXPECT_THAT(listing.text, HasSubstr("\nstep 3, saved "));
  EXPECT_EQ(listing.json.at("step").integer(), 3);
  for (const JsonValue& foreign : {JsonValue(-1), JsonValue("x"), JsonValue()})
    EXPECT_EQ(list(foreign).json.at("step").integer(), 12);
  files_.create_directory(at("run/checkpoints"));
  save_checkpoint(session, at("run/checkpoints/step-00000003"),
                  JsonValue::object().set("steps", 3));
  EXPECT_EQ(list_run(at("run")).json.at("checkpoints").items().front().at("step").integer(), 3);
}

}  // namespace checkpoint_listing_test
}  // namespace belfry
