// Several losses that a step trains in turns, each with its own variables and optimizer.
#include "belfry/trainers/core/trained_losses.h"

#include <cmath>
#include <mutex>

#include "belfry/framework/base/text.h"
#include "belfry/framework/core_ops/fill.h"
#include "belfry/framework/core_ops/initializers.h"
#include "belfry/ops/cast.h"
#include "belfry/ops/dropout.h"
#include "belfry/ops/log.h"
#include "belfry/tests/framework/framework_test_support.h"
#include "belfry/tests/support/process_threads.h"
#include "belfry/tests/trainers/program/run_support.h"
#include "belfry/trainers/core/divergence.h"
#include "belfry/trainers/core/trainer.h"
#include "belfry/trainers/core/trainer_kinds.h"
#include "belfry/trainers/util/hash.h"
#include "belfry/trainers/util/schedules.h"
#include "belfry/trainers/util/statistics.h"

namespace belfry {
namespace trained_losses_test {

using testing::AllOf;
using testing::HasSubstr;

Output scalar(Tower& tower, const char* name, double value) {
  return variable(tower.graph(), name, {},
                  {.dtype = DType::kF64, .initializer = init::constant(value)});
}

// "one" is (a - 2 b)^2, and "two" is (a + b - 1)^2. The data change nothing.
Output toy(Tower& tower, Output x, Output) {
  const Output a = scalar(tower, "a", 3), b = scalar(tower, "b", -1);
  tower.loss("one", square(a - b * 2.0) + reduce_mean(x) * 0.0);
  tower.metric("mean_x", reduce_mean(x));
  tower.loss("two", square(a + b - 1.0) + reduce_mean(x) * 0.0);
  return {};
}

std::vector<LossOptions> toy_losses(const Optimizer& one, const Optimizer& two) {
  return {{.loss = "one", .variables = {"a"}, .optimizer = one},
          {.loss = "two", .variables = {"b"}, .optimizer = two}};
}

TrainerOptions toy_options(int devices = 1) {
  return {.model = toy,
          .losses = toy_losses(sgd(0.125), sgd(0.25)),
          .devices = cpus(devices),
          .batch_size = 8 / devices,
          .shards = 4,
          .max_steps = 3,
          .session = {.threads = 1}};
}

double value_of(Trainer& trainer, const char* name) {
  return trainer.session().read(trainer.graph().stored_variable(name)).item<double>();
}

TEST(TrainedLosses, TakeTurnsAsComputedByHand) {
  const auto data = smooth_data(32);
  for (const int devices : {1, 2}) {
    Trainer trainer(find_trainer(devices == 1 ? "simple" : "replicated"), toy_options(devices),
                    *data);
    trainer.train();
    double a = 3, b = -1, one = 0, two = 0;
    for (int step = 0; step < 3; ++step) {
      one = (a - 2 * b) * (a - 2 * b);
      a -= 0.125 * 2 * (a - 2 * b);
      two = (a + b - 1) * (a + b - 1);  // it sees the new a
      b -= 0.25 * 2 * (a + b - 1);
    }
    EXPECT_DOUBLE_EQ(value_of(trainer, "a"), a);
    EXPECT_DOUBLE_EQ(value_of(trainer, "b"), b);
    EXPECT_DOUBLE_EQ(trainer.metric("one"), one);
    EXPECT_DOUBLE_EQ(trainer.metric("two"), two);
    EXPECT_DOUBLE_EQ(trainer.metric("loss"), one + two);
    std::vector<std::string> names;
    for (const NamedValue& value : trainer.record().step_metrics()) names.push_back(value.name);
    EXPECT_THAT(names, testing::ElementsAre("loss", "one", "mean_x", "two"));
    EXPECT_EQ(trainer.session().step(), 3u) << "a step counts once";
    EXPECT_EQ(trainer.built().plans_of_step().size(), 2u);
  }
}

TEST(TrainedLosses, AreTrainedInTheOrderOfTheOptions) {
  const auto data = smooth_data(8);
  TrainerOptions options = toy_options();
  std::swap(options.losses[0], options.losses[1]);
  options.max_steps = 1;
  Trainer trainer(find_trainer("simple"), std::move(options), *data);
  trainer.train();
  const double b = -1 - 0.25 * 2 * (3 - 1 - 1);
  EXPECT_DOUBLE_EQ(value_of(trainer, "b"), b);
  EXPECT_DOUBLE_EQ(value_of(trainer, "a"), 3 - 0.125 * 2 * (3 - 2 * b));
}

TEST(TrainedLosses, ClipTheGradientsOfEachLossByItself) {
  const auto data = smooth_data(8);
  TrainerOptions options = toy_options();
  options.clip_norm = 0.5;
  options.max_steps = 1;
  Trainer trainer(find_trainer("simple"), std::move(options), *data);
  trainer.train();
  EXPECT_NEAR(value_of(trainer, "a"), 3 - 0.125 * 0.5, 1e-7);
  EXPECT_NEAR(value_of(trainer, "b"), -1 - 0.25 * 0.5, 1e-7);
}

TEST(TrainedLosses, KeepTheGradientsOfAll) {
  const auto data = smooth_data(8);
  TrainerOptions options = toy_options();
  options.keeps_gradients = true;
  options.max_steps = 1;
  Trainer trainer(find_trainer("simple"), std::move(options), *data);
  trainer.train();
  const std::vector<NamedTensor> gradients = trainer.record().gradients();
  ASSERT_EQ(gradients.size(), 2u);
  EXPECT_EQ(gradients[0].name, "a");
  EXPECT_DOUBLE_EQ(gradients[0].value.item<double>(), 2 * (3 + 2));
  EXPECT_EQ(gradients[1].name, "b");
}

// Two nets, one of which takes noise; each has batch norm.
Output nets(Tower& tower, Output x, Output y) {
  const Output noise = dropout(fill_like(x, 1), 0.5);
  const Output made =
      dense(tower, "gen/fc1",
            tanh(batch_norm(tower, "gen/bn", dense(tower, "gen/fc0", noise, {.units = 5}),
                            {.synchronised = true})),
            {.units = 4});
  const auto judged = [&](Output in) {
    const VariableScope scope(tower.graph(), "disc", VariableReuse::kCreateOrGet);
    return dense(tower, "fc1", tanh(dense(tower, "fc0", in, {.units = 5})), {.units = 1});
  };
  const Output fake = judged(made);
  tower.loss("disc", reduce_mean(square(judged(x) - y)) + reduce_mean(square(fake)));
  tower.loss("gen", reduce_mean(square(fake - 1.0)));
  tower.metric("mean_noise", reduce_mean(noise));
  return {};
}

// The same without batch norm, which towers that share variables would sum otherwise.
Output plain_nets(Tower& tower, Output x, Output y) {
  const Output noise = dropout(fill_like(x, 1), 0.5);
  const Output made =
      dense(tower, "gen/fc1", tanh(dense(tower, "gen/fc0", noise, {.units = 5})), {.units = 4});
  const auto judged = [&](Output in) {
    const VariableScope scope(tower.graph(), "disc", VariableReuse::kCreateOrGet);
    return dense(tower, "fc1", tanh(dense(tower, "fc0", in, {.units = 5})), {.units = 1});
  };
  const Output fake = judged(made);
  tower.loss("disc", reduce_mean(square(judged(x) - y)) + reduce_mean(square(fake)));
  tower.loss("gen", reduce_mean(square(fake - 1.0)));
  return {};
}

std::vector<LossOptions> net_losses(const Optimizer& disc = adam(0.01),
                                    const Optimizer& gen = adam(0.02)) {
  return {{.loss = "disc", .variables = {"disc"}, .optimizer = disc},
          {.loss = "gen", .variables = {"gen"}, .optimizer = gen}};
}

TrainerOptions net_options(int devices, const std::shared_ptr<Processes>& processes = nullptr) {
  const int towers = devices * (processes ? processes->size() : 1);
  return {.model = nets,
          .losses = net_losses(),
          .devices = cpus(devices),
          .batch_size = 16 / towers,
          .shards = 4,
          .epochs = 9,
          .max_steps = 6,
          .session = {.threads = 1, .processes = processes}};
}

std::string state_after(const char* kind, TrainerOptions options) {
  const auto data = smooth_data(48);
  Trainer trainer(find_trainer(kind), std::move(options), *data);
  trainer.train();
  return cat(state_hash(trainer.session(), trainer.graph()), " ", trainer.metric("disc"), " ",
             trainer.metric("gen"));
}

TEST(TrainedLosses, HaveOneHashOnAnyNumberOfDevices) {
  const std::string one = state_after("replicated", net_options(1));
  EXPECT_EQ(state_after("replicated", net_options(2)), one);
  EXPECT_EQ(state_after("replicated", net_options(4)), one);
}

TEST(TrainedLosses, HaveOneHashInOneProcessAndTwo) {
  const std::string one = state_after("replicated", net_options(2));
  for (const int zero_stage : {0, 1}) {
    std::mutex mutex;
    std::vector<std::string> all;
    test::run_processes(2, [&](const std::shared_ptr<Processes>& processes) {
      TrainerOptions options = net_options(1, processes);
      options.aggregation.zero_stage = zero_stage;
      const std::string state = state_after("replicated", std::move(options));
      const std::lock_guard lock(mutex);
      all.push_back(state);
    });
    EXPECT_THAT(all, testing::ElementsAre(one, one)) << "zero_stage " << zero_stage;
  }
}

TEST(TrainedLosses, HaveTheBitsOfOneStrategyWithOthersAndWithAServer) {
  const auto options = [](const char* strategy) {
    TrainerOptions made = net_options(2);
    made.model = plain_nets;
    made.aggregation.allreduce = strategy;
    return made;
  };
  const std::string collective = state_after("replicated", options("collective"));
  EXPECT_EQ(state_after("replicated", options("naive")), collective);
  EXPECT_EQ(state_after("parameter_server", options("colocate")), collective);
  EXPECT_NE(state_after("async", options("")), "");
}

// The two losses are equal if both runs of a step draw the same numbers.
TEST(TrainedLosses, SeeTheSameRandomNumbersInAllRunsOfAStep) {
  const auto data = smooth_data(32);
  TrainerOptions options = toy_options();
  options.model = [](Tower& tower, Output x, Output) {
    const Output noise = reduce_mean(dropout(fill_like(x, 1), 0.5));
    tower.loss("one", scalar(tower, "a", 1) * noise);
    tower.loss("two", scalar(tower, "b", 1) * noise);
    return Output();
  };
  options.losses = toy_losses(sgd(0), sgd(0));
  struct Watch final : Callback {
    void after_step(Trainer& trainer, const StepInfo&) override {
      EXPECT_EQ(trainer.metric("one"), trainer.metric("two"));
      seen.push_back(trainer.metric("one"));
    }
    std::vector<double> seen;
  };
  const auto watch = std::make_shared<Watch>();
  options.callbacks = {watch};
  Trainer(find_trainer("simple"), std::move(options), *data).train();
  ASSERT_EQ(watch->seen.size(), 3u);
  EXPECT_FALSE(watch->seen[0] == watch->seen[1] && watch->seen[1] == watch->seen[2]);
}

// As in a training of one loss whose weights stay.
TEST(TrainedLosses, MoveAveragesOfBatchNormOncePerStep) {
  const auto data = smooth_data(32);
  const auto average = [&](TrainerOptions options) {
    Trainer trainer(find_trainer("simple"), std::move(options), *data);
    trainer.train();
    const auto variables = trainer.graph().variables(kGlobalVariables);
    for (const Variable v : variables)
      if (v.logical_name().starts_with("gen/bn/mean") && !v.trainable())
        return trainer.session().read(v);
    ADD_FAILURE() << "no average";
    return Tensor(0.0);
  };
  TrainerOptions several = net_options(1), one = net_options(1);
  several.losses = net_losses(sgd(0), sgd(0));
  one.losses.clear();
  one.optimizer = sgd(0);
  one.model = [](Tower& tower, Output x, Output) {
    const Output noise = dropout(fill_like(x, 1), 0.5);
    return reduce_mean(
        dense(tower, "gen/fc1",
              tanh(batch_norm(tower, "gen/bn", dense(tower, "gen/fc0", noise, {.units = 5}),
                              {.synchronised = true})),
              {.units = 4}));
  };
  EXPECT_EQ(average(std::move(several)), average(std::move(one)));
}

TEST(TrainedLosses, KeepCountersRatesAndAveragesApart) {
  const auto data = smooth_data(48);
  TrainerOptions options = net_options(2);
  const auto falling = [](double rate) { return scheduled_rate(rate, linear_schedule(), 0); };
  const WeightAverages averages{.decay = 0.9, .counts_updates = true};
  options.losses = net_losses(adam({.rate = falling(0.01)}).with_averages(averages),
                              adam({.rate = falling(0)}).with_averages(averages));
  Trainer trainer(find_trainer("replicated"), std::move(options), *data, data.get());
  const Tensor before = trainer.session().read(trainer.graph().stored_variable("gen/fc0/W"));
  trainer.train();
  EXPECT_EQ(trainer.session().read(trainer.graph().stored_variable("gen/fc0/W")), before)
      << "the rate of gen is 0";
  for (const char* const counter :
       {"disc/Adam/step", "gen/Adam/step", "disc/ExponentialMovingAverage/num_updates",
        "gen/ExponentialMovingAverage/num_updates"}) {
    ASSERT_TRUE(trainer.graph().stored_variable(counter)) << counter;
    EXPECT_EQ(trainer.session().read(trainer.graph().stored_variable(counter)).item<std::int64_t>(),
              6)
        << counter;
  }
}

TEST(TrainedLosses, ScaleTheLossesOfF16) {
  TrainerOptions options = net_options(2);
  options.precision = Precision::kF16;
  options.model = [](Tower& tower, Output x, Output y) {
    return plain_nets(tower, cast(x, DType::kF32), cast(y, DType::kF32));
  };
  const auto data = smooth_data(48);
  Trainer trainer(find_trainer("replicated"), std::move(options), *data);
  trainer.train();
  EXPECT_TRUE(std::isfinite(trainer.metric("loss")));
  ASSERT_TRUE(trainer.built().loss_scale());
  const std::int64_t skipped = trainer.record().watch().skipped_steps();
  const auto updates = [&](const char* name) {
    return trainer.session().read(trainer.graph().stored_variable(name)).item<std::int64_t>();
  };
  const std::int64_t left_out = 12 - updates("disc/Adam/step") - updates("gen/Adam/step");
  EXPECT_GE(left_out, skipped) << "a step counts once, whether one or both were skipped";
  EXPECT_LE(left_out, 2 * skipped);
}

TEST(TrainedLosses, FreezeTheVariablesOfTheirGroups) {
  TrainerOptions options = net_options(1);
  options.model = plain_nets;
  options.losses = net_losses(adam(0.01).with_groups(parse_groups("*/fc0:freeze")), adam(0.02));
  const auto data = smooth_data(48);
  Trainer trainer(find_trainer("simple"), std::move(options), *data);
  EXPECT_FALSE(trainer.graph().stored_variable("disc/fc0/W").trainable());
  EXPECT_TRUE(trainer.graph().stored_variable("gen/fc0/W").trainable());
  trainer.train();
}

TEST(TrainedLosses, ThatAreNotFiniteAreNamed) {
  TrainerOptions options = toy_options();
  options.model = [](Tower& tower, Output x, Output) {
    const Output a = scalar(tower, "a", 1), b = scalar(tower, "b", 1);
    tower.loss("one", square(a) + reduce_mean(x) * 0.0);
    tower.loss("two", log(a - 1.0) + square(b));
    return Output();
  };
  const auto data = smooth_data(8);
  Trainer trainer(find_trainer("simple"), std::move(options), *data);
  try {
    trainer.train();
    ADD_FAILURE() << "it has not diverged";
  } catch (const Diverged& error) {
    EXPECT_EQ(error.found().loss_name, "two");
    EXPECT_THAT(error.what(), HasSubstr("the loss 'two' of step 1 is nan"));
  }
}

// "one" or "two" is NaN from the second step on.
TrainerOptions failing_options(std::string_view bad) {
  TrainerOptions options = toy_options();
  options.model = [bad](Tower& tower, Output x, Output) {
    const Output a = scalar(tower, "a", 1), b = scalar(tower, "b", 1);
    const auto value = [&](std::string_view name, Output of) {
      return name == bad ? log(of - 0.75) : square(of);
    };
    tower.loss("one", value("one", a) + reduce_mean(x) * 0.0);
    tower.loss("two", value("two", b) + reduce_mean(x) * 0.0);
    return Output();
  };
  options.losses = toy_losses(sgd(0.25), sgd(0.25));
  options.warn_of_loss = false;
  return options;
}

TEST(TrainedLosses, OfAStepThatStopsSayWhatItChanged) {
  const auto data = smooth_data(32);
  const auto error = [&](std::string_view bad) {
    Trainer trainer(find_trainer("simple"), failing_options(bad), *data);
    try {
      trainer.train();
      return std::string("trained");
    } catch (const Diverged& diverged) {
      EXPECT_EQ(trainer.steps(), 2);
      EXPECT_EQ(value_of(trainer, "a"), bad == "one" ? 0 : 0.25);
      EXPECT_EQ(value_of(trainer, "b"), bad == "one" ? 0.5 : 0) << "two was not trained after one";
      return std::string(diverged.what());
    }
  };
  EXPECT_THAT(error("one"), AllOf(HasSubstr("the loss 'one' of step 2 is nan"),
                                  HasSubstr("; this step changed no variable; ")));
  EXPECT_THAT(error("two"), AllOf(HasSubstr("the loss 'two' of step 2 is nan"),
                                  HasSubstr("; this step changed only the variables of 'one'; ")));
}

TEST(TrainedLosses, ThatAreSkippedLeaveTheOthers) {
  const auto data = smooth_data(32);
  for (const char* const bad : {"one", "two"}) {
    TrainerOptions options = failing_options(bad);
    options.on_nonfinite = OnNonfinite::kSkip;
    options.warn_of_loss = true;
    testing::internal::CaptureStderr();
    Trainer trainer(find_trainer("simple"), std::move(options), *data);
    trainer.train();
    const bool is_one = bad == std::string("one");
    EXPECT_THAT(testing::internal::GetCapturedStderr(),
                HasSubstr(cat(": this step changes only the variables of '", is_one ? "two" : "one",
                              "' (")));
    EXPECT_EQ(value_of(trainer, is_one ? "a" : "b"), 0);
    EXPECT_EQ(value_of(trainer, is_one ? "b" : "a"), 0.125);
    EXPECT_EQ(trainer.record().watch().skipped_steps(), 2);
  }
}

TEST(TrainedLosses, HaveNamedRates) {
  const auto data = smooth_data(32);
  const auto falling = [](double rate) { return scheduled_rate(rate, linear_schedule(), 0); };
  TrainerOptions options = toy_options();
  options.losses =
      toy_losses(sgd(falling(0.3)), sgd(0.25).with_groups(parse_groups("b2:freeze;b:rate=0.5")));
  options.losses[1].variables = {"b*"};
  options.model = [](Tower& tower, Output x, Output y) {
    scalar(tower, "b2", 1);
    return toy(tower, x, y);
  };
  Trainer trainer(find_trainer("simple"), std::move(options), *data);
  const auto text = [&] {
    std::string all;
    for (const NamedValue& rate : trainer.record().learning_rates())
      all += cat(rate.name, " ", significant(rate.value), "; ");
    return all;
  };
  EXPECT_EQ(text(), "learning_rate/one 0; learning_rate/two 0; learning_rate/two/b 0; ");
  trainer.train();
  EXPECT_EQ(text(), "learning_rate/one 0.1; learning_rate/two 0.25; learning_rate/two/b 0.125; ");
}

// Each mistake with its error.
TEST(TrainedLosses, RefuseMistakes) {
  const auto data = smooth_data(32);
  const auto refused = [&](const auto& change, const char* kind = "simple") -> std::string {
    TrainerOptions options = toy_options();
    change(options);
    try {
      const Trainer trainer(find_trainer(kind), std::move(options), *data);
    } catch (const Error& error) {
      return error.what();
    }
    return "accepted";
  };
  const auto with = [&](std::vector<LossOptions> losses) {
    return refused([&](TrainerOptions& options) { options.losses = std::move(losses); });
  };
  const Optimizer any = sgd(0.1);
  EXPECT_THAT(with({{"one", {"a"}, any}, {"two", {"a", "b"}, any}}),
              AllOf(HasSubstr("the variable 'a'"), HasSubstr("(built at "),
                    HasSubstr("belongs to the losses 'one' and 'two'; name it among the variables "
                              "of one of them")));
  EXPECT_THAT(refused([](TrainerOptions& options) {
                options.model = [](Tower& tower, Output x, Output y) {
                  scalar(tower, "c", 1);
                  return toy(tower, x, y);
                };
              }),
              AllOf(HasSubstr("the variable 'c'"),
                    HasSubstr("belongs to no loss: name it among the variables of one, or make it "
                              "with .trainable = false")));
  EXPECT_THAT(with({{"one", {"a"}, any}, {"tow", {"b"}, any}}),
              HasSubstr("the options train the loss 'tow', and the tower function names only one, "
                        "two; did you mean 'two'?"));
  EXPECT_THAT(with({{"one", {"a", "b"}, any}}),
              HasSubstr("the tower function names the loss 'two', and nothing says how it is "
                        "trained: state its variables and optimizer (losses)"));
  EXPECT_THAT(with({{"one", {"a"}, any}, {"two", {"bb"}, any}}),
              HasSubstr("the loss 'two' trains the variables 'bb', and the model trains none that "
                        "is called so; near are "));
  EXPECT_THAT(with({{"one", {"a"}, any}, {"one", {"b"}, any}}),
              HasSubstr("the loss 'one' is stated twice; give its variables in one list"));
  EXPECT_THAT(with({{"", {"a"}, any}}), HasSubstr("one of several losses has no name; state the"));
  EXPECT_THAT(with({{"one", {}, any}}),
              HasSubstr("the loss 'one' has no variables; name those that minimise it, as "
                        ".variables = {\"gen\"}"));
  EXPECT_THAT(with({{"one", {"a"}, {}}}), HasSubstr("the loss 'one' has no optimizer; e.g. "));
  EXPECT_THAT(with({}), HasSubstr("no optimizer was given"));
  EXPECT_THAT(refused([&](TrainerOptions& options) {
                options.losses.clear();
                options.optimizer = any;
              }),
              HasSubstr("the tower function names the losses one, two, and nothing says how they "
                        "are trained: state variables and optimizer of each (losses)"));
  EXPECT_THAT(refused([&](TrainerOptions& options) { options.optimizer = any; }),
              HasSubstr("TrainerOptions has losses, each with its optimizer, and an optimizer "
                        "besides; leave that out"));
  EXPECT_THAT(refused([](TrainerOptions& options) { options.model = smooth_model; }),
              HasSubstr("the options train the loss 'one', and the tower function names none: call "
                        "tower.loss(\"one\", value), and return {}"));
  EXPECT_THAT(refused([](TrainerOptions& options) {
                options.model = [](Tower& tower, Output x, Output y) {
                  toy(tower, x, y);
                  return reduce_mean(x);
                };
              }),
              HasSubstr("the model names the losses one, two and returns "));
  EXPECT_THAT(refused([](TrainerOptions& options) {
                options.model = [](Tower& tower, Output x, Output y) {
                  tower.loss(reduce_mean(x));
                  return toy(tower, x, y);
                };
              }),
              HasSubstr("the tower has one without a name, "));
  EXPECT_THAT(refused([](TrainerOptions& options) { options.async = "free"; }, "async"),
              HasSubstr("=free trains one loss: towers that run free take no turns; use ordered"));
  EXPECT_THAT(
      refused([](TrainerOptions& options) { options.batches.gradient_accumulation_steps = 2; }),
      HasSubstr("gradient_accumulation_steps=2 trains one loss: several take turns on each batch, "
                "and these would be updated once for all of them; use 1"));
}

}  // namespace trained_losses_test
}  // namespace belfry
