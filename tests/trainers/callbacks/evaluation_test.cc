// When the callback Evaluation evaluates, and what.
#include "belfry/trainers/callbacks/evaluation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/framework/base/text.h"
#include "belfry/tests/trainers/core/small_problem.h"
#include "belfry/tests/trainers/util/fake_console.h"
#include "belfry/trainers/core/trainer.h"

namespace belfry {
namespace evaluation_test {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

// Notes after which steps there was an evaluation, and its metric mean_x.
struct Notes final : Callback {
  void after_evaluation(Trainer& trainer, const StepInfo& info) override {
    steps.push_back(info.step);
    epochs.push_back(info.epoch);
    EXPECT_EQ(trainer.steps(), info.step);
  }
  std::vector<std::int64_t> steps;
  std::vector<int> epochs;
};

struct Outcome {
  std::vector<std::int64_t> steps;
  std::vector<int> epochs;
  std::string printed, state;
  std::vector<NamedValue> metrics;
};

// Three epochs of four steps, of eight samples each, if nothing else is said.
Outcome run(EvaluationOptions options, const std::string& state = "",
            const TrainingPosition& from = {}, std::vector<ValidationSet> sets = {},
            bool only = false) {
  const auto data = smooth_data(32), test = smooth_data(21);
  FakeConsole console;
  const auto notes = std::make_shared<Notes>();
  const auto evaluation = std::make_shared<Evaluation>(console.console, nullptr, options);
  std::vector<std::shared_ptr<Callback>> callbacks{evaluation, notes};
  Trainer trainer(find_trainer("simple"),
                  {.model = smooth_model,
                   .optimizer = sgd(0.1),
                   .batch_size = 8,
                   .epochs = 3,
                   .evaluates_only = only,
                   .validation = std::move(sets),
                   .callbacks = callbacks},
                  *data, test.get());
  if (!state.empty()) evaluation->restore(JsonValue::parse(state));
  if (from.steps > 0) trainer.progress().resume(from);
  trainer.train();
  return {notes->steps, notes->epochs, console.printed(), evaluation->state().str(),
          trainer.record().set_metrics()};
}

double value_of(const Outcome& outcome, const std::string& name) {
  for (const NamedValue& value : outcome.metrics)
    if (value.name == name) return value.value;
  ADD_FAILURE() << "no metric " << name;
  return 0;
}

TEST(Evaluation, FollowsEachEpochByDefault) {
  const Outcome outcome = run({});
  EXPECT_THAT(outcome.steps, ElementsAre(4, 8, 12));
  EXPECT_THAT(outcome.epochs, ElementsAre(0, 1, 2));
  EXPECT_EQ(outcome.state, R"({"step":12,"batches":0})");
}

TEST(Evaluation, FollowsEveryNthEpochAndTheLast) {
  EXPECT_THAT(run({.every_epochs = 2}).steps, ElementsAre(8, 12));
}

TEST(Evaluation, FollowsEveryNthStepAndTheLast) {
  const Outcome outcome = run({.every_epochs = 0, .every_steps = 5});
  EXPECT_THAT(outcome.steps, ElementsAre(5, 10, 12));
  EXPECT_THAT(outcome.epochs, ElementsAre(1, 2, 2));
  EXPECT_THAT(outcome.printed, HasSubstr("epoch 2, step 5: test  loss"));
}

TEST(Evaluation, HappensOnceWhereAStepEndsAnEpoch) {
  const Outcome outcome = run({.every_epochs = 1, .every_steps = 2});
  EXPECT_THAT(outcome.steps, ElementsAre(2, 4, 6, 8, 10, 12));
  EXPECT_THAT(outcome.epochs, ElementsAre(0, 0, 1, 1, 2, 2));
  const Outcome steps = run({.every_epochs = 0, .every_steps = 4});
  EXPECT_THAT(steps.steps, ElementsAre(4, 8, 12));
  EXPECT_THAT(steps.epochs, ElementsAre(0, 1, 2));
}

TEST(Evaluation, NeverHappensIfNoneIsAskedFor) {
  const Outcome outcome = run({.every_epochs = 0});
  EXPECT_THAT(outcome.steps, IsEmpty());
  EXPECT_THAT(outcome.metrics, IsEmpty());
  EXPECT_THAT(outcome.printed, Not(HasSubstr("test")));
}

// A checkpoint is made before the evaluation of its step, so a resumed run may repeat that.
TEST(Evaluation, OfAStepIsDueAgainInARunThatResumesThere) {
  const EvaluationOptions options{.every_epochs = 0, .every_steps = 5};
  const TrainingPosition at{.steps = 5, .epoch = 1, .samples = 8};
  EXPECT_THAT(run(options, R"({"step":0})", at).steps, ElementsAre(5, 10, 12));
  EXPECT_THAT(run(options, R"({"step":5})", at).steps, ElementsAre(10, 12));
  const TrainingPosition between{.steps = 6, .epoch = 1, .samples = 16};
  EXPECT_THAT(run(options, R"({"step":0})", between).steps, ElementsAre(10, 12));
  const TrainingPosition end{.steps = 4, .epoch = 1};
  EXPECT_THAT(run({.every_epochs = 2}, R"({"step":0})", end).steps, ElementsAre(8, 12));
  EXPECT_THAT(run({}, R"({"step":0})", end).steps, ElementsAre(4, 8, 12));
}

TEST(Evaluation, TakesTheFirstBatchesAlone) {
  const auto mean = [](std::int64_t samples) {
    double sum = 0;
    for (std::int64_t i = 0; i < samples; ++i)
      for (int j = 0; j < 4; ++j) sum += std::sin(static_cast<double>(7 * i + 3 * j + 1));
    return sum / static_cast<double>(4 * samples);
  };
  EXPECT_NEAR(value_of(run({.batches = 1}), "validation_mean_x"), mean(8), 1e-12);
  EXPECT_NEAR(value_of(run({.batches = 2}), "validation_mean_x"), mean(16), 1e-12);
  for (const std::int64_t batches : {0, 3, 1000})
    EXPECT_NEAR(value_of(run({.batches = batches}), "validation_mean_x"), mean(21), 1e-12);
}

TEST(Evaluation, CoversSeveralSetsByName) {
  const auto more = smooth_data(9);
  const Outcome outcome = run({}, "", {}, {{"few", more.get()}});
  EXPECT_THAT(outcome.steps, ElementsAre(4, 8, 12));
  std::vector<std::string> names;
  for (const NamedValue& value : outcome.metrics) names.push_back(value.name);
  EXPECT_THAT(names, ElementsAre("validation_loss", "validation_mean_x", "validation_few_loss",
                                 "validation_few_mean_x"));
  double sum = 0;
  for (int i = 0; i < 9; ++i)
    for (int j = 0; j < 4; ++j) sum += std::sin(static_cast<double>(7 * i + 3 * j + 1));
  EXPECT_NEAR(value_of(outcome, "validation_few_mean_x"), sum / 36, 1e-12);
  EXPECT_THAT(outcome.printed, HasSubstr("epoch 1, step 4: test (few)  loss"));
}

TEST(Evaluation, RefusesSetsThatHaveNoNameOfTheirOwn) {
  const auto more = smooth_data(9);
  const auto refusal = [&](std::vector<ValidationSet> sets) -> std::string {
    try {
      run({}, "", {}, std::move(sets));
    } catch (const InvalidArgument& error) {
      return error.what();
    }
    return "(accepted)";
  };
  EXPECT_THAT(refusal({{"", more.get()}}), HasSubstr("a validation set is called ''"));
  EXPECT_THAT(refusal({{"a-b", more.get()}}), HasSubstr("a validation set is called 'a-b'"));
  EXPECT_THAT(refusal({{"a", more.get()}, {"a", more.get()}}),
              HasSubstr("two validation sets are called 'a'"));
  EXPECT_THAT(refusal({{"a", nullptr}}), HasSubstr("the validation set 'a' has no data"));
  const auto none = smooth_data(0);
  EXPECT_THAT(refusal({{"a", none.get()}}), HasSubstr("data of the validation set 'a'"));
}

// The error of a model that has a metric of this name, with a validation set 'a'.
std::string refusal_of_metric(const std::string& name) {
  const auto data = smooth_data(32), test = smooth_data(21);
  FakeConsole console;
  const auto model = [&](Tower& tower, Output x, Output y) {
    tower.metric(name, reduce_mean(y));
    return smooth_model(tower, x, y);
  };
  try {
    Trainer trainer(find_trainer("simple"),
                    {.model = model,
                     .optimizer = sgd(0.1),
                     .batch_size = 8,
                     .max_steps = 1,
                     .validation = {{"a", test.get()}},
                     .callbacks = {std::make_shared<Evaluation>(console.console)}},
                    *data, test.get());
    trainer.train();
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "";
}

TEST(Evaluation, RefusesMetricsWhoseValuesWouldHaveTheNameOfOthers) {
  EXPECT_EQ(refusal_of_metric("b_loss"), "");
  EXPECT_THAT(refusal_of_metric("a_loss"),
              HasSubstr("the metric 'loss' of the validation set 'a' would be called "
                        "validation_a_loss, as another one is"));
  for (const char* const taken : {"loss", "step", "epoch", "seconds"})
    EXPECT_THAT(refusal_of_metric(taken), HasSubstr(cat("a metric is called '", taken, "'")));
}

TEST(Evaluation, MayBeAllThatHappens) {
  const Outcome outcome = run({.every_epochs = 0, .every_steps = 1}, "", {}, {}, true);
  EXPECT_THAT(outcome.steps, ElementsAre(0));
}

TEST(Evaluation, RefusesNegativeOptions) {
  FakeConsole console;
  EXPECT_THROW(Evaluation(console.console, nullptr, {.every_steps = -1}), InvalidArgument);
}

TEST(Evaluation, WarnsIfItTakesOtherSamplesThanTheRunBefore) {
  const auto warned = [](const char* state) {
    testing::internal::CaptureStderr();
    run({.batches = 2}, state, {.steps = 4, .epoch = 1});
    return testing::internal::GetCapturedStderr();
  };
  EXPECT_THAT(warned(R"({"step":4,"batches":1})"),
              HasSubstr("eval_batches was 1 and is now 2 (0: all), so evaluations before and from "
                        "now on are of different samples"));
  EXPECT_THAT(warned(R"({"step":4,"batches":2})"), Not(HasSubstr("eval_batches")));
  EXPECT_THAT(warned(R"({"step":4})"), Not(HasSubstr("eval_batches"))) << "of an older run";
}

}  // namespace evaluation_test
}  // namespace belfry
