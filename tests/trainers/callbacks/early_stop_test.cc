#include "belfry/trainers/callbacks/early_stop.h"

#include <cmath>

#include <gmock/gmock.h>

#include "belfry/tests/trainers/core/small_problem.h"
#include "belfry/tests/trainers/util/fake_console.h"
#include "belfry/trainers/callbacks/evaluation.h"
#include "belfry/trainers/core/trainer.h"
#include "belfry/trainers/core/trainer_kinds.h"
#include "belfry/trainers/util/option_error.h"

namespace belfry {
namespace early_stop_test {

using testing::AllOf;
using testing::HasSubstr;

// Stands in for an evaluation: it gives the value of an epoch.
struct Says final : Callback {
  std::vector<double> values;
  explicit Says(std::vector<double> of_epochs) : values(std::move(of_epochs)) {}
  CallbackPhase phase() const override { return CallbackPhase::kEvaluate; }
  void setup(Trainer& trainer) override { trainer.record().set_metric("score", 0); }
  void after_epoch(Trainer& trainer, const StepInfo& info) override {
    trainer.record().set_metric("score", values[static_cast<std::size_t>(info.epoch)]);
  }
};

struct Outcome {
  std::int64_t steps;
  std::string printed, state;
};

// Runs as many epochs of 2 steps as there are values. Starts from the state `before`, if given.
Outcome run(const EarlyStopOptions& options, const std::vector<double>& scores,
            const std::string& before = "", const TrainingPosition& from = {}) {
  const auto data = smooth_data(8);
  FakeConsole console;
  const auto stop = std::make_shared<EarlyStop>(options, console.console);
  if (!before.empty()) stop->restore(JsonValue::parse(before));
  TrainerOptions training{.model = smooth_model, .optimizer = sgd(0.1), .batch_size = 4};
  training.epochs = static_cast<int>(scores.size());
  training.callbacks = {std::make_shared<Says>(scores), stop};
  Trainer trainer(find_trainer("simple"), std::move(training), *data);
  trainer.progress().resume(from);
  trainer.train();
  return {trainer.steps(), console.printed(), stop->state().str()};
}

TEST(EarlyStop, EndsATrainingThatGetsNoBetter) {
  const Outcome lowest = run({.metric = "score", .patience = 2}, {3, 1, 2, 1, 0});
  EXPECT_EQ(lowest.steps, 8);
  EXPECT_EQ(lowest.printed,
            "early stop: score was not below 1, which it had after step 4, in 2 evaluations; "
            "training ends after step 8\n");
  EXPECT_EQ(run({.metric = "score", .highest = true, .patience = 2}, {3, 1, 4, 1, 0, 5}).steps, 10);
  EXPECT_EQ(run({.metric = "score", .patience = 2}, {3, 4, 2, 3, 1}).steps, 10);
}

// 16 steps in an epoch, and no value is better than the first one.
TEST(EarlyStop, LooksAtAMetricOfStepsAfterEpochsAndEvaluations) {
  const auto train = smooth_data(64), test = smooth_data(8);
  const auto steps = [&](EvaluationOptions evaluations) {
    FakeConsole console;
    TrainerOptions options{
        .model = smooth_model, .optimizer = sgd(0.1), .batch_size = 4, .epochs = 5};
    options.callbacks = {
        std::make_shared<Evaluation>(console.console, nullptr, evaluations),
        std::make_shared<EarlyStop>(
            EarlyStopOptions{.metric = "loss", .patience = 2, .least_improvement = 1e9},
            console.console)};
    Trainer trainer(find_trainer("simple"), std::move(options), *train, test.get());
    trainer.train();
    return trainer.steps();
  };
  EXPECT_EQ(steps({.every_epochs = 0}), 48);
  EXPECT_EQ(steps({.every_epochs = 1}), 48) << "both at once count once";
  EXPECT_EQ(steps({.every_epochs = 0, .every_steps = 2}), 6);
  EXPECT_EQ(steps({.every_epochs = 0, .every_steps = 12}), 24) << "steps 12, 16 and 24";
}

TEST(EarlyStop, AsksForALeastImprovement) {
  const EarlyStopOptions options{.metric = "score", .patience = 2, .least_improvement = 0.5};
  const Outcome outcome = run(options, {3, 2.75, 2.5, 1});
  EXPECT_EQ(outcome.steps, 6);
  EXPECT_THAT(outcome.printed, HasSubstr("not below 3 by more than 0.5, which it had"));
  EXPECT_EQ(run(options, {3, 2.75, 2.25, 2, 1}).steps, 10);
}

TEST(EarlyStop, TakesNoNaNForBetter) {
  const double nan = std::nan("");
  EXPECT_EQ(run({.metric = "score", .patience = 2}, {1, nan, nan, 0}).steps, 6);
  const Outcome never = run({.metric = "score", .patience = 1}, {nan, 1});
  EXPECT_EQ(never.steps, 2);
  EXPECT_THAT(never.printed, HasSubstr("score was not finite in 1 evaluation; training"));
}

TEST(EarlyStop, GoesOnFromItsState) {
  const EarlyStopOptions options{.metric = "score", .patience = 2};
  const std::vector<double> scores{3, 1, 2, 1, 0};
  const Outcome first = run(options, {3, 1, 2});
  EXPECT_EQ(first.state, R"({"best":1.0,"best_step":4,"worse":1,"seen_step":6})");
  const Outcome second = run(options, scores, first.state, {.steps = 6, .epoch = 3});
  EXPECT_EQ(second.steps, 8);
  EXPECT_EQ(second.state, run(options, scores).state);
  // The epoch is evaluated again, and counts once.
  const Outcome again = run(options, scores, first.state, {.steps = 4, .epoch = 2});
  EXPECT_EQ(again.steps, 8);
  EXPECT_EQ(run(options, {3}).state, run(options, {3},
                                         R"({"best":null,"best_step":0,)"
                                         R"("worse":0,"seen_step":0})")
                                         .state);
}

TEST(EarlyStop, EndsAgainWhatItHadEnded) {
  const EarlyStopOptions options{.metric = "score", .patience = 1};
  const Outcome ended = run(options, {1, 2, 0});
  const Outcome again = run(options, {1, 2, 0}, ended.state, {.steps = 4, .epoch = 2});
  EXPECT_EQ(again.steps, 4);
  EXPECT_THAT(again.printed, HasSubstr("early stop: score was not below 1"));
  const EarlyStopOptions patient{.metric = "score", .patience = 2};
  EXPECT_EQ(run(patient, {1, 2, 0}, ended.state, {.steps = 4, .epoch = 2}).steps, 6);
}

TEST(EarlyStop, RefusesAStateThatIsNone) {
  FakeConsole console;
  EarlyStop stop({.metric = "score"}, console.console);
  const std::string before = stop.state().str();
  for (const char* state : {"{}", R"({"best":"x","best_step":0,"worse":0,"seen_step":0})",
                            R"({"best":1,"best_step":0,"worse":-1,"seen_step":0})"})
    EXPECT_THROW(stop.restore(JsonValue::parse(state)), InvalidArgument) << state;
  EXPECT_EQ(stop.state().str(), before);
}

TEST(EarlyStop, KnowsItsMetricBeforeItTrains) {
  const auto refusal = [](const char* metric) -> std::string {
    try {
      run({.metric = metric}, {1});
    } catch (const OptionError& error) {
      return error.what();
    }
    return "(accepted)";
  };
  EXPECT_EQ(refusal("score"), "(accepted)");
  EXPECT_EQ(refusal("loss"), "(accepted)");
  EXPECT_THAT(refusal("mean_y"), AllOf(HasSubstr("early_stop=mean_y:min:1: there is no metric"),
                                       HasSubstr("mean 'mean_x'?")));
  EXPECT_THAT(refusal("validation_loss"), HasSubstr("there are no data to evaluate"));
}

TEST(EarlyStop, IsReadFromText) {
  const EarlyStopOptions plain = parse_early_stop("validation_accuracy:max:3");
  EXPECT_EQ(plain.metric, "validation_accuracy");
  EXPECT_TRUE(plain.highest);
  EXPECT_EQ(plain.patience, 3);
  EXPECT_EQ(plain.least_improvement, 0);
  for (const char* text : {"validation_loss:min:1", "a:max:5:0.001"})
    EXPECT_EQ(parse_early_stop(text).str(), text);
}

TEST(EarlyStop, SaysWhichPartOfATextIsWrong) {
  const auto refusal = [](const char* text) -> std::string {
    try {
      parse_early_stop(text);
    } catch (const InvalidArgument& error) {
      return error.what();
    }
    return "(accepted)";
  };
  EXPECT_THAT(refusal("loss"), HasSubstr("'loss' is not METRIC:min|max:PATIENCE"));
  EXPECT_THAT(refusal("loss:min:1:2:3"), HasSubstr("METRIC:min|max:PATIENCE"));
  EXPECT_THAT(refusal(":min:1"), HasSubstr("the metric is empty"));
  EXPECT_THAT(refusal("loss:least:1"), HasSubstr("'least' is neither min nor max"));
  EXPECT_THAT(refusal("loss:min:0"), HasSubstr("the patience '0' is not a whole number between 1"));
  EXPECT_THAT(refusal("loss:min:1:-1"), HasSubstr("the least improvement '-1' is not a finite"));
}

}  // namespace early_stop_test
}  // namespace belfry
