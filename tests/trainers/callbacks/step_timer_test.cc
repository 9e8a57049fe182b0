#include "belfry/trainers/callbacks/step_timer.h"

#include <cmath>
#include <regex>

#include <gtest/gtest.h>

#include "belfry/framework/base/error.h"
#include "belfry/tests/trainers/core/small_problem.h"
#include "belfry/tests/trainers/util/fake_console.h"
#include "belfry/trainers/core/trainer.h"
#include "belfry/trainers/core/trainer_kinds.h"
#include "belfry/trainers/util/console.h"

namespace belfry {
namespace step_timer_test {

// By hand, for 8 samples a step: speeds 8, 4, 2, 8; mean time 9/4 s; mean speed 5.5, variance
// (2.5^2 + 1.5^2 + 3.5^2 + 2.5^2) / 4 = 6.75; median speed 6, distances 2, 2, 4, 2.
TEST(Speed, HasTheFormulasOfTfCnnBenchmarks) {
  const Speed speed = speed_of(8, std::vector{1.0, 2.0, 4.0, 1.0});
  EXPECT_DOUBLE_EQ(speed.mean, 8 / 2.0);
  EXPECT_DOUBLE_EQ(speed.uncertainty, std::sqrt(6.75) / 2);
  EXPECT_DOUBLE_EQ(speed.jitter, 1.4826 * 2);
}

TEST(Speed, OfOneStepIsCertain) {
  const Speed speed = speed_of(64, std::vector{0.5});
  EXPECT_EQ(speed.mean, 128);
  EXPECT_EQ(speed.uncertainty, 0);
  EXPECT_EQ(speed.jitter, 0);
  EXPECT_THROW(speed_of(64, {}), InvalidArgument);
}

TEST(StepLine, HasTheFormOfTfCnnBenchmarks) {
  EXPECT_STREQ(kStepHeader, "Step\tImg/sec\tloss");
  EXPECT_EQ(step_line(10, {.mean = 123.44, .uncertainty = 0.56, .jitter = 1.25}, 2.3026),
            "10\timages/sec: 123.4 +/- 0.6 (jitter = 1.2)\t2.303");
  EXPECT_EQ(total_lines(1234.567),
            "----------------------------------------------------------------\n"
            "total images/sec: 1234.57\n"
            "----------------------------------------------------------------");
}

struct Timed {
  std::string output;
  std::size_t steps;
  double sum, total;
};

Timed time_steps(StepTimer::Options options, std::int64_t steps) {
  const auto data = smooth_data(16);
  testing::internal::CaptureStdout();
  Console console(stdout);
  if (options.display_every > 0) options.console = &console;
  const auto timer = std::make_shared<StepTimer>(options);
  Trainer trainer(find_trainer("simple"),
                  {.model = smooth_model,
                   .optimizer = sgd(0.1),
                   .batch_size = 8,
                   .epochs = 100,
                   .max_steps = steps,
                   .callbacks = {timer}},
                  *data);
  trainer.train();
  double sum = 0;
  for (const double s : timer->seconds()) sum += s;
  return {testing::internal::GetCapturedStdout(), timer->seconds().size(), sum,
          timer->total_seconds()};
}

TEST(StepTimer, PrintsTheFirstStepAndEachNthAfterTheWarmUp) {
  const Timed timed = time_steps({.warmup = 3, .display_every = 4}, 12);
  const std::string speed =
      "images/sec: [0-9]+\\.[0-9] \\+/- [0-9]+\\.[0-9] \\(jitter = "
      "[0-9]+\\.[0-9]\\)\t[0-9]+\\.[0-9]{3}\n";
  EXPECT_TRUE(std::regex_match(
      timed.output, std::regex("Running warm up\nDone warm up\nStep\tImg/sec\tloss\n1\t" + speed +
                               "4\t" + speed + "8\t" + speed)))
      << timed.output;
  EXPECT_EQ(timed.steps, 9u);
  EXPECT_GT(timed.sum, 0);
  EXPECT_GE(timed.total, timed.sum);
}

TEST(StepTimer, IsSilentWithoutAConsoleAndNeedsNoWarmUp) {
  const Timed timed = time_steps({.warmup = 0, .display_every = 0}, 5);
  EXPECT_EQ(timed.output, "");
  EXPECT_EQ(timed.steps, 5u);
  EXPECT_TRUE(time_steps({.warmup = 0, .display_every = 5}, 1).output.starts_with(kStepHeader));
}

// Makes a training step take so many seconds of the console's clock.
class Slow final : public Callback {
 public:
  Slow(FakeConsole& fake, double seconds) : fake_(fake), seconds_(seconds) {}
  void after_step(Trainer&, const StepInfo&) override { fake_.now += seconds_; }

 private:
  FakeConsole& fake_;
  double seconds_;
};

std::string lines_of(StepTimer::Options options, double seconds, bool terminal = false) {
  const auto data = smooth_data(16);
  FakeConsole fake(terminal);
  options.console = &fake.console;
  Trainer trainer(
      find_trainer("simple"),
      {.model = smooth_model,
       .optimizer = sgd(0.1),
       .batch_size = 8,
       .epochs = 100,
       .max_steps = 12,
       .callbacks = {std::make_shared<Slow>(fake, seconds), std::make_shared<StepTimer>(options)}},
      *data);
  trainer.train();
  return std::regex_replace(fake.printed(), std::regex("images/sec.*\n"), "...\n");
}

TEST(StepTimer, ShowsEverySoOftenHowFarItIsDuringAndAfterTheWarmUp) {
  EXPECT_EQ(lines_of({.warmup = 5, .display_every = 100}, 4),
            "Running warm up\nwarm-up step 2/5\nwarm-up step 4/5\nDone warm up\n"
            "Step\tImg/sec\tloss\n1\t...\nstep 3/7\nstep 5/7\nstep 7/7\n");
  EXPECT_EQ(lines_of({.warmup = 5, .display_every = 1}, 0.1),
            "Running warm up\nDone warm up\nStep\tImg/sec\tloss\n1\t...\n2\t...\n3\t...\n"
            "4\t...\n5\t...\n6\t...\n7\t...\n");
}

TEST(StepTimer, ShowsNothingElseWithoutLinesOfSteps) {
  EXPECT_EQ(lines_of({.warmup = 4, .display_every = 0, .what = "round 1: "}, 4),
            "round 1: warm-up step 2/4\nround 1: warm-up step 4/4\nround 1: step 2/8\n"
            "round 1: step 4/8\nround 1: step 6/8\nround 1: step 8/8\n");
  EXPECT_EQ(lines_of({.warmup = 4, .display_every = 0}, 0.01), "");
  EXPECT_EQ(lines_of({.warmup = 0, .display_every = 0}, 0.06, true),
            "\r\x1b[Kstep 2/12\r\x1b[Kstep 4/12\r\x1b[Kstep 6/12\r\x1b[Kstep 8/12"
            "\r\x1b[Kstep 10/12\r\x1b[Kstep 12/12");
}

}  // namespace step_timer_test
}  // namespace belfry
