// Training whose loss or weights become NaN or infinite: nothing is lost, and the program says so.
#include "belfry/trainers/core/divergence.h"

#include <cmath>
#include <limits>
#include <mutex>
#include <numeric>
#include <set>

#include "belfry/framework/base/text.h"
#include "belfry/framework/core_ops/initializers.h"
#include "belfry/ops/cast.h"
#include "belfry/ops/log.h"
#include "belfry/ops/operand.h"
#include "belfry/ops/sqrt.h"
#include "belfry/ops/stop_gradient.h"
#include "belfry/tests/support/process_threads.h"
#include "belfry/tests/trainers/program/train_support.h"
#include "belfry/tests/trainers/runs/run_files.h"
#include "belfry/trainers/core/trainer.h"
#include "belfry/trainers/core/trainer_kinds.h"
#include "belfry/trainers/core/training_checkpoint.h"
#include "belfry/trainers/runs/run_directory.h"

namespace belfry {
namespace divergence_test {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

// With this rate the weights overflow in the third step, or a little later.
const std::string kWild = "--learning_rate=1e100";

class DivergenceTest : public TrainTest {
 protected:
  ~DivergenceTest() override { std::filesystem::remove_all(checkpoint_); }
  std::string json_flag() const { return "--json=" + json_.string(); }

  const std::string checkpoint_ = path(".checkpoint");
  const std::string save_ = "--run_dir=" + checkpoint_;
  const std::string restore_ = "--resume=" + checkpoint_;
};

TEST_F(DivergenceTest, ExitsWithOneAndNamesTheStepInEveryMode) {
  const std::vector<std::vector<std::string>> modes{
      {"--devices=cpu:1"},
      {"--devices=cpu:2"},
      {"--devices=cpu:3", "--batch_size=4", "--uneven=weight"},
      {"--devices=cpu:3", "--batch_size=4", "--uneven=pad"},
      {"--devices=cpu:2", "--trainer=parameter_server"},
      {"--devices=cpu:2", "--trainer=async"},
      {"--devices=cpu:2", "--trainer=async", "--async=free"},
      {"--devices=cpu:2", "--gradient_accumulation_steps=2", "--batch_size=2"},
      {"--devices=cpu:1", "--max_steps=15"}};
  for (std::vector<std::string> flags : modes) {
    flags.insert(flags.end(), {kWild, json_flag()});
    SCOPED_TRACE(join(flags, " "));
    const TrainResult result = run_train(flags);
    EXPECT_EQ(result.code, 1);
    const auto report = this->report();
    ASSERT_TRUE(report["first_nonfinite_step"].is_number_integer());
    const std::int64_t since = report["first_nonfinite_step"];
    const bool knows = std::ranges::find(flags, "--async=free") == flags.end();
    // A tower that runs free may have updated twice before another makes its first step.
    EXPECT_GE(since, knows ? 2 : 1);
    EXPECT_LE(since, 5);
    EXPECT_TRUE(report["loss"].is_null());
    EXPECT_EQ(report["steps"], since) << "the step with this loss is the last one";
    EXPECT_EQ(report["nonfinite_variable"].is_null(), knows) << "the step changed nothing";
    EXPECT_THAT(result.error,
                HasSubstr(cat("error: training diverged: the loss of step ", since, " is ")));
    EXPECT_THAT(result.error, HasSubstr(knows ? "a smaller learning rate may help (--learning_rate)"
                                              : "look at logarithms"));
    EXPECT_THAT(result.out, AllOf(HasSubstr("params_hash"), Not(HasSubstr("-nan"))));
    flags.emplace_back("--on_nonfinite=continue");
    const TrainResult on = run_train(flags);
    EXPECT_EQ(on.code, 1);
    EXPECT_GT(this->report()["steps"], since);
    EXPECT_THAT(on.error, AllOf(HasSubstr("and training continues (--on_nonfinite)"),
                                HasSubstr("error: training diverged: the loss is "),
                                HasSubstr(", and not finite since step ")));
  }
}

TEST_F(DivergenceTest, IsNotClaimedOfTrainingThatEndsWell) {
  EXPECT_EQ(run_train({"--max_steps=3", json_flag()}).code, 0);
  EXPECT_TRUE(report().at("first_nonfinite_step").is_null());
  EXPECT_TRUE(report().at("nonfinite_variable").is_null());
}

TEST_F(DivergenceTest, OfWeightsAloneIsOneToo) {
  Recipe recipe = small_recipe();
  recipe.model = [](Tower& tower, Output x, Output y) { return smooth_model(tower, x, y) * 1e3; };
  const TrainResult result =
      run_train({"--learning_rate=1e308", "--max_steps=1", json_flag()}, recipe);
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.error,
              AllOf(HasSubstr("training diverged: the update of step 1 by SGD overflowed"),
                    HasSubstr("all 4 trainable variables have values that are not finite")));
  EXPECT_TRUE(report()["loss"].is_number());
  EXPECT_EQ(report()["first_nonfinite_step"], 1);
}

// The last step leaves weights that are finite, but useless.
TEST_F(DivergenceTest, OfTheTestLossAloneIsOneToo) {
  Recipe recipe = small_recipe();
  recipe.model = [](Tower& tower, Output x, Output y) { return smooth_model(tower, x, y) * 1e3; };
  const TrainResult result =
      run_train({"--learning_rate=1e200", "--max_steps=1", save_, json_flag()}, recipe);
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.error, HasSubstr("error: training diverged: the test loss is "));
  EXPECT_TRUE(report()["loss"].is_number());
  EXPECT_TRUE(report().at("validation_loss").is_null());
  EXPECT_TRUE(report()["nonfinite_variable"].is_null());
  const TrainResult restored = run_train({"--max_steps=1", restore_}, recipe);
  EXPECT_EQ(restored.code, 1) << "though nothing was left to train";
  EXPECT_THAT(restored.error, HasSubstr("error: training diverged: the test loss is "));
}

TEST_F(DivergenceTest, OfATrainerThatIsNotRunByTrainIsFoundToo) {
  const auto data = smooth_data(16);
  Trainer trainer(find_trainer("simple"),
                  {.model = smooth_model, .optimizer = sgd(0.1), .batch_size = 4}, *data);
  const Variable w = trainer.graph().stored_variable("fc1/W");
  Tensor bad = trainer.session().read(w);
  bad.mutable_data<double>()[2] = -std::numeric_limits<double>::infinity();
  trainer.session().write(w, bad);
  const Divergence found = find_divergence(trainer.built(), trainer.record());
  EXPECT_FALSE(found.loss_since);
  EXPECT_THAT(found.str(), AllOf(HasSubstr("'fc1/W' f64[5,1]"), HasSubstr("-inf at element 2")));
}

TEST_F(DivergenceTest, BlamesNoRateIfNoUpdateHadBeenMade) {
  Recipe recipe = small_recipe();
  recipe.model = [](Tower& tower, Output x, Output y) {
    return smooth_model(tower, x, y) + reduce_mean(log(x - 2.0));
  };
  const TrainResult result = run_train({json_flag()}, recipe);
  EXPECT_EQ(result.code, 1);
  EXPECT_EQ(report()["steps"], 1);
  EXPECT_THAT(result.error,
              AllOf(HasSubstr("the loss of step 1 is nan: nan first appears in Log '"),
                    HasSubstr("(built at divergence_test.cc:"), HasSubstr("log(x) needs x > 0"),
                    Not(HasSubstr("rate"))));
}

// The loss is finite, and a gradient is not: sqrt(square(0)).
TEST_F(DivergenceTest, BlamesNoRateIfNothingHadGrown) {
  Recipe recipe = small_recipe();
  recipe.model = [](Tower& tower, Output x, Output y) {
    const Output zero = dense(tower, "fc9", x, {.units = 1, .init = init::zeros()});
    return smooth_model(tower, x, y) + reduce_mean(sqrt(square(zero)));
  };
  const TrainResult result = run_train({json_flag()}, recipe);
  EXPECT_EQ(result.code, 1);
  EXPECT_EQ(report()["steps"], 1);
  EXPECT_THAT(
      result.error,
      AllOf(HasSubstr("gradients of step 1 are not finite, though the loss is "),
            HasSubstr("a gradient of Sqrt '"), HasSubstr("(built at divergence_test.cc:"),
            HasSubstr("which makes the gradient of 'fc9/W' not finite"),
            HasSubstr("the gradient of sqrt(x) is infinite at x = 0"), Not(HasSubstr("rate"))));
}

// smooth_data() whose sample `bad` is NaN.
std::unique_ptr<Dataset> data_with_nan(std::int64_t samples, std::int64_t bad) {
  const auto good = smooth_data(samples);
  std::vector<std::int64_t> all(static_cast<std::size_t>(samples));
  std::iota(all.begin(), all.end(), 0);
  std::vector<Tensor> rows = gather_tensors(*good, all);
  rows[0].mutable_data<double>()[static_cast<std::size_t>(4 * bad + 3)] = std::nan("");
  return std::make_unique<TensorDataset>(
      std::vector<TensorDataset::Source>{{"x", rows[0], DType::kF64, {4}},
                                         {"y", rows[1], DType::kF64, {1}}},
      "a smooth function with a NaN");
}

TEST_F(DivergenceTest, NamesTheSampleOfTheDataThatIsNotFinite) {
  for (const std::string more :
       {"--devices=cpu:1", "--devices=cpu:2", "--uneven=pad", "--gradient_accumulation_steps=2",
        "--trainer=async", "--async=free"}) {
    SCOPED_TRACE(more);
    Recipe recipe = small_recipe();
    recipe.data = [](bool train) { return train ? data_with_nan(70, 13) : nullptr; };
    std::vector<std::string> flags{more, "--batch_size=4"};
    if (more == "--async=free") flags.emplace_back("--trainer=async");
    const TrainResult result = run_train(flags, recipe);
    EXPECT_EQ(result.code, 1);
    EXPECT_THAT(result.error,
                AllOf(HasSubstr("field 'x' of training sample 13 has nan at element 3; fix this "
                                "sample, or leave it out"),
                      Not(HasSubstr("rate"))));
  }
}

TEST_F(DivergenceTest, NamesTheTestSampleThatIsNotFiniteAndTrainsOn) {
  Recipe recipe = small_recipe();
  recipe.data = [](bool train) { return train ? smooth_data(70) : data_with_nan(10, 6); };
  const TrainResult result = run_train({"--epochs=3", json_flag()}, recipe);
  EXPECT_EQ(result.code, 1);
  EXPECT_EQ(report()["epochs"], 3);
  const char* const sample = "field 'x' of test sample 6 has nan at element 3";
  EXPECT_THAT(result.error,
              AllOf(HasSubstr(cat("W the test loss is nan after step 4: ", sample)),
                    HasSubstr(cat("training diverged: the test loss is nan; ", sample)),
                    Not(HasSubstr("rate"))));
}

// Gradients of 1e25 are finite in f32, and their squares are not. The check would see that.
TEST_F(DivergenceTest, OfASlotOfTheOptimizerIsNoFailureToWrite) {
  const std::string run = path(".run");
  std::filesystem::remove_all(run);
  Recipe recipe = small_recipe();
  recipe.optimizer = adam(1e-3);
  recipe.model = [](Tower& tower, Output x, Output y) {
    const Output line = dense(tower, "fc", cast(x, DType::kF32), {.units = 1});
    return reduce_mean(line - cast(y, DType::kF32)) * 1e25;
  };
  const TrainResult result = run_train(
      {"--devices=cpu:1", "--run_dir=" + run, "--save_every_steps=1", "--on_nonfinite=continue"},
      recipe);
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.error, AllOf(HasSubstr("training diverged: 'fc/"), HasSubstr("Adam"),
                                  HasSubstr("has inf at element"), Not(HasSubstr("can be read"))));
  const nlohmann::json error = test::summary_of(run)["error"];
  EXPECT_EQ(error["code"], "DIVERGED");
  EXPECT_THAT(error["variable"].get<std::string>(), HasSubstr("Adam"));
  EXPECT_EQ(error["kept"].is_null(), true);
  std::filesystem::remove_all(run);
}

TEST_F(DivergenceTest, EndsAllProcessesAfterTheSameStep) {
  std::mutex mutex;
  std::vector<std::pair<std::int64_t, std::string>> ends;
  test::run_processes(3, [&](const std::shared_ptr<Processes>& processes) {
    const auto data = data_with_nan(36, 17);
    Trainer trainer(find_trainer("replicated"),
                    {.model = smooth_model,
                     .optimizer = sgd(0.1),
                     .batch_size = 2,
                     .epochs = 3,
                     .session = {.threads = 1, .processes = processes}},
                    *data);
    std::string error;
    try {
      trainer.train();
    } catch (const Diverged& diverged) {
      error = diverged.what();
    }
    const std::lock_guard lock(mutex);
    ends.emplace_back(trainer.steps(), error);
  });
  ASSERT_EQ(ends.size(), 3u);
  EXPECT_LE(ends[0].first, 6) << "in the first epoch";
  for (const auto& [steps, error] : ends) {
    EXPECT_EQ(steps, ends[0].first);
    EXPECT_THAT(error, HasSubstr("field 'x' of training sample 17 has nan"))
        << "whichever process had it";
  }
}

TEST_F(DivergenceTest, NamesNoVariableAsTheCulpritIfAllAreNotFinite) {
  const auto data = smooth_data(16);
  Trainer trainer(find_trainer("simple"),
                  {.model = smooth_model, .optimizer = sgd(0.1), .batch_size = 4}, *data);
  const std::vector<Variable> all = trainer.built().nodes().towers[0].trainables;
  for (std::size_t v = 0; v < all.size(); ++v) {
    Tensor bad = trainer.session().read(all[v]);
    bad.mutable_data<double>()[0] = std::nan("");
    trainer.session().write(all[v], bad);
    const std::string text = find_divergence(trainer.built(), trainer.record()).variable;
    const std::string others = v == 1 ? ", as have 1 others of 4" : ", as have 2 others of 4";
    if (v == 0) {
      EXPECT_THAT(text, testing::EndsWith("has nan at element 0"));
    } else if (v < 3) {
      EXPECT_THAT(text, HasSubstr(others));
    }
  }
  EXPECT_EQ(find_divergence(trainer.built(), trainer.record()).variable,
            "all 4 trainable variables have values that are not finite");
}

TEST(LossWatch, TellsGrowthFromNoise) {
  const auto growth_of = [](std::vector<double> losses) {
    LossWatch watch;
    std::int64_t step = 0;
    for (const double loss : losses) watch.note(++step, loss);
    watch.note(++step, std::nan(""));
    EXPECT_EQ(watch.not_finite_since(), step);
    return watch.growth();
  };
  EXPECT_EQ(growth_of({2.3, 15, 1e12}), "the loss grew from 2.3 to 1e+12 in step 3");
  EXPECT_EQ(growth_of({0.5}), "");
  EXPECT_EQ(growth_of({0.5, 0.4, 0.6, 0.3, 0.7}), "");
  EXPECT_EQ(growth_of({0.0026, -0.05, -0.4, -1.5}), "") << "falls";
  EXPECT_EQ(growth_of({-2, -1.9, 30}), "the loss grew from -2 to 30 in step 3");
  EXPECT_EQ(growth_of({}), "");
}

TEST(SkipWatch, WarnsOfAllUpdatesOrAQuarterOfMany) {
  const auto warnings = [](double scale, const std::vector<std::int64_t>& skipped) {
    SkipWatch watch;
    std::vector<std::string> texts;
    std::int64_t sum = 0;
    for (const std::int64_t of_20 : skipped) {
      sum += of_20;
      if (std::string text = watch.warning(sum, scale); !text.empty())
        texts.push_back(text.substr(0, 46));
    }
    return texts;
  };
  using testing::ElementsAre;
  EXPECT_THAT(warnings(1, {15, 4, 0, 0, 1}), testing::IsEmpty()) << "it looked for a scale";
  EXPECT_THAT(warnings(1, {20, 20}), ElementsAre("f16 skipped the last 20 updates, as gradients "));
  EXPECT_THAT(warnings(1, {19, 18, 19, 18, 19, 19}),
              ElementsAre("f16 skipped 93 of the last 100 updates, as gra"));
  EXPECT_THAT(warnings(0, {5, 5, 5, 5, 5}),
              ElementsAre("f16 still skips 25 of the last 100 updates, an"));
}

// Sample 5 of 8 is NaN.
std::unique_ptr<Dataset> f32_data_with_nan() {
  std::vector<float> ones(8, 1), halves(8, 0.5F);
  halves[5] = std::numeric_limits<float>::quiet_NaN();
  return std::make_unique<TensorDataset>(
      std::vector<TensorDataset::Source>{{"x", Tensor({8, 1}, ones), DType::kF32, {1}},
                                         {"y", Tensor({8, 1}, halves), DType::kF32, {1}}},
      "one NaN");
}

Output f32_model(Tower& tower, Output x, Output y) {
  return reduce_mean(square(dense(tower, "fc", x, {.units = 1}) - y));
}

// Gradients of 1e10 overflow f16 until the scale is small; a factor of 1e300 would at any scale.
TEST_F(DivergenceTest, F16SaysThatItMakesNoProgress) {
  Recipe recipe = small_recipe();
  recipe.epochs = 100;
  recipe.model = [](Tower& tower, Output x, Output y) {
    const Output line = dense(tower, "fc", cast(x, DType::kF32), {.units = 1});
    const Output zero =
        dense(tower, "fc9", cast(x, DType::kF32), {.units = 1, .init = init::zeros()});
    return reduce_mean(square(line - cast(y, DType::kF32))) + reduce_mean(sqrt(square(zero)));
  };
  const std::vector<std::string> flags{"--precision=f16", "--devices=cpu:1", json_flag()};
  std::vector<std::string> few = flags, many = flags;
  few.emplace_back("--max_steps=19");
  EXPECT_THAT(run_train(few, recipe).error, Not(HasSubstr("skipped the last")));
  many.emplace_back("--max_steps=180");
  const TrainResult result = run_train(many, recipe);
  EXPECT_THAT(result.error,
              AllOf(HasSubstr("W f16 skipped the last 20 updates, as gradients were not finite"),
                    HasSubstr("use bf16"), HasSubstr("(--precision)"),
                    HasSubstr("W f16 still skips all updates, and the loss scale is ")));
  EXPECT_EQ(report()["skipped_steps"], 180);
}

// One sample is NaN. No loss scale mends that.
TEST_F(DivergenceTest, OfF16NamesTheSampleOfTheDataThatIsNotFinite) {
  Recipe recipe = small_recipe();
  recipe.data = [](bool train) { return train ? f32_data_with_nan() : nullptr; };
  recipe.model = f32_model;
  const std::vector<std::string> flags{"--precision=f16", "--batch_size=2", "--devices=cpu:1",
                                       "--epochs=3", json_flag()};
  const TrainResult stopped = run_train(flags, recipe);
  EXPECT_EQ(stopped.code, 1);
  EXPECT_LE(report()["steps"], 4);
  const char* const sample = "field 'y' of training sample 5 has nan at element 0";
  EXPECT_THAT(stopped.error, AllOf(HasSubstr(cat(sample, "; fix this sample, or leave it out")),
                                   Not(HasSubstr("rate")), Not(HasSubstr("65504"))));
  std::vector<std::string> all = flags;
  all.emplace_back("--on_nonfinite=continue");
  EXPECT_THAT(run_train(all, recipe).error,
              HasSubstr(cat(": ", sample, ", and training continues")));
  EXPECT_EQ(report()["steps"], 12);
}

// The steps with that sample update nothing, and the loss is finite again after them.
TEST_F(DivergenceTest, IsNotClaimedOfStepsThatF16SkipsIfTrainingGoesOn) {
  const auto data = f32_data_with_nan();
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    Trainer trainer(find_trainer("simple"),
                    {.model = f32_model,
                     .optimizer = sgd(0.1),
                     .batch_size = 2,
                     .epochs = 3,
                     .seed = seed,
                     .precision = Precision::kF16,
                     .loss_scale = {.initial = 1},
                     .on_nonfinite = OnNonfinite::kContinue,
                     .warn_of_loss = false},
                    *data);
    trainer.train();
    EXPECT_EQ(trainer.steps(), 12);
    EXPECT_EQ(trainer.record().watch().skipped_steps(), 3);
    EXPECT_EQ(find_divergence(trainer.built(), trainer.record()).variable, "")
        << "those steps were skipped";
    EXPECT_EQ(trainer.record().watch().losses().not_finite_since().has_value(),
              !std::isfinite(trainer.metric("loss")));
  }
}

// A step is not saved while its loss is not finite; the others are.
TEST_F(DivergenceTest, SaysThatNoStepIsSavedUntilTheLossIsFiniteAgain) {
  Recipe recipe = small_recipe();
  recipe.data = [](bool train) { return train ? f32_data_with_nan() : nullptr; };
  recipe.model = f32_model;
  const std::string run = path(".run");
  std::set<int> spoilt;
  for (int seed = 1; seed <= 8; ++seed) {
    std::filesystem::remove_all(run);
    const TrainResult done =
        run_train({"--precision=f16", "--on_nonfinite=continue", "--batch_size=2",
                   "--devices=cpu:1", "--epochs=1", "--save_every_steps=1", "--keep=9",
                   "--run_dir=" + run, cat("--seed=", seed)},
                  recipe);
    int step = 1;  // the one with the bad sample
    const auto said = [&](int s) {
      return cat("W the loss is not finite since step ", s,
                 ", so no step is saved until it is; checkpoints from before are kept\n");
    };
    while (step < 5 && done.error.find(said(step)) == done.error.npos) ++step;
    ASSERT_LT(step, 5) << done.error;
    EXPECT_EQ(done.error.find(said(step)), done.error.rfind(said(step))) << "once";
    EXPECT_EQ(done.code, step < 4 ? 0 : 1) << done.error;
    std::vector<std::int64_t> saved{1, 2, 3, 4};
    std::erase(saved, step);
    EXPECT_EQ(checkpoints_in(local_file_system(), run), saved);
    spoilt.insert(step);
  }
  EXPECT_GT(spoilt.size(), 1u);
  std::filesystem::remove_all(run);
}

// Activations overflow f16, though data and weights are finite.
TEST_F(DivergenceTest, OfF16TellsItsRange) {
  Recipe recipe = small_recipe();
  recipe.model = [](Tower& tower, Output x, Output y) {
    return f32_model(tower, cast(x, DType::kF32) * 1e6F, cast(y, DType::kF32));
  };
  EXPECT_THAT(run_train({"--precision=f16", "--devices=cpu:1"}, recipe).error,
              AllOf(HasSubstr("the loss of step 1 is "), HasSubstr("no numbers above 65504"),
                    HasSubstr("(--precision)")));
}

// The first update is that of step 2, as the loss scale is too large at step 1.
TEST_F(DivergenceTest, OfF16NamesALargeFirstUpdateAfterSkippedOnes) {
  Recipe recipe = small_recipe();
  recipe.model = [](Tower& tower, Output x, Output y) {
    return f32_model(tower, cast(x, DType::kF32), cast(y, DType::kF32)) * 20.0F;
  };
  const TrainResult result = run_train(
      {"--precision=f16", "--devices=cpu:1", "--learning_rate=1e30", json_flag()}, recipe);
  EXPECT_GT(report()["skipped_steps"], 0);
  EXPECT_GT(report()["first_nonfinite_step"], 2);
  EXPECT_THAT(result.error, AllOf(HasSubstr("the first update made '"),
                                  HasSubstr("a smaller learning rate may help")));
}

}  // namespace divergence_test
}  // namespace belfry
