// Steps with a loss or a gradient that is not finite change nothing, and training continues as the
// options say.
#include <cmath>
#include <limits>
#include <map>
#include <mutex>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/framework/base/text.h"
#include "belfry/framework/checkpoint/checkpoint.h"
#include "belfry/framework/core_ops/initializers.h"
#include "belfry/ops/exp.h"
#include "belfry/ops/relu.h"
#include "belfry/ops/sqrt.h"
#include "belfry/ops/updates/sgd_update.h"
#include "belfry/tests/support/path_of_test.h"
#include "belfry/tests/support/process_threads.h"
#include "belfry/tests/trainers/core/spiced_data.h"
#include "belfry/trainers/core/divergence.h"
#include "belfry/trainers/core/trainer.h"
#include "belfry/trainers/core/trainer_kinds.h"
#include "belfry/trainers/core/training_checkpoint.h"
#include "belfry/trainers/util/hash.h"

namespace belfry {
namespace nonfinite_test {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using namespace spiced;

struct Case {
  Precision precision;
  int towers;
  float spice;
};

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const Precision precision : {Precision::kF32, Precision::kBf16, Precision::kF16})
    for (const int towers : {1, 2})
      for (const float spice : {kNaN, kSteep}) all.push_back({precision, towers, spice});
  return all;
}

TEST(NonfiniteStep, ChangesNothingAndEndsTheTraining) {
  for (const auto& [precision, towers, spice] : cases()) {
    SCOPED_TRACE(cat(name_of(precision), " on ", towers, ", spice ", spice));
    const auto data = spiced_data(spice);
    const auto steps = std::make_shared<Steps>();
    TrainerOptions options = options_of(OnNonfinite::kStop, towers, precision);
    options.callbacks = {steps};
    const auto trainer = make(std::move(options), *data);
    if (precision == Precision::kF16 && spice == kSteep) {
      trainer->train();  // the loss scale skips it
      EXPECT_EQ(steps->unchanged.size(), 1u);
      continue;
    }
    std::string error;
    try {
      trainer->train();
    } catch (const Diverged& diverged) {
      error = diverged.what();
    }
    ASSERT_EQ(steps->unchanged.size(), 1u);
    EXPECT_EQ(steps->unchanged[0] + 1, std::ssize(steps->before)) << "it is the last one";
    EXPECT_TRUE(state_of(*trainer) == steps->before.back());
    const std::string number = cat(steps->before.size());
    EXPECT_THAT(error, HasSubstr("; this step changed no variable"));
    EXPECT_THAT(error, HasSubstr(spice == kSteep ? cat("gradients of step ", number,
                                                       " are not finite, though the loss is ")
                                                 : cat("the loss of step ", number, " is nan")));
  }
}

TEST(NonfiniteStep, MayBeSkipped) {
  for (const auto& [precision, towers, spice] : cases()) {
    SCOPED_TRACE(cat(name_of(precision), " on ", towers, ", spice ", spice));
    const auto data = spiced_data(spice);
    const auto steps = std::make_shared<Steps>();
    TrainerOptions options = options_of(OnNonfinite::kSkip, towers, precision);
    options.callbacks = {steps};
    options.epochs = 2;
    const auto trainer = make(std::move(options), *data);
    trainer->train();
    EXPECT_EQ(trainer->steps(), 16);
    EXPECT_EQ(steps->unchanged.size(), 2u) << "once in an epoch";
    EXPECT_EQ(trainer->record().watch().skipped_steps(), 2);
    EXPECT_FALSE(find_divergence(trainer->built(), trainer->record()).loss_since);
  }
}

// With a guard the update takes a factor, and with gradient accumulation a share.
TEST(NonfiniteStep, IsNoneOfAHealthyRun) {
  const auto data = spiced_data(1);
  for (const char* kind : {"replicated", "parameter_server", "async"})
    for (const int batches : {1, 2, 3})
      for (const double clip : {0.0, 0.5}) {
        if (kind == std::string("async") && (batches > 1 || clip > 0)) continue;
        SCOPED_TRACE(cat(kind, ", ", batches, " batches, clip ", clip));
        std::map<OnNonfinite, std::string> hashes;
        for (const OnNonfinite policy :
             {OnNonfinite::kContinue, OnNonfinite::kStop, OnNonfinite::kSkip}) {
          TrainerOptions options = options_of(policy, 2);
          options.batches.gradient_accumulation_steps = batches;
          options.clip_norm = options.clip_value = clip;
          options.aggregation.allreduce =
              kind == std::string("parameter_server") ? "colocate" : "collective";
          const auto trainer = make(std::move(options), *data, kind);
          trainer->train();
          EXPECT_EQ(trainer->built().guards(), policy != OnNonfinite::kContinue);
          EXPECT_EQ(trainer->record().watch().skipped_steps(), 0);
          hashes[policy] = state_hash(trainer->session(), trainer->graph());
        }
        EXPECT_EQ(hashes[OnNonfinite::kStop], hashes[OnNonfinite::kContinue]);
        EXPECT_EQ(hashes[OnNonfinite::kSkip], hashes[OnNonfinite::kContinue]);
      }
}

// The bad batch may be the first or the last of a step. Averages move with each batch, but not with
// the bad one.
TEST(NonfiniteStep, OfSeveralBatchesIsOneIfABatchIs) {
  const auto trained = [](State state) {
    std::erase_if(state, [](const auto& value) { return value.first.ends_with("/EMA"); });
    return state;
  };
  for (const std::uint64_t seed : {1, 2, 3, 4})
    for (const int batches : {2, 4}) {
      SCOPED_TRACE(cat(batches, " batches, seed ", seed));
      const auto data = spiced_data(kNaN);
      const auto steps = std::make_shared<Steps>();
      TrainerOptions options = options_of(OnNonfinite::kStop, 2);
      options.batches.gradient_accumulation_steps = batches;
      options.seed = seed;
      options.callbacks = {steps};
      const auto trainer = make(std::move(options), *data);
      EXPECT_THROW(trainer->train(), Diverged);
      EXPECT_TRUE(trained(state_of(*trainer)) == trained(steps->before.back()));
      for (const auto& [name, value] : state_of(*trainer))
        if (value.dtype() == DType::kF32) {
          for (const float element : value.data<float>())
            EXPECT_TRUE(std::isfinite(element)) << name;
        }
    }
}

// One process has the bad sample, and both leave the step out; also if each updates a part.
TEST(NonfiniteStep, IsOneOfAllProcesses) {
  for (const int zero_stage : {0, 1})
    for (const OnNonfinite policy : {OnNonfinite::kStop, OnNonfinite::kSkip})
      for (const float spice : {kNaN, kSteep}) {
        SCOPED_TRACE(cat("zero_stage ", zero_stage, ", spice ", spice));
        std::mutex mutex;
        std::vector<std::string> hashes;
        test::run_processes(2, [&](const std::shared_ptr<Processes>& processes) {
          const auto data = spiced_data(spice);
          TrainerOptions options = options_of(policy);
          options.batch_size = 2;
          options.epochs = 2;
          options.aggregation.allreduce = "collective";
          options.aggregation.zero_stage = zero_stage;
          options.session.processes = processes;
          const auto trainer = make(std::move(options), *data);
          bool stopped = false;
          try {
            trainer->train();
          } catch (const Diverged&) {
            stopped = true;
          }
          EXPECT_EQ(stopped, policy == OnNonfinite::kStop);
          if (!stopped) {
            EXPECT_EQ(trainer->record().watch().skipped_steps(), 2);
          }
          const std::string hash = params_hash(trainer->session(), trainer->graph());
          EXPECT_FALSE(find_divergence(trainer->built(), trainer->record()).variable.size());
          const std::lock_guard lock(mutex);
          hashes.push_back(hash);
        });
        ASSERT_EQ(hashes.size(), 2u);
        EXPECT_EQ(hashes[0], hashes[1]);
      }
}

// Such an optimizer trains as ever, and stops after the update.
TEST(NonfiniteStep, CanBeSkippedByOptimizersThatHeedTheFactor) {
  const auto data = spiced_data(kNaN);
  const auto own = [](OnNonfinite policy) {
    TrainerOptions options = options_of(policy);
    options.optimizer =
        Optimizer({.name = "Own", .rate = 0.5, .update = [](const Optimizer::Update& u) -> Node& {
                     return sgd_update(u.variable, u.gradient, u.rate);
                   }});
    return options;
  };
  for (const OnNonfinite policy : {OnNonfinite::kSkip, OnNonfinite::kRestore})
    EXPECT_THAT(test::message_of<InvalidArgument>([&] { make(own(policy), *data); }),
                HasSubstr("leaves updates out, and the optimizer Own does not say that it heeds "
                          "Update::factor (Optimizer::Rule::takes_loss_scale)"));
  const auto trainer = make(own(OnNonfinite::kStop), *data);
  EXPECT_FALSE(trainer->built().guards());
  std::string error;
  try {
    trainer->train();
  } catch (const Diverged& diverged) {
    error = diverged.what();
  }
  EXPECT_THAT(error, AllOf(HasSubstr("the loss of step "), Not(HasSubstr("changed no variable"))));
}

// The gradient of "w" is `gradient`, in f32.
TrainerOptions steep_options(double gradient, const Optimizer& optimizer) {
  return {.model = ModelFunction([gradient](Tower& tower, Output x, Output, Output) {
            const Output w = variable(tower.graph(), "w", {}, {.initializer = init::ones()}).read();
            return (w + reduce_mean(x) * 0.0) * gradient;
          }),
          .optimizer = optimizer,
          .batch_size = 4,
          .warn_of_loss = false};
}

// 1e25 is finite, and its square, which Adam keeps, is not: "w" would stay as it is for ever.
TEST(NonfiniteStep, IsOneWhoseGradientsHaveInfiniteSquares) {
  const auto data = spiced_data(1);
  const auto trained = make(steep_options(1e15, adam(0.01)), *data);
  trained->train();
  const auto trainer = make(steep_options(1e25, adam(0.01)), *data);
  const State before = state_of(*trainer);
  const std::string error = test::message_of<Diverged>([&] { trainer->train(); });
  EXPECT_TRUE(state_of(*trainer) == before);
  EXPECT_THAT(error,
              AllOf(HasSubstr("gradients of step 1 are too large, though the loss is 1e+25: "
                              "1e+25, which is beyond 9.007e+15, first appears in a gradient of "
                              "Mul '"),
                    HasSubstr("(built at nonfinite_test.cc:"),
                    HasSubstr("which makes the gradient of 'w' too large"),
                    HasSubstr("; this step changed no variable; make the loss smaller")));
  // What is clipped is squared in f64 alone.
  for (const bool by_norm : {true, false}) {
    TrainerOptions options = steep_options(1e25, adam(0.01));
    (by_norm ? options.clip_norm : options.clip_value) = 1;
    const auto clipped = make(std::move(options), *data);
    clipped->train();
    EXPECT_NEAR(state_of(*clipped).at("w").item<float>(), 0.92, 1e-3);
  }
}

// No later step would be finite, so none is skipped. It may show in no loss.
TEST(NonfiniteStep, WhoseUpdateOverflowsEndsTheTraining) {
  const auto data = spiced_data(1);
  const ModelFunction hides = [](Tower& tower, Output x, Output, Output) {
    const Output w = variable(tower.graph(), "w", {}, {.initializer = init::ones()}).read();
    return relu(w * 1e10) + reduce_mean(x) * 0.0;
  };
  for (const bool shows : {true, false})
    for (const OnNonfinite policy : {OnNonfinite::kStop, OnNonfinite::kSkip}) {
      TrainerOptions options = steep_options(1e10, sgd(1e30));
      if (!shows) options.model = hides;
      options.on_nonfinite = policy;
      const auto trainer = make(std::move(options), *data);
      const std::string error = test::message_of<Diverged>([&] { trainer->train(); });
      EXPECT_EQ(trainer->steps(), 1);
      EXPECT_THAT(error, AllOf(HasSubstr("the update of step 1 by SGD overflowed, though the loss "
                                         "is 1e+10 and its gradients are finite; 'w' f32[]"),
                               HasSubstr("has -inf at element 0"),
                               HasSubstr("a smaller learning rate may help")));
    }
}

// Adagrad's sum of squares overflows in step 4, and the weights would stay as they are for ever.
TEST(NonfiniteStep, WhoseSlotOverflowsEndsTheTraining) {
  const auto data = spiced_data(1);
  TrainerOptions options = steep_options(1e25, adagrad(0.01));
  options.clip_value = 1e19;
  const auto trainer = make(std::move(options), *data);
  const std::string error = test::message_of<Diverged>([&] { trainer->train(); });
  EXPECT_THAT(error, AllOf(HasSubstr("the update of step "), HasSubstr(" by Adagrad overflowed"),
                           HasSubstr("has inf at element 0")));
}

// The same steps are refused for each number of towers.
TEST(NonfiniteStep, IsTheSameForAnyNumberOfTowers) {
  const auto data = spiced_data(1);
  for (const double gradient : {2e15, 5e16})
    for (const int towers : {1, 2, 4}) {
      TrainerOptions options = steep_options(gradient, adam(0.01));
      options.devices = cpus(towers);
      options.batch_size = 4 / towers;
      options.on_nonfinite = OnNonfinite::kSkip;
      const auto trainer = make(std::move(options), *data);
      trainer->train();
      EXPECT_EQ(trainer->record().watch().skipped_steps(), gradient > 1e16 ? trainer->steps() : 0)
          << towers;
    }
}

// What is cut off at 1e20 has squares that f32 cannot hold, as has a large weight that decays.
TEST(NonfiniteStep, WhoseSlotOverflowsInTheFirstUpdateEndsTheTraining) {
  const auto data = spiced_data(1);
  for (const bool decays : {false, true}) {
    TrainerOptions options = steep_options(decays ? 1 : 1e25, adam(0.01));
    if (decays) {
      options.optimizer = adam(0.01).with_weight_decay(0.5).with_decay_form(DecayForm::kCoupled);
      options.model = [](Tower& tower, Output x, Output, Output) {
        const Output w =
            variable(tower.graph(), "w", {}, {.initializer = init::constant(1e20)}).read();
        return w + reduce_mean(x);
      };
    } else {
      options.clip_value = 1e20;
    }
    const auto trainer = make(std::move(options), *data);
    const std::string error = test::message_of<Diverged>([&] { trainer->train(); });
    EXPECT_EQ(trainer->steps(), 1);
    EXPECT_THAT(
        error, AllOf(HasSubstr("the update of step 1 by Adam overflowed"), HasSubstr("'w/"),
                     HasSubstr("(built at nonfinite_test.cc:"), HasSubstr("has inf at element 0")));
  }
}

// No loss scale mends the gradient of sqrt(0).
TEST(NonfiniteStep, NamesTheOpIfASmallLossScaleDoesNotHelp) {
  const auto data = spiced_data(kSteep);
  TrainerOptions options = options_of(OnNonfinite::kStop, 2, Precision::kF16);
  options.warn_of_loss = true;
  testing::internal::CaptureStderr();
  const auto trainer = make(std::move(options), *data);
  trainer->train();
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_THAT(log, AllOf(HasSubstr(" are not finite even at a loss scale of 0.5: "),
                         HasSubstr("a gradient of Sqrt '"), HasSubstr("(built at spiced_data.h:"),
                         HasSubstr("the gradient of sqrt(x) is infinite at x = 0")));
}

// The best loss so far, which no optimizer moves, and a mask.
TEST(NonfiniteStep, IsNoneBecauseOfInfinitiesOnPurpose) {
  const auto data = spiced_data(1);
  const std::string path = path_of_test("");
  TrainerOptions options = options_of(OnNonfinite::kStop);
  options.model = [](Tower& tower, Output x, Output y, Output spice) {
    const auto infinite = [&](const char* name, double value) {
      return variable(tower.graph(), name, {},
                      {.initializer = init::constant(value), .trainable = false});
    };
    const Output mask = infinite("mask", -kInfinity).read();
    tower.metric("best", infinite("best", kInfinity).read() + reduce_mean(x));
    return spiced_model(tower, x, y, spice) + reduce_mean(exp(mask)) * reduce_mean(spice);
  };
  const auto trainer = make(options, *data);
  trainer->train();
  EXPECT_EQ(find_divergence(trainer->built(), trainer->record()).str(), "");
  testing::internal::CaptureStderr();
  snapshot_training(*trainer, JsonValue::object())
      .save(path, local_file_system(), {.refuse_not_finite = true});
  const auto resumed = make(options, *data);
  restore_training(*resumed, path);
  EXPECT_THAT(testing::internal::GetCapturedStderr(), Not(HasSubstr("finite")));
  std::filesystem::remove_all(path);
  // NaN is never on purpose.
  trainer->session().write(trainer->graph().stored_variable("best"), Tensor(kNaN));
  EXPECT_THAT(find_divergence(trainer->built(), trainer->record()).str(),
              HasSubstr("'best' f32[]"));
}

}  // namespace nonfinite_test
}  // namespace belfry
