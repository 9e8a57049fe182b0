// Processes that no longer have the same variables are found and named, before anything is saved.
#include "belfry/trainers/core/equal_processes.h"

#include <mutex>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/framework/base/text.h"
#include "belfry/tests/framework/framework_test_support.h"
#include "belfry/tests/support/process_threads.h"
#include "belfry/tests/trainers/core/small_problem.h"
#include "belfry/tests/trainers/data/idx_files.h"
#include "belfry/trainers/core/trainer.h"
#include "belfry/trainers/core/training_checkpoint.h"
#include "belfry/trainers/runs/replica_check.h"
#include "belfry/trainers/runs/run_directory.h"
#include "belfry/trainers/runs/run_saver.h"

namespace belfry {
namespace equal_processes_test {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

constexpr int kStepsPerEpoch = 5, kBatch = 8;

// Changes a variable of one process after a step, counted from 1, before anything looks at it.
struct Flip final : Callback {
  Flip(int in, std::int64_t after, std::string of = "fc0/W")
      : rank(in), step(after), variable(std::move(of)) {}
  CallbackPhase phase() const override { return CallbackPhase::kRequest; }
  void after_step(Trainer& trainer, const StepInfo& info) override {
    if (trainer.graph().process().rank != rank || info.step + 1 != step) return;
    const Variable w = trainer.graph().stored_variable(variable);
    Tensor value = trainer.session().read(w);
    value.mutable_data<double>()[0] += 1;
    trainer.session().write(w, value);
  }
  int rank;
  std::int64_t step;
  std::string variable;
};

using Callbacks = std::vector<std::shared_ptr<Callback>>;

// The error of each process, "" for none, by rank. `of_rank` makes the callbacks of a process.
std::vector<std::string> errors(int size, const std::function<Callbacks(int)>& of_rank) {
  std::vector<std::string> all(static_cast<std::size_t>(size));
  test::run_processes(size, [&](const std::shared_ptr<Processes>& processes) {
    const auto data = smooth_data(std::int64_t{kStepsPerEpoch} * kBatch * size);
    TrainerOptions options{.model = smooth_model,
                           .optimizer = sgd(0.05),
                           .aggregation = {.allreduce = "collective"},
                           .batch_size = kBatch,
                           .epochs = 2,
                           .callbacks = of_rank(processes->rank()),
                           .session = {.threads = 1, .processes = processes}};
    Trainer trainer(find_trainer("replicated"), std::move(options), *data);
    try {
      trainer.train();
    } catch (const Error& error) {
      all[static_cast<std::size_t>(processes->rank())] = error.what();
    }
  });
  return all;
}

struct SavedRun {
  explicit SavedRun(const std::string& path) : directory(path) {}
  RunDirectory directory;
  RunSaver saver{directory, {}};
};

// Rank 0 alone saves, after each epoch.
Callbacks saving(const test::TemporaryFolder& folder, int rank, Callbacks callbacks) {
  if (rank != 0) return callbacks;
  const auto run = std::make_shared<SavedRun>(folder.path());
  callbacks.emplace_back(run, &run->saver);
  return callbacks;
}

std::int64_t saved_step(const test::TemporaryFolder& folder) {
  return checkpoints_in(local_file_system(), folder.path()).back();
}

TEST(EqualProcesses, AreComparedBeforeASave) {
  for (const auto& [rank, size] : {std::pair(1, 2), {0, 3}, {2, 3}}) {
    const test::TemporaryFolder folder;
    const auto all = errors(size, [&, rank = rank](int own) {
      return saving(folder, own, {std::make_shared<Flip>(rank, 7)});
    });
    const int reference = rank == 0 ? 1 : 0;
    EXPECT_THAT(all, Each(AllOf(HasSubstr(cat("after step 10 rank ", rank, " on ")),
                                HasSubstr(cat(" has other bits than rank ", reference, " on ")),
                                HasSubstr(" in 'fc0/W'; "))));
    EXPECT_EQ(saved_step(folder), 5) << rank << " of " << size;
  }
}

TEST(EqualProcesses, SaveAsBeforeWhereTheyAgree) {
  const test::TemporaryFolder folder;
  EXPECT_THAT(errors(2, [&](int own) { return saving(folder, own, {}); }), Each(""));
  EXPECT_EQ(saved_step(folder), 10);
}

TEST(EqualProcesses, AreComparedAtTheEnd) {
  EXPECT_THAT(errors(2, [](int) { return Callbacks{std::make_shared<Flip>(1, 7, "fc1/b")}; }),
              Each(AllOf(HasSubstr("after step 10 rank 1 on "), HasSubstr("in 'fc1/b'; "))));
}

TEST(EqualProcesses, AreComparedEverySoManySteps) {
  EXPECT_THAT(
      errors(2,
             [](int) {
               return Callbacks{std::make_shared<Flip>(1, 3), std::make_shared<ReplicaCheck>(2)};
             }),
      Each(HasSubstr("after step 4 rank 1 on ")));
}

TEST(EqualProcesses, AreAllNamedThatDiffer) {
  EXPECT_THAT(errors(5,
                     [](int) {
                       return Callbacks{
                           std::make_shared<Flip>(1, 3), std::make_shared<Flip>(1, 3, "fc1/W"),
                           std::make_shared<Flip>(4, 3), std::make_shared<ReplicaCheck>(1)};
                     }),
              Each(AllOf(HasSubstr("after step 3 rank 1 on "), HasSubstr(", rank 4 on "),
                         HasSubstr(" have other bits than rank 0 on "),
                         HasSubstr("in 'fc0/W' and 1 other variable; "))));
}

// Of two, none is a majority. The run that resumes knows.
TEST(EqualProcesses, AreJudgedByTheRunThatGoesOn) {
  const test::TemporaryFolder folder;
  for (const int wrong : {0, 1}) {
    const auto run = [&](bool flips) {
      return errors(2, [&](int own) {
        Callbacks callbacks;
        if (own == 0) {
          const auto saved = std::make_shared<SavedRun>(folder.path());
          callbacks = {std::shared_ptr<Callback>(saved, &saved->saver),
                       std::make_shared<ReplicaCheck>(2, &saved->directory)};
        } else {
          callbacks = {std::make_shared<ReplicaCheck>(2)};
        }
        if (flips) callbacks.push_back(std::make_shared<Flip>(wrong, 7, "fc1/b"));
        return callbacks;
      });
    };
    EXPECT_THAT(run(true), Each(AllOf(HasSubstr("after step 8 rank 1 on "),
                                      HasSubstr("no majority tells which of them is right"))));
    EXPECT_EQ(saved_step(folder), 5);
    RunDirectory directory(folder.path());
    const std::optional<std::string> kept = directory.read(kDifferenceFile);
    ASSERT_TRUE(kept.has_value());
    const ReplicaDifference difference = ReplicaDifference::read(JsonValue::parse(*kept));
    EXPECT_EQ(difference.steps, 8);
    EXPECT_THAT(difference.variables, testing::Contains("fc1/b"));
    EXPECT_EQ(difference.replicas.size(), 2U);
    EXPECT_EQ(ReplicaDifference::read(difference.json()), difference);
    // The right hashes are those of the process that was not disturbed.
    ReplicaHashes right{.steps = 8, .names = difference.variables, .hashes = {}};
    for (const std::string& hash : difference.replicas[static_cast<std::size_t>(1 - wrong)].hashes)
      right.hashes.push_back(std::stoull(hash, nullptr, 16));
    EXPECT_THAT(difference.judged_by(right),
                AllOf(HasSubstr(cat("rank ", wrong, " on ")), HasSubstr(" had wrong bits in '"),
                      HasSubstr(cat("; rank ", 1 - wrong, " on "))));
  }
}

// Variables that one process has wrong spoil the next update of all.
TEST(ReplicaDifference, IsJudgedByTheFirstLossThatDiffers) {
  const ReplicaDifference difference{
      .steps = 9,
      .variables = {"w"},
      .replicas = {{"left", {"0"}}, {"right", {"1"}}},
      .losses = {{7, {0.5, 0.25, 1, 2}}, {8, {0.5, 0.25, 1, 2.5}}, {9, {3, 4, 5, 6}}}};
  EXPECT_EQ(difference.judged_by(ReplicaDifference::Losses{7, {0.5, 0.25, 1, 2}}), "");
  EXPECT_THAT(difference.judged_by(ReplicaDifference::Losses{8, {0.5, 0.25, 1, 2}}),
              AllOf(HasSubstr("step 8 has been computed again"),
                    HasSubstr(": rank 1 on right had wrong bits in variables or data"),
                    testing::Not(HasSubstr("rank 0"))));
  EXPECT_EQ(difference.judged_by(ReplicaDifference::Losses{9, {0, 0, 0, 0}}), "") << "of all";
  EXPECT_EQ(difference.judged_by(ReplicaDifference::Losses{8, {0.5, 0.25}}), "") << "other towers";
  EXPECT_EQ(ReplicaDifference::read(difference.json()), difference);
}

TEST(ReplicaDifference, IsRefusedUnlessWhole) {
  EXPECT_THROW(ReplicaDifference::read(JsonValue::parse("{}")), InvalidArgument);
  EXPECT_THROW(ReplicaDifference::read(JsonValue::parse(
                   R"({"step":1,"variables":["w"],"ranks":[{"host":"a","hashes":[]}]})")),
               InvalidArgument);
}

}  // namespace equal_processes_test
}  // namespace belfry
