// --evaluate_only: what an evaluation alone builds, takes from a run, and refuses.
#include "belfry/framework/base/text.h"
#include "belfry/framework/plan/memory_kinds.h"
#include "belfry/tests/support/process_threads.h"
#include "belfry/tests/trainers/program/parsed_flags.h"
#include "belfry/tests/trainers/program/train_support.h"
#include "belfry/trainers/callbacks/evaluation.h"
#include "belfry/trainers/core/trainer.h"
#include "belfry/trainers/core/training_sizes.h"
#include "belfry/trainers/program/program_processes.h"
#include "belfry/trainers/program/run_start.h"
#include "belfry/trainers/util/console.h"

namespace belfry {
namespace evaluate_only_test {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

class EvaluateOnly : public TrainTest {
 protected:
  EvaluateOnly() {
    recipe_.data = [](bool train) { return smooth_data(train ? 70 : 31); };
    std::filesystem::remove_all(run_);
  }
  ~EvaluateOnly() override { std::filesystem::remove_all(run_); }

  // Trains a run, and returns its report.
  nlohmann::json train(std::vector<std::string> flags) {
    std::filesystem::remove_all(run_);
    flags.push_back("--run_dir=" + run_);
    return reported(flags);
  }
  nlohmann::json evaluate(std::vector<std::string> flags) {
    flags.push_back("--evaluate_only");
    return reported(flags);
  }
  nlohmann::json reported(std::vector<std::string> flags) {
    flags.push_back("--json=" + json_.string());
    const TrainResult result = run_train(flags, recipe_);
    EXPECT_EQ(result.code, 0) << result.error;
    EXPECT_THAT(result.error, AllOf(Not(HasSubstr("resume:")), Not(HasSubstr("left out"))));
    return report();
  }

  Recipe recipe_ = small_recipe();
  const std::string run_ = path(".run");
};

// Twelve samples on two devices, and on three, whose shards are no power of two.
TEST_F(EvaluateOnly, TakesTheBatchesOfTheRunOnAnyDevices) {
  for (const char* const trained_on : {"--devices=cpu:2", "--devices=cpu:3"}) {
    const nlohmann::json trained =
        train({trained_on, "--global_batch_size=12", "--eval_batches=2"});
    for (const char* const devices : {"cpu:1", "cpu:2", "cpu:3", "cpu:4", "cpu:7"})
      for (const char* const way : {"--load=", "--resume="}) {
        const nlohmann::json evaluated =
            evaluate({cat("--devices=", devices), cat(way, run_), "--eval_batches=2"});
        EXPECT_EQ(evaluated["validation_loss"], trained["validation_loss"])
            << trained_on << devices;
        EXPECT_EQ(evaluated["global_batch_size"], 12) << devices;
      }
  }
  EXPECT_EQ(
      evaluate({"--load=" + run_, "--devices=cpu:3", "--global_batch_size=8"})["global_batch_size"],
      8)
      << "three devices need not divide it";
}

// Of two processes each takes half of a batch. Three cannot share its shards.
TEST_F(EvaluateOnly, DividesABatchAmongProcesses) {
  train({"--devices=cpu:2", "--global_batch_size=12", "--shards=4"});
  const std::string load = "--load=" + run_;
  TrainFlags flags = parse({"--evaluate_only", load.c_str(), "--devices=cpu:3"});
  Console console(nullptr);
  const auto adopted = [&](int processes) {
    flags.group.processes = processes;
    TrainerOptions options = flags.trainer;
    RunStart(flags, console, nullptr).adopt(options);
    return cat(options.devices.size(), " devices, ", options.batch_size, " each, ", options.shards);
  };
  EXPECT_EQ(adopted(1), "2 devices, 6 each, 4");
  EXPECT_EQ(adopted(2), "2 devices, 3 each, 4");
  try {
    adopted(3);
    ADD_FAILURE() << "three processes";
  } catch (const FlagError& error) {
    EXPECT_THAT(error.what(),
                HasSubstr("3 processes cannot share a global batch of 12 in 4 shards"));
    EXPECT_THAT(error.what(), HasSubstr("use a number of processes that divides 4 (belfry run -n"));
  }
  test::run_processes(2, [&](const std::shared_ptr<Processes>& processes) {
    EXPECT_NO_THROW(flags_in_group(flags, processes));
  });
}

TEST(TowersOfEvaluation, AreAPowerOfTwoOrThoseOfTheRun) {
  const auto towers = [](std::int64_t samples, std::int64_t shards, std::int64_t of_run,
                         std::int64_t devices) {
    return towers_of_evaluation({.samples = samples, .shards = shards, .towers = of_run}, devices);
  };
  EXPECT_EQ(towers(128, 8, 2, 1), 1);
  EXPECT_EQ(towers(128, 8, 2, 3), 2);
  EXPECT_EQ(towers(128, 8, 1, 16), 8);
  EXPECT_EQ(towers(12, 4, 4, 16), 4);
  EXPECT_EQ(towers(12, 0, 1, 16), 4) << "no shards are known";
  EXPECT_EQ(towers(126, 9, 3, 1), 3);
  EXPECT_EQ(towers(96, 6, 2, 1), 2) << "a device with six shards adds them in another order";
  EXPECT_EQ(towers(7, 1, 1, 4), 1);
}

// Weights, and averages of them, whatever updated them.
TEST_F(EvaluateOnly, NeedsNoOptimizerOfTheRun) {
  for (const std::vector<std::string>& flags :
       {std::vector<std::string>{"--optimizer=lion", "--clip_norm=1"},
        {"--optimizer=adam", "--moving_average=0.5", "--group=fc1:rate=2"},
        {"--group=fc0:freeze", "--precision=f16"}}) {
    const nlohmann::json trained = train(flags);
    for (const char* const way : {"--load=", "--resume="}) {
      std::vector<std::string> again{way + run_};
      if (flags.back().starts_with("--precision")) again.push_back(flags.back());
      const nlohmann::json evaluated = evaluate(again);
      EXPECT_EQ(evaluated["validation_loss"], trained["validation_loss"]) << flags[0] << way;
      EXPECT_TRUE(evaluated["optimizer"].is_null());
    }
  }
  EXPECT_EQ(report()["steps"], 8) << "of the run that --resume names";
}

TEST_F(EvaluateOnly, RefusesToResumeOtherWeights) {
  train({});
  recipe_.model = scaled_model;
  const TrainResult refused = run_train({"--evaluate_only", "--resume=" + run_}, recipe_);
  EXPECT_NE(refused.code, 0);
  EXPECT_THAT(refused.error, HasSubstr("'scale'"));
}

TEST_F(EvaluateOnly, LeavesOutWhatAConfigurationSaysOfTraining) {
  const nlohmann::json trained =
      train({"--devices=cpu:3", "--tower_weights=2,1,1", "--learning_rate=0.2", "--optimizer=lion",
             "--early_stop=validation_loss:min:9", "--save_every_steps=4", "--eval_every_epochs=0",
             "--eval_every_steps=3", "--gradient_accumulation_steps=2"});
  const std::string config = cat("--config=", run_, "/config.json");
  for (const char* const devices : {"cpu:1", "cpu:2", "cpu:3"})
    EXPECT_EQ(evaluate({config, "--load=" + run_, cat("--devices=", devices)})["validation_loss"],
              trained["validation_loss"])
        << devices;
}

TEST(EvaluateOnlyFlags, AreNotAboutTraining) {
  for (const char* const flag : {"--learning_rate=0.1",
                                 "--optimizer=lion",
                                 "--momentum=0.5",
                                 "--moving_average=0.9",
                                 "--group=*:freeze",
                                 "--max_steps=3",
                                 "--epochs=2",
                                 "--early_stop=loss:min:1",
                                 "--eval_every_steps=4",
                                 "--eval_every_epochs=0",
                                 "--clip_norm=1",
                                 "--uneven=pad",
                                 "--gradient_accumulation_steps=2",
                                 "--recompute=fc0",
                                 "--on_nonfinite=skip",
                                 "--trainer=simple",
                                 "--allreduce=ring",
                                 "--zero_stage=1",
                                 "--save_every_steps=3",
                                 "--hash_every=1",
                                 "--trace_file=t",
                                 "--check_replicas_every=1",
                                 "--overwrite"})
    EXPECT_EQ(refusal({"--evaluate_only", "--load=model", flag}),
              cat(flag, ": an evaluation alone (--evaluate_only) does not train; leave it out"));
  const TrainFlags flags =
      parse({"--evaluate_only", "--load=model", "--precision=bf16", "--seed=3", "--eval_batches=2",
             "--threads=2", "--data_workers=2", "--shards=4", "--devices=cpu:3"});
  EXPECT_TRUE(flags.trainer.evaluates_only);
  EXPECT_EQ(flags.trainer.shards, 4) << "three devices need not divide them";
}

TEST(EvaluateOnlyTrainer, BuildsNothingThatTrains) {
  const auto train = smooth_data(32), test = smooth_data(21);
  Console console(nullptr);
  const auto evaluation = std::make_shared<Evaluation>(console);
  Trainer trainer(find_trainer("replicated"),
                  {.model = smooth_model,
                   .optimizer = momentum(0.1),
                   .devices = cpus(2),
                   .batch_size = 8,
                   .evaluates_only = true,
                   .callbacks = {evaluation}},
                  *train, test.get());
  EXPECT_THAT(trainer.built().plans(), IsEmpty());
  EXPECT_EQ(trainer.graph().variables(kGlobalVariables).size(), 4u) << "no slots";
  trainer.train();
  EXPECT_EQ(trainer.steps(), 0);
  EXPECT_TRUE(trainer.record().has_metric("validation_loss"));
  const MemoryReport memory = trainer.session().memory_report();
  ASSERT_FALSE(memory.devices.empty());
  for (const MemoryReport::Device& device : memory.devices)
    for (const MemoryKind kind : {MemoryKind::kGradient, MemoryKind::kOptimizer})
      EXPECT_EQ(device.bytes[kind], 0) << name_of(kind);
}

}  // namespace evaluate_only_test
}  // namespace belfry
