// What a watch is told of a run in which an op does not end.
#include "belfry/framework/run/step_activity.h"

#include <atomic>
#include <chrono>
#include <thread>

#include "belfry/framework/base/text.h"
#include "belfry/framework/core_ops/add_n.h"
#include "belfry/framework/core_ops/placeholder.h"
#include "belfry/framework/graph/scopes.h"
#include "belfry/framework/plan/plan.h"
#include "belfry/framework/run/session.h"
#include "belfry/ops/tanh.h"
#include "belfry/tests/framework/framework_test_support.h"

namespace belfry {
namespace step_activity_test {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

using TimePoint = Activity::Clock::time_point;

struct Setting {
  int devices, threads;
};

// A run whose op "slow", on the last device, runs until it is released. The first device needs it.
class HeldRun {
 public:
  explicit HeldRun(const Setting& setting) : session_(graph_, options(setting)) {
    const Output x = placeholder(graph_, "x", DType::kF32, {4});
    Output slow;
    {
      const DeviceScope on(graph_, cpu(setting.devices - 1));
      slow = tanh(x, "slow");
    }
    const DeviceScope on(graph_, cpu(0));
    sum_ = add_n({tanh(x, "fast"), slow}, "sum");
    running_ = std::thread([this, x] {
      session_.run(sum_, std::vector<FeedValue>{{x, Tensor({4}, DType::kF32)}});
    });
  }
  ~HeldRun() { release(); }
  void release() {
    released_ = true;
    if (running_.joinable()) running_.join();
  }

  // What the run that is under way does, looked at again and again until `found`.
  static std::string told(TimePoint now, std::string_view found) {
    std::string text;
    for (int look = 0; look < 20'000 && text.find(found) == text.npos; ++look) {
      std::this_thread::sleep_for(1ms);
      text = look_at_runs(now);
    }
    return text;
  }
  static std::string look_at_runs(TimePoint now) {
    std::string text;
    with_activities([&](const std::vector<Activity*>& all) {
      for (Activity* const activity : all)
        if (activity->kind() == Activity::Kind::kStep && activity->stuck_since(now))
          text = activity->describe(now).what;
    });
    return text;
  }

 private:
  SessionOptions options(const Setting& setting) {
    SessionOptions options{.device_count = {{"CPU", setting.devices}},
                           .threads = setting.threads,
                           .all_workers = true};
    options.plan_hook = [this](Plan& plan) {
      for (Launch& launch : plan.launches)
        if (plan.node(launch.node).name() == "slow")
          launch.run = [this, run = launch.run](const KernelPointers& p) {
            while (!released_) std::this_thread::sleep_for(1ms);
            run(p);
          };
    };
    return options;
  }

  Graph graph_;
  std::atomic<bool> released_{false};
  Session session_;
  Output sum_;
  std::thread running_;
};

class StepActivityTest : public testing::TestWithParam<Setting> {};

TEST_P(StepActivityTest, NamesTheOpThatHangsAndWhoWaitsForIt) {
  const auto [devices, threads] = GetParam();
  HeldRun run(GetParam());
  const TimePoint begin = Activity::Clock::now();
  const std::string wait = devices == 1   ? ""
                           : threads == 1 ? "; cpu:0 waits for a thread at '"
                                          : "; cpu:0 waits for it at '";
  HeldRun::told(begin, wait.empty() ? "has computed Tanh 'slow'" : wait);
  const std::string told = HeldRun::look_at_runs(begin + 10s);
  EXPECT_THAT(told, HasSubstr(cat("cpu:", devices - 1,
                                  " has computed Tanh 'slow' (built at step_activity_test.cc:")));
  EXPECT_THAT(told, HasSubstr(" for 10 s"));
  EXPECT_THAT(told, HasSubstr(wait));
  run.release();
  EXPECT_EQ(HeldRun::look_at_runs(begin + 20s), "");  // nothing runs
}

INSTANTIATE_TEST_SUITE_P(Run, StepActivityTest,
                         testing::Values(Setting{1, 1}, Setting{1, 2}, Setting{2, 1},
                                         Setting{2, 2}),
                         [](const auto& one) {
                           return cat("cpu", one.param.devices, "threads", one.param.threads);
                         });

TEST(StepActivity, IsStuckSinceTheLastLaunchThatEnded) {
  HeldRun run({2, 2});
  const TimePoint begin = Activity::Clock::now();
  HeldRun::told(begin, "cpu:0 waits for it");
  with_activities([&](const std::vector<Activity*>& all) {
    for (Activity* const activity : all) {
      if (!activity->stuck_since(begin + 5s)) continue;
      EXPECT_EQ(activity->stuck_since(begin + 6s), begin);
      EXPECT_EQ(activity->describe(begin + 6s).op, "slow");
      EXPECT_EQ(activity->describe(begin + 6s).device,
                "/job:localhost/replica:0/task:0/device:CPU:1");
    }
  });
}

}  // namespace step_activity_test
}  // namespace belfry
