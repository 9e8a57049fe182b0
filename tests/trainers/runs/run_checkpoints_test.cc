#include "belfry/trainers/runs/run_checkpoints.h"

#include <gmock/gmock.h>

#include "belfry/framework/base/text.h"
#include "belfry/tests/trainers/runs/saved_runs.h"

namespace belfry {
namespace run_checkpoints_test {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

template <class E, class Call>
std::string refusal(const Call& call) {
  try {
    call();
  } catch (const E& error) {
    return error.what();
  }
  return "nothing was thrown";
}

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

TEST_F(RunCheckpointsTest, OfAPathIsItselfOrTheBestOfTheRun) {
  const std::string run = save_run({3, 5}), folder = run + "/checkpoints/";
  const auto chosen = [&](const char* text) {
    return checkpoint_at(run, parse_checkpoint_choice(text));
  };
  EXPECT_EQ(checkpoint_at(run), folder + "best");
  EXPECT_EQ(chosen("best"), folder + "best");
  EXPECT_EQ(chosen("latest"), folder + "latest");
  EXPECT_EQ(chosen("5"), folder + "step-00000005");
  EXPECT_EQ(checkpoint_at(folder + "latest"), folder + "latest");
  EXPECT_THAT(refusal<NotFoundError>([&] { chosen("4"); }),
              AllOf(HasSubstr("no checkpoint of step 4"), HasSubstr("step-00000003")));
  EXPECT_THAT(refusal<InvalidArgument>(
                  [&] { checkpoint_at(folder + "latest", parse_checkpoint_choice("best")); }),
              HasSubstr("is no run directory"));
  EXPECT_THAT(refusal<InvalidArgument>([] { parse_checkpoint_choice("first"); }),
              HasSubstr("best, latest or a step"));
}

TEST_F(RunCheckpointsTest, LieInARunOrNot) {
  const std::string run = save_run({3, 5}), folder = run + "/checkpoints/";
  EXPECT_EQ(run_of(run), run);
  for (const char* const name : {"step-00000003", "latest"})
    EXPECT_EQ(run_of(folder + name), files_.resolve(run)) << name;
  EXPECT_EQ(run_of(run + "/other"), "");
}

TEST_F(RunCheckpointsTest, OfARunWithoutABestOneIsTheLatest) {
  const std::string run = save_run({3, 5}), folder = run + "/checkpoints/";
  files_.remove(folder + "best");
  EXPECT_EQ(checkpoint_at(run), folder + "latest");
  EXPECT_THAT(refusal<NotFoundError>([&] { checkpoint_at(run, parse_checkpoint_choice("best")); }),
              HasSubstr("has no best checkpoint"));
  files_.remove(folder + "latest");
  EXPECT_EQ(checkpoint_at(run), folder + "step-00000005") << "killed before the link";
}

TEST_F(RunCheckpointsTest, OfARunWithoutAnyAreNotFound) {
  files_.create_directory(at("run/checkpoints"));
  EXPECT_THROW(checkpoints_of_run(at("run")), NotFoundError);
  EXPECT_THROW(checkpoint_at(at("run")), NotFoundError);
}

// Links are not needed.
TEST_F(RunCheckpointsTest, AreFoundBesideLinksThatLeadInACircle) {
  const std::string run = save_run({3, 5});
  for (const char* const link : {"latest", "best"}) {
    files_.remove(cat(run, "/checkpoints/", link));
    files_.create_link(cat(run, "/checkpoints/", link), link);
  }
  EXPECT_EQ(checkpoints_of_run(run).size(), 2u);
  EXPECT_EQ(checkpoint_at(run), run + "/checkpoints/step-00000005");
}

// The run saves step 9 and removes step 3 when step 3 is visited.
TEST_F(RunCheckpointsTest, OfARunThatGoesOnAreListedAgain) {
  const std::string run = save_run({3, 5});
  std::vector<std::string> visited;
  const auto visit = [&](const std::string& path) {
    if (path.ends_with('3')) {
      std::filesystem::rename(path, run + "/checkpoints/step-00000009");
      throw NotFoundError("there is no checkpoint");
    }
    visited.push_back(path.substr(path.rfind('/') + 1));
  };
  visit_checkpoints(run, visit);
  EXPECT_THAT(visited, ElementsAre("step-00000005", "step-00000009"));
  int tries = 0;
  EXPECT_THROW(visit_checkpoints(run,
                                 [&](const std::string&) {
                                   ++tries;
                                   throw NotFoundError("there is no checkpoint");
                                 }),
               IoError);
  EXPECT_EQ(tries, 20) << "each of both in ten lists";
}

}  // namespace run_checkpoints_test
}  // namespace belfry
