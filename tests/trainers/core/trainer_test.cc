#include "belfry/trainers/core/trainer.h"

#include <chrono>
#include <map>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/framework/base/text.h"
#include "belfry/framework/core_ops/initializers.h"
#include "belfry/tests/trainers/core/small_problem.h"
#include "belfry/trainers/callbacks/evaluation.h"
#include "belfry/trainers/core/trainer_kinds.h"
#include "belfry/trainers/util/console.h"
#include "belfry/trainers/util/hash.h"

namespace belfry {
namespace trainer_test {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

TrainerOptions small_options(int towers) {
  return {.model = smooth_model, .optimizer = sgd(0.1), .devices = cpus(towers), .batch_size = 4};
}

// The mean over all elements of field 0.
double mean_x(const Dataset& data) {
  std::vector<std::int64_t> all;
  for (std::int64_t i = 0; i < data.size(); ++i) all.push_back(i);
  const Tensor x = gather_tensors(data, all)[0];
  double sum = 0;
  for (const double value : x.data<double>()) sum += value;
  return sum / static_cast<double>(x.elements());
}

// Records the calls of callbacks, as text.
struct Recorder : Callback {
  std::vector<std::string>* events;
  std::string name;
  Recorder(std::vector<std::string>* log, std::string who) : events(log), name(std::move(who)) {}
  void note(const char* what, const StepInfo& info) const {
    events->push_back(cat(name, " ", what, " ", info.step, " of epoch ", info.epoch));
  }
  void setup(Trainer&) override { events->push_back(name + " setup"); }
  void before_step(Trainer&, const StepInfo& info) override { note("before", info); }
  void after_step(Trainer&, const StepInfo& info) override { note("after", info); }
  void after_epoch(Trainer&, const StepInfo& info) override { note("epoch at", info); }
  void after_training(Trainer&, const StepInfo& info) override { note("end at", info); }
};

TEST(Trainer, CallsCallbacksInOrderAroundEveryStep) {
  const auto data = smooth_data(8);
  std::vector<std::string> events;
  TrainerOptions options = small_options(1);
  options.callbacks = {std::make_shared<Recorder>(&events, "a"),
                       std::make_shared<Recorder>(&events, "b")};
  options.max_steps = 3;
  options.epochs = 5;
  Trainer trainer(find_trainer("simple"), std::move(options), *data);
  trainer.train();
  EXPECT_THAT(
      events,
      ElementsAre("a setup", "b setup", "a before 0 of epoch 0", "b before 0 of epoch 0",
                  "a after 0 of epoch 0", "b after 0 of epoch 0", "a before 1 of epoch 0",
                  "b before 1 of epoch 0", "a after 1 of epoch 0", "b after 1 of epoch 0",
                  "a epoch at 2 of epoch 0", "b epoch at 2 of epoch 0", "a before 2 of epoch 1",
                  "b before 2 of epoch 1", "a after 2 of epoch 1", "b after 2 of epoch 1",
                  "a end at 3 of epoch 1", "b end at 3 of epoch 1"));
  EXPECT_EQ(trainer.steps(), 3);
  EXPECT_EQ(trainer.progress().epochs(), 1);
}

TEST(Trainer, CallsCallbacksByPhaseThenInTheOrderOfTheList) {
  struct Phased final : Recorder {
    CallbackPhase own;
    Phased(std::vector<std::string>* log, std::string who, CallbackPhase phase)
        : Recorder(log, std::move(who)), own(phase) {}
    CallbackPhase phase() const override { return own; }
  };
  const auto data = smooth_data(4);
  std::vector<std::string> events;
  TrainerOptions options = small_options(1);
  options.callbacks = {std::make_shared<Recorder>(&events, "own"),
                       std::make_shared<Phased>(&events, "evaluates", CallbackPhase::kEvaluate),
                       std::make_shared<Phased>(&events, "saves", CallbackPhase::kSave),
                       std::make_shared<Phased>(&events, "saves too", CallbackPhase::kSave),
                       std::make_shared<Recorder>(&events, "last")};
  Trainer(find_trainer("simple"), std::move(options), *data).train();
  for (const char* const what : {" setup", " before", " after", " epoch at", " end"}) {
    std::vector<std::string> called;
    for (const std::string& event : events)
      if (const auto at = event.find(what); at != std::string::npos)
        called.push_back(event.substr(0, at));
    EXPECT_THAT(called, ElementsAre("saves", "saves too", "evaluates", "own", "last")) << what;
  }
}

TEST(Trainer, TellsAllCallbacksOfTheErrorThatEndsIt) {
  struct Failing final : Callback {
    void before_step(Trainer&, const StepInfo& info) override {
      if (info.step == 1) throw IoError("the disk is gone");
    }
    void on_error(Trainer&, const std::exception&) override { throw Error("and here, too"); }
  };
  struct Told final : Callback {
    void on_error(Trainer& trainer, const std::exception& error) override {
      what = cat("step ", trainer.steps(), ": ", error.what());
    }
    void after_training(Trainer&, const StepInfo&) override { ended = true; }
    std::string what;
    bool ended = false;
  };
  const auto data = smooth_data(8);
  const auto told = std::make_shared<Told>();
  TrainerOptions options = small_options(1);
  options.callbacks = {std::make_shared<Failing>(), told};
  options.epochs = 5;
  Trainer trainer(find_trainer("simple"), std::move(options), *data);
  testing::internal::CaptureStderr();
  EXPECT_THROW(trainer.train(), IoError);
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("and here, too"));
  EXPECT_EQ(told->what, "step 1: the disk is gone");
  EXPECT_FALSE(told->ended);
}

struct StopAfter : Callback {
  std::int64_t steps;
  explicit StopAfter(std::int64_t n) : steps(n) {}
  void after_step(Trainer& trainer, const StepInfo& info) override {
    if (info.step + 1 == steps) trainer.stop();
  }
};

TEST(Trainer, HasATrainingTowerForEachDevice) {
  const auto data = smooth_data(16);
  const Trainer trainer(find_trainer("replicated"), small_options(3), *data);
  ASSERT_EQ(trainer.built().nodes().towers.size(), 3u);
  for (std::size_t t = 0; t < 3; ++t) {
    EXPECT_EQ(trainer.built().nodes().towers[t].index, static_cast<int>(t));
    EXPECT_EQ(trainer.built().nodes().towers[t].device, trainer.built().options().devices[t]);
    EXPECT_EQ(trainer.built().nodes().towers[t].name, cat("tower", t));
  }
}

TEST(Trainer, PredictsOnAllDevicesWhereThereAreTestDataElseOnTheFirst) {
  const auto data = smooth_data(16);
  const TrainerOptions options = small_options(3);
  const auto predicting = [&](const Dataset* test) {
    const Trainer trainer(find_trainer("replicated"), options, *data, test);
    std::vector<DeviceSpec> devices;
    for (const TowerRecord& predictor : trainer.built().nodes().predictors)
      devices.push_back(predictor.device);
    return devices;
  };
  EXPECT_EQ(predicting(data.get()), options.devices);
  EXPECT_EQ(predicting(nullptr), std::vector{options.devices[0]});
}

TEST(Trainer, StopsWhenACallbackAsksForIt) {
  const auto data = smooth_data(64);
  TrainerOptions options = small_options(2);
  options.callbacks = {std::make_shared<StopAfter>(3)};
  Trainer trainer(find_trainer("replicated"), std::move(options), *data);
  trainer.train();
  EXPECT_EQ(trainer.steps(), 3);
}

TEST(Trainer, RunsEveryFullBatchOfEveryEpoch) {
  const auto data = smooth_data(27);  // 3 global batches of 8, 3 samples left out
  TrainerOptions options = small_options(2);
  options.epochs = 4;
  Trainer trainer(find_trainer("replicated"), std::move(options), *data);
  EXPECT_EQ(trainer.progress().total_steps(), 12);
  trainer.train();
  EXPECT_EQ(trainer.steps(), 12);
  EXPECT_EQ(trainer.progress().epochs(), 4);
  EXPECT_GT(trainer.record().examples_per_second(), 0);
}

TEST(Trainer, TracesItsSecondStepOrItsOnlyOne) {
  const auto data = smooth_data(32);
  for (const std::int64_t steps : {1, 2, 4}) {
    TrainerOptions options = small_options(2);
    options.max_steps = steps;
    std::vector<std::int64_t> traced;
    Trainer* running = nullptr;
    options.on_trace = [&](const Trace& trace) {
      EXPECT_FALSE(trace.empty());
      traced.push_back(running->steps());
    };
    Trainer trainer(find_trainer("replicated"), std::move(options), *data);
    running = &trainer;
    trainer.train();
    EXPECT_THAT(traced, ElementsAre(steps == 1 ? 0 : 1)) << steps;
  }
}

TEST(Trainer, ResumesAtAPositionAndCountsWhatWasDone) {
  const auto data = smooth_data(27);  // 3 steps of 8 an epoch
  TrainerOptions options = small_options(2);
  options.epochs = 4;
  Trainer trainer(find_trainer("replicated"), std::move(options), *data);
  trainer.progress().resume({.steps = 5, .epoch = 1, .samples = 16});
  EXPECT_EQ(trainer.progress().position(),
            (TrainingPosition{.steps = 5, .epoch = 1, .samples = 16}));
  EXPECT_EQ(trainer.progress().total_steps(), 12);
  trainer.train();
  EXPECT_EQ(trainer.steps(), 12);
  EXPECT_EQ(trainer.progress().epochs(), 4);
  EXPECT_EQ(trainer.progress().position(), (TrainingPosition{.steps = 12, .epoch = 4}));
}

TEST(Trainer, ResumesAnotherGlobalBatchAtItsLastWholeOne) {
  const auto data = smooth_data(27);
  Trainer trainer(find_trainer("simple"), small_options(1), *data);  // 6 steps of 4 an epoch
  trainer.progress().resume({.steps = 2, .samples = 14});
  EXPECT_EQ(trainer.progress().position().samples, 12);
  EXPECT_EQ(trainer.progress().total_steps(), 2 + 3);
  trainer.progress().resume(
      {.steps = 9, .samples = 27});  // as of another data set: a whole epoch is done
  EXPECT_EQ(trainer.progress().position().epoch, 1);
  EXPECT_EQ(trainer.progress().total_steps(), 9);
  EXPECT_THROW(trainer.progress().resume({.steps = -1}), InvalidArgument);
}

TEST(Trainer, ReportsTheMeanOfMetricsOverTowers) {
  const auto data = smooth_data(8);
  const double mean = mean_x(*data);
  Trainer trainer(find_trainer("replicated"), small_options(2), *data);
  trainer.train();
  EXPECT_NEAR(trainer.metric("mean_x"), mean, 1e-12);
  EXPECT_GT(trainer.metric("loss"), 0);
  EXPECT_THROW(trainer.metric("accuracy"), NotFoundError);
}

TEST(Trainer, FeedsScheduledRatesEachStep) {
  // The loss is w, so each step moves w by its rate.
  const auto data = smooth_data(8);
  TrainerOptions options = small_options(2);
  options.model = [](Tower& tower, Output, Output) {
    const Variable w =
        variable(tower.graph(), "w", {}, {.dtype = DType::kF64, .initializer = init::zeros()});
    return reduce_sum(w);
  };
  std::vector<std::int64_t> asked;
  options.optimizer = sgd([&](const StepInfo& info) {
    asked.push_back(info.step);
    return static_cast<double>(1 << info.step);
  });
  options.epochs = 3;
  Trainer trainer(find_trainer("replicated"), std::move(options), *data);
  trainer.train();
  EXPECT_THAT(asked, ElementsAre(0, 1, 2));
  EXPECT_EQ(trainer.session().read(trainer.graph().stored_variable("w")).item<double>(), -7);
  EXPECT_TRUE(differing_replicas(trainer.session(), trainer.graph()).empty());
}

// Epochs have 8 and 3 samples. The time of callbacks before a step does not count; the time in the
// step does.
TEST(Trainer, KnowsTheSpeedOfTheLastStep) {
  static constexpr std::chrono::milliseconds kSleep(20);
  struct Watch final : Callback {
    std::vector<double> speeds, seconds;
    double began = 0;
    void before_step(Trainer&, const StepInfo& info) override {
      began = info.seconds;
      std::this_thread::sleep_for(kSleep);
    }
    void after_step(Trainer& trainer, const StepInfo& info) override {
      speeds.push_back(trainer.record().step_examples_per_second());
      seconds.push_back(info.seconds - began);
    }
  };
  const auto data = smooth_data(11);
  TrainerOptions options = small_options(2);
  options.batches.uneven = Uneven::kPad;
  const auto watch = std::make_shared<Watch>();
  options.callbacks = {watch};
  options.on_trace = [](const Trace&) { std::this_thread::sleep_for(kSleep); };  // for step 1
  Trainer trainer(find_trainer("replicated"), std::move(options), *data);
  EXPECT_EQ(trainer.record().step_examples_per_second(), 0);
  trainer.train();
  ASSERT_EQ(watch->speeds.size(), 2u);
  EXPECT_LE(8 / watch->speeds[0], watch->seconds[0] - 0.02);
  EXPECT_LE(watch->speeds[1], 3 / 0.02);
}

// This holds for steps that this run does not make, too.
TEST(Trainer, TellsSchedulesOfTheWholeRun) {
  const auto data = smooth_data(8);
  TrainerOptions options = small_options(1);
  std::vector<StepInfo> asked;
  options.optimizer = sgd([&](const StepInfo& info) {
    asked.push_back(info);
    return 0.5;
  });
  options.epochs = 3;
  options.max_steps = 5;
  Trainer trainer(find_trainer("simple"), std::move(options), *data);
  EXPECT_EQ(trainer.progress().learning_rate(), "function of 5 steps: 0=0.5");
  asked.clear();
  trainer.progress().resume({.steps = 3, .epoch = 1, .samples = 4});
  trainer.train();
  ASSERT_EQ(asked.size(), 2u);
  EXPECT_EQ(asked[0].step, 3);
  EXPECT_EQ(asked[0].steps_per_epoch, 2);
  for (const StepInfo& info : asked) EXPECT_EQ(info.total_steps, 5);
}

TEST(Evaluation, TakesEveryTestSampleExactlyOnceAndWeightsAShortBatch) {
  std::FILE* sink = std::tmpfile();
  {
    Console console(sink);
    const auto train = smooth_data(16), test = smooth_data(11);
    const double mean = mean_x(*test);
    TrainerOptions options = small_options(2);
    options.callbacks = {std::make_shared<Evaluation>(console)};
    options.epochs = 2;
    Trainer trainer(find_trainer("replicated"), std::move(options), *train, test.get());
    EXPECT_FALSE(trainer.record().has_metric("validation_loss"));
    trainer.train();
    EXPECT_NEAR(trainer.metric("validation_mean_x"), mean, 1e-12);
    EXPECT_GT(trainer.metric("validation_loss"), 0);
  }
  std::rewind(sink);
  char text[400] = "";
  const std::size_t size = std::fread(text, 1, sizeof text - 1, sink);
  EXPECT_EQ(std::count(text, text + size, '\n'), 2) << text;
  std::fclose(sink);
}

TEST(Evaluation, GivesTheSameBitsOnOneToEightTowers) {
  const auto train = smooth_data(32), test = smooth_data(31);
  std::vector<double> losses;
  for (const int towers : {1, 2, 4, 8}) {
    std::FILE* sink = std::tmpfile();
    {
      Console console(sink);
      TrainerOptions options = small_options(towers);
      options.batch_size = 16 / towers;
      options.shards = 8;
      options.optimizer = sgd(0);
      options.callbacks = {std::make_shared<Evaluation>(console)};
      Trainer trainer(find_trainer("replicated"), std::move(options), *train, test.get());
      trainer.train();
      losses.push_back(trainer.metric("validation_loss"));
    }
    std::fclose(sink);
  }
  EXPECT_THAT(losses, testing::Each(losses[0]));
}

TEST(Evaluation, WorksWithLessTestDataThanABatch) {
  std::FILE* sink = std::tmpfile();
  {
    Console console(sink);
    const auto train = smooth_data(16), test = smooth_data(3);
    TrainerOptions options = small_options(1);
    options.callbacks = {std::make_shared<Evaluation>(console)};
    options.max_steps = 1;
    Trainer trainer(find_trainer("simple"), std::move(options), *train, test.get());
    trainer.train();
    EXPECT_TRUE(trainer.record().has_metric("validation_loss"));
  }
  std::fclose(sink);
}

// -- Errors at build.

std::string build_error(TrainerOptions options, std::int64_t samples = 64,
                        const char* kind = "replicated") {
  const auto data = smooth_data(samples);
  try {
    Trainer trainer(find_trainer(kind), std::move(options), *data);
  } catch (const Error& error) {
    return error.what();
  }
  return "(built)";
}

struct FreezeFirstLayer final : VariableGetter {
  void request(VariableRequest& request) override {
    if (request.name.starts_with("fc0/")) request.options.trainable = false;
  }
};

// The getter knows no tower, whatever variables each of them has.
TEST(Trainer, OfAnyKindFreezesByName) {
  const auto data = smooth_data(16);
  for (const std::string& kind : library_trainers()) {
    SCOPED_TRACE(kind);
    TrainerOptions options = small_options(kind == "simple" ? 1 : 2);
    options.model = [](Tower& tower, Output x, Output y) {
      FreezeFirstLayer freeze;
      const VariableScope scope(tower.graph(), freeze);
      return smooth_model(tower, x, y);
    };
    Trainer trainer(find_trainer(kind), std::move(options), *data);
    std::map<std::string, Tensor> before;
    for (const Variable v : original_variables(trainer.graph()))
      before.emplace(v.logical_name(), trainer.session().read(v));
    trainer.train();
    for (const Variable v : trainer.graph().variables(kTrainableVariables))
      EXPECT_THAT(std::string(v.logical_name()), StartsWith("fc1/"));
    for (const Variable v : original_variables(trainer.graph()))
      EXPECT_EQ(trainer.session().read(v) == before.at(std::string(v.logical_name())),
                v.logical_name().starts_with("fc0/"))
          << v.logical_name();
  }
}

TEST(Trainer, RefusesTowersThatDisagreeNamingVariableAndBothLines) {
  TrainerOptions options = small_options(2);
  options.model = [](Tower& t, Output x, Output y) {
    if (t.index() == 1)
      return reduce_mean(square(dense(t, "fc1", x, {.units = 1, .bias = false}) - y));
    return reduce_mean(square(dense(t, "fc1", x, {.units = 1}) - y));
  };
  EXPECT_THAT(build_error(options), AllOf(HasSubstr("fc1/b"), HasSubstr("trainer_test.cc")));
  options.model = [](Tower& t, Output x, Output y) {
    return reduce_mean(
        square(reduce_sum(dense(t, "fc1", x, {.units = 1 + t.index()}), {1}) - reduce_sum(y, {1})));
  };
  EXPECT_THAT(build_error(options), AllOf(HasSubstr("fc1/W"), HasSubstr("[4,1]"),
                                          HasSubstr("[4,2]"), HasSubstr("trainer_test.cc")));
  options.model = [](Tower& t, Output, Output) {
    const DType dtype = t.index() == 0 ? DType::kF64 : DType::kF32;
    return reduce_sum(variable(t.graph(), "w", {3}, {.dtype = dtype}));
  };
  EXPECT_THAT(build_error(options), AllOf(HasSubstr("'w'"), HasSubstr("f64"), HasSubstr("f32"),
                                          HasSubstr("trainer_test.cc")));
  EXPECT_THAT(build_error(options, 64, "parameter_server"), HasSubstr("'w'"));
}

TEST(Trainer, RefusesBatchesLargerThanTheData) {
  EXPECT_THAT(build_error(small_options(2), 7), AllOf(StartsWith("batch_size="), HasSubstr("7")));
  EXPECT_EQ(build_error(small_options(2), 8), "(built)");
}

TEST(Trainer, RefusesModelsForOtherFields) {
  TrainerOptions options = small_options(2);
  options.model = [](Tower&, Output x) { return reduce_mean(x); };
  EXPECT_THAT(build_error(options), AllOf(HasSubstr("takes 1 inputs"), HasSubstr("2 fields")));
}

TEST(Trainer, RefusesOddNumbersOfTowersForHierarchical) {
  TrainerOptions options = small_options(3);
  options.aggregation.allreduce = "hierarchical";
  EXPECT_THAT(build_error(options), HasSubstr("hierarchical needs an even number"));
}

TEST(Trainer, RefusesPackingWithThePackersReasonAndTheNumberOfElements) {
  TrainerOptions options = small_options(2);
  options.aggregation.gradient_repacking = 4;
  EXPECT_THAT(build_error(options),
              AllOf(StartsWith("gradient_repacking=4"), HasSubstr("31 elements")));
}

TEST(Trainer, OfOneDeviceRefusesSeveral) {
  EXPECT_THAT(build_error(small_options(2), 64, "simple"),
              HasSubstr("the trainer simple takes one device, not 2"));
}

struct BrokenData final : Dataset {
  std::vector<Field> signature() const override {
    return {{"x", DType::kF64, {4}}, {"y", DType::kF64, {1}}};
  }
  std::int64_t size() const override { return 64; }
  void gather(std::span<const std::int64_t>, std::span<std::byte* const>) const override {
    throw IoError("record 5 is broken");
  }
  std::string describe() const override { return "broken"; }
};

TEST(Trainer, PassesOnErrorsOfTheData) {
  const BrokenData data;
  Trainer trainer(find_trainer("replicated"), small_options(2), data);
  EXPECT_THROW(trainer.train(), IoError);
}

TEST(ReplicasEqual, TurnsFalseWhenOneValueOfOneReplicaIsChanged) {
  const auto data = smooth_data(64);
  Trainer trainer(find_trainer("replicated"), small_options(3), *data);
  trainer.train();
  EXPECT_TRUE(differing_replicas(trainer.session(), trainer.graph()).empty());
  const Variable copy = trainer.graph().stored_variable("tower2/fc0/W");
  ASSERT_TRUE(copy);
  const std::string hash = params_hash(trainer.session(), trainer.graph());
  Tensor value = trainer.session().read(copy);
  double& one = value.mutable_data<double>()[7];
  one = std::nextafter(one, 1e9);
  trainer.session().write(copy, value);
  EXPECT_THAT(differing_replicas(trainer.session(), trainer.graph()), ElementsAre("tower2/fc0/W"));
  EXPECT_EQ(params_hash(trainer.session(), trainer.graph()), hash);
}

}  // namespace trainer_test
}  // namespace belfry
