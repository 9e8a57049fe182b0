#include "belfry/trainers/core/step_timer.h"

#include <regex>

#include <gtest/gtest.h>

#include "belfry/tests/trainers/core/small_problem.h"
#include "belfry/trainers/core/trainer.h"

namespace belfry {
namespace step_timer_test {

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
  SimpleTrainer trainer({.model = smooth_model,
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

}  // namespace step_timer_test
}  // namespace belfry
