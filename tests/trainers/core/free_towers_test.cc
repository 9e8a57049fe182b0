// The trainer "async" with towers that run independently of each other.
#include <atomic>
#include <numeric>
#include <system_error>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/base/threads.h"
#include "belfry/framework/core_ops/assign.h"
#include "belfry/framework/plan/plan.h"
#include "belfry/ops/convolution/max_pool.h"
#include "belfry/tests/trainers/data/idx_files.h"
#include "belfry/tests/trainers/kinds/async_support.h"
#include "belfry/trainers/callbacks/evaluation.h"
#include "belfry/trainers/core/trainer.h"
#include "belfry/trainers/core/trainer_kinds.h"
#include "belfry/trainers/core/training_checkpoint.h"
#include "belfry/trainers/data/mnist.h"
#include "belfry/trainers/util/console.h"

namespace belfry {
namespace free_towers_test {

using test::TemporaryFolder;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Records the calls of callbacks.
struct Recorder : Callback {
  std::vector<std::string> events;
  std::thread::id thread = std::this_thread::get_id();
  void note(const char* what, const StepInfo& info) {
    EXPECT_EQ(std::this_thread::get_id(), thread);
    events.push_back(cat(what, " ", info.step, " of epoch ", info.epoch));
  }
  void before_step(Trainer&, const StepInfo& info) override { note("before", info); }
  void after_step(Trainer&, const StepInfo& info) override { note("after", info); }
  void after_epoch(Trainer& trainer, const StepInfo& info) override {
    note("epoch at", info);
    // All towers have stopped, after exactly so many tower steps.
    EXPECT_EQ(trainer.session().step(), static_cast<std::uint64_t>(3 * info.step));
    EXPECT_EQ(trainer.progress().position(),
              (TrainingPosition{.steps = info.step, .epoch = info.epoch + 1}));
  }
  void after_training(Trainer&, const StepInfo& info) override { note("end at", info); }
};

TEST(Free, CountsKTowerStepsAsOneAndCallsCallbacksInOrder) {
  const auto data = smooth_data(27);  // 2 steps of 12 an epoch
  TrainerOptions options = async_options("free", 3);
  const auto recorder = std::make_shared<Recorder>();
  options.callbacks = {recorder};
  options.epochs = 4;
  options.max_steps = 5;
  options.optimizer = adam(0.01);
  Trainer trainer(find_trainer("async"), options, *data);
  EXPECT_EQ(trainer.progress().total_steps(), 5);
  trainer.train();
  EXPECT_THAT(recorder->events,
              ElementsAre("before 0 of epoch 0", "after 0 of epoch 0", "before 1 of epoch 0",
                          "after 1 of epoch 0", "epoch at 2 of epoch 0", "before 2 of epoch 1",
                          "after 2 of epoch 1", "before 3 of epoch 1", "after 3 of epoch 1",
                          "epoch at 4 of epoch 1", "before 4 of epoch 2", "after 4 of epoch 2",
                          "end at 5 of epoch 2"));
  EXPECT_EQ(trainer.steps(), 5);
  EXPECT_EQ(trainer.progress().epochs(), 2);
  EXPECT_EQ(trainer.session().step(), 15u);
  EXPECT_EQ(trainer.progress().position(),
            (TrainingPosition{.steps = 5, .epoch = 2, .samples = 12}));
  EXPECT_GT(trainer.record().examples_per_second(), 0);
  EXPECT_EQ(
      trainer.session().read(trainer.graph().stored_variable("Adam/step")).item<std::int64_t>(),
      15);
}

TEST(Free, GivesEachTowerItsOwnShareOfTheSamples) {
  // Without a learning rate, the losses depend only on the batches, not on the order of the towers.
  const auto data = smooth_data(48);
  const auto mean_losses = [&](const char* kind, const char* async, int data_workers = 1) {
    struct Sum : Callback {
      double total = 0;
      void after_step(Trainer& trainer, const StepInfo&) override {
        total += trainer.metric("loss") + 1e3 * trainer.metric("mean_x");
      }
    };
    TrainerOptions options = async_options(async, 4);
    options.optimizer = sgd(0);
    options.data_workers = data_workers;
    const auto sum = std::make_shared<Sum>();
    options.callbacks = {sum};
    std::make_unique<Trainer>(find_trainer(kind), std::move(options), *data)->train();
    return sum->total;
  };
  const double expected = mean_losses("replicated", "");
  EXPECT_NEAR(mean_losses("async", "free"), expected, 1e-9);
  EXPECT_NEAR(mean_losses("async", "free", 0), expected, 1e-9);
}

TEST(Free, LearnsTheSmallProblem) {
  for (const int towers : {2, 4}) {
    const auto data = smooth_data(96);
    TrainerOptions options = async_options("free", towers);
    options.optimizer = momentum(0.05);
    options.epochs = 30;
    struct Losses : Callback {
      std::vector<double> values;
      void after_step(Trainer& trainer, const StepInfo&) override {
        values.push_back(trainer.metric("loss"));
      }
    };
    const auto losses = std::make_shared<Losses>();
    options.callbacks = {losses};
    Trainer trainer(find_trainer("async"), options, *data);
    trainer.train();
    const auto mean = [&](auto from, auto to) {
      return std::accumulate(from, to, 0.0) / static_cast<double>(to - from);
    };
    const auto& all = losses->values;
    const std::ptrdiff_t epoch = std::ssize(all) / 30;
    EXPECT_LT(mean(all.end() - epoch, all.end()), mean(all.begin(), all.begin() + epoch) / 2);
  }
}

TEST(Free, LearnsGeneratedDigits) {
  const auto train = data::generated_digits(2048, 1), test = data::generated_digits(256, 2);
  TrainerOptions options = digit_options("free", 2);
  options.model = [](Tower& tower, Output image, Output label) {
    Output x = relu(conv2d(tower, "conv0", image, {.filters = 8, .kernel = 3}));
    x = max_pool(batch_norm(tower, "bn0", x), {.window = 2});
    x = max_pool(relu(conv2d(tower, "conv1", x, {.filters = 16, .kernel = 3})), {.window = 2});
    const Output logits = dense(tower, "fc", flatten(x), {.units = 10});
    tower.metric("accuracy", accuracy(logits, label));
    return cross_entropy(logits, label);
  };
  options.optimizer = adam(3e-3);
  options.batch_size = 16;
  options.epochs = 3;
  std::FILE* sink = std::tmpfile();
  {
    Console console(sink);
    options.callbacks = {std::make_shared<Evaluation>(console)};
    Trainer trainer(find_trainer("async"), options, *train, test.get());
    trainer.train();
    // The accuracy uses the moving averages, which the towers have updated.
    EXPECT_GT(trainer.metric("validation_accuracy"), 0.75);
  }
  std::fclose(sink);
}

// Averages start at 0 and 1 and move towards the moments with momentum 0.9. The result of 6 moves
// to constants is known.
TEST(Free, MovesAveragesByEachTowersMoments) {
  const auto data = smooth_data(24);
  TrainerOptions options = async_options("free", 2);
  options.optimizer = sgd(0);
  options.model = [](Tower& tower, Output x, Output) {
    const Output constant_of_tower = x * 0 + (tower.index() + 1.0);
    return reduce_mean(batch_norm(tower, "bn", constant_of_tower));
  };
  Trainer trainer(find_trainer("async"), options, *data);
  trainer.train();
  ASSERT_EQ(trainer.steps(), 3);
  std::vector<Variable> averages;
  for (const Variable v : trainer.graph().variables())
    if (!v.trainable()) averages.push_back(v);
  ASSERT_EQ(averages.size(), 2u);
  const double mean = trainer.session().read(averages[0]).data<double>()[0];
  const double variance = trainer.session().read(averages[1]).data<double>()[0];
  // The result lies between three moves to 1 before three to 2, and the reverse. No tower moved the
  // average by both.
  const double p = 0.9 * 0.9 * 0.9, low = (1 - p) * 2 * p + (1 - p),
               high = (1 - p) * p + (1 - p) * 2;
  EXPECT_GE(mean, std::min(low, high) - 0.2);
  EXPECT_LE(mean, std::max(low, high) + 0.2);
  EXPECT_NEAR(variance, p * p, 0.2);
}

struct StopAfter : Callback {
  std::int64_t steps;
  explicit StopAfter(std::int64_t n) : steps(n) {}
  void after_step(Trainer& trainer, const StepInfo& info) override {
    if (info.step + 1 == steps) trainer.stop();
  }
};

TEST(Free, StopsWhenACallbackAsksForIt) {
  const auto data = smooth_data(400);
  TrainerOptions options = async_options("free", 2);
  options.callbacks = {std::make_shared<StopAfter>(3)};
  Trainer trainer(find_trainer("async"), options, *data);
  trainer.train();
  EXPECT_EQ(trainer.steps(), 3);
  EXPECT_GE(trainer.session().step(), 6u);
  EXPECT_LE(trainer.session().step(), 8u);  // K steps more at most
  EXPECT_TRUE(trainer.session().intact());
}

struct Throws : Callback {
  void after_step(Trainer&, const StepInfo& info) override {
    require<IoError>(info.step < 2, "no more");
  }
};

TEST(Free, ErrorsOfCallbacksEndTheTraining) {
  const auto data = smooth_data(400);
  TrainerOptions options = async_options("free", 3);
  options.callbacks = {std::make_shared<Throws>()};
  Trainer trainer(find_trainer("async"), options, *data);
  EXPECT_THROW(trainer.train(), IoError);
  const std::uint64_t steps = trainer.session().step();
  EXPECT_EQ(trainer.session().step(), steps);
  EXPECT_TRUE(trainer.session().intact());
}

// Counts runs of the kernel, which throws in the run `fatal_run`.
std::atomic<int> runs{0};
std::atomic<int> fatal_run{0};

KernelRun fatal_kernel(KernelPlan& plan) {
  const auto count = static_cast<std::size_t>(plan.output().shape.elements());
  return [count](const KernelPointers& p) {
    const int run = ++runs;
    require<DeviceError>(run != fatal_run, "run ", run, " was fatal");
    std::copy_n(p.input<double>(0), count, p.output<double>());
  };
}
std::vector<Output> fatal_gradient(const Node&, std::span<const Output> grads) {
  return {grads[0]};
}
const Op kFatalTest{.name = "FatalTest",
                    .inputs = 1,
                    .shape = same_as_input,
                    .gradient = fatal_gradient,
                    .reference = fatal_kernel};

TEST(Free, TheTowerWhoseThreadCannotBeStartedIsNamed) {
  const auto data = smooth_data(400);
  Trainer trainer(find_trainer("async"), async_options("free", 3), *data);
  set_thread_hook([](const ThreadUse& use) {
    if (use.what.starts_with("tower 1 of 3"))
      throw std::system_error(std::make_error_code(std::errc::resource_unavailable_try_again));
  });
  try {
    trainer.train();
    ADD_FAILURE() << "trained";
  } catch (const DeviceError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("tower 1 of 3"), HasSubstr("use fewer devices")));
  }
  set_thread_hook({});
}

TEST(Free, TheErrorOfATowerStopsAllAndLeavesTrain) {
  const auto data = smooth_data(4000);  // 1,000 tower steps an epoch
  for (const int fatal : {1, 4, 11}) {
    runs = 0;
    fatal_run = fatal;
    TrainerOptions options = async_options("free", 4);
    options.epochs = 200;
    options.model = [](Tower& tower, Output x, Output y) {
      return smooth_model(tower, tower.graph().add(kFatalTest, {x}, At("fatal")).output(), y);
    };
    Trainer trainer(find_trainer("async"), options, *data);
    try {
      trainer.train();
      FAIL() << "trained";
    } catch (const DeviceError& error) {
      EXPECT_EQ(error.what(), cat("run ", fatal, " was fatal"));
    }
    EXPECT_LT(runs, 200'000);                 // the others did not go on to the end
    EXPECT_TRUE(trainer.session().intact());  // it failed before its writes
  }
}

// The failing tower has made its update in part. A tower that runs next fails, too, but with this
// error.
TEST(Free, AnErrorAmidUpdatesIsTheOneThatIsThrown) {
  const auto data = smooth_data(4000);
  runs = 0;
  fatal_run = 9;
  TrainerOptions options = async_options("free", 4);
  options.optimizer =
      Optimizer({.name = "Fatal", .rate = 0.1, .update = [](const Optimizer::Update& u) -> Node& {
                   Node& first = assign_sub(u.variable, u.gradient * u.rate, u.at);
                   const ControlDependencies after(u.gradient.graph(), {first});
                   const Output again =
                       u.gradient.graph().add(kFatalTest, {u.gradient}, u.at).output();
                   return assign_sub(u.variable, again * u.rate, u.at);
                 }});
  Trainer trainer(find_trainer("async"), options, *data);
  try {
    trainer.train();
    FAIL() << "trained";
  } catch (const DeviceError& error) {
    EXPECT_STREQ(error.what(), "run 9 was fatal");
  }
  EXPECT_FALSE(trainer.session().intact());
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

TEST(Free, PassesOnErrorsOfTheData) {
  const BrokenData data;
  Trainer trainer(find_trainer("async"), async_options("free", 2), data);
  EXPECT_THROW(trainer.train(), IoError);
}

TEST(Free, AsksSchedulesOncePerStep) {
  const auto data = smooth_data(24);
  TrainerOptions options = async_options("free", 2);
  std::vector<std::int64_t> asked;
  options.optimizer = sgd([&](const StepInfo& info) {
    asked.push_back(info.step);
    return 0.01;
  });
  Trainer trainer(find_trainer("async"), std::move(options), *data);
  trainer.train();
  EXPECT_THAT(asked, ElementsAre(0, 1, 2));
}

TEST(Free, TracesTowerZerosSecondStepOrItsOnlyOne) {
  const auto data = smooth_data(64);
  for (const std::int64_t steps : {1, 2, 4}) {
    TrainerOptions options = async_options("free", 2);
    options.max_steps = steps;
    int traced = 0;
    options.on_trace = [&](const Trace& trace) {
      ++traced;
      EXPECT_THAT(trace.str(), HasSubstr("tower0/"));
      EXPECT_THAT(trace.str(), ::testing::Not(HasSubstr("tower1/")));
    };
    Trainer trainer(find_trainer("async"), std::move(options), *data);
    trainer.train();
    EXPECT_EQ(traced, 1) << steps;
  }
}

TEST(Free, GoesOnFromACheckpointWithItsCounts) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/checkpoint";
  const auto data = smooth_data(64);  // 8 steps of 8
  TrainerOptions options = async_options("free", 2);
  options.optimizer = adam(0.01);
  options.max_steps = 5;
  Trainer half(find_trainer("async"), options, *data);
  half.train();
  save_training(half, path);
  options.max_steps = 0;
  Trainer rest(find_trainer("async"), options, *data);
  restore_training(rest, path);
  EXPECT_EQ(hashes_of(rest), hashes_of(half));
  EXPECT_EQ(rest.progress().position(), (TrainingPosition{.steps = 5, .samples = 40}));
  rest.train();
  EXPECT_EQ(rest.steps(), 8);
  EXPECT_EQ(rest.session().step(), 16u);
  EXPECT_EQ(rest.session().read(rest.graph().stored_variable("Adam/step")).item<std::int64_t>(),
            16);
}

TEST(Free, TowersNeedNothingOfEachOther) {
  const auto data = smooth_data(64);
  Trainer trainer(find_trainer("async"), async_options("free", 3), *data);
  const TrainingGraph& built = trainer.built().nodes();
  EXPECT_TRUE(built.losses[0].steps.empty());
  ASSERT_EQ(built.tower_ops.size(), 3u);
  for (std::size_t t = 0; t < 3; ++t) {
    std::vector<FeedType> feeds;
    for (const Output& input : built.towers[t].inputs) feeds.push_back({input, input.shape()});
    const Fetch update(*built.tower_ops[t]);
    const Plan& plan = *trainer.session().prepare({&update, 1}, feeds).plan();
    for (const PlanNode& node : plan.nodes)
      for (std::size_t other = 0; other < 3; ++other) {
        const bool foreign = node.node->name().starts_with(cat("tower", other, "/"));
        EXPECT_TRUE(other == t || !foreign) << node.name();
      }
  }
}

}  // namespace free_towers_test
}  // namespace belfry
