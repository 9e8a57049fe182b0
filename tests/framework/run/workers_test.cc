#include "belfry/framework/run/workers.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <cfenv>
#include <chrono>
#include <system_error>
#include <thread>

#include "belfry/framework/base/threads.h"
#include "belfry/tests/framework/framework_test_support.h"

namespace belfry {
namespace workers_test {

using ::testing::HasSubstr;

TEST(Signal, IsReachedByEpochsUpToItsOwnAndPoisonReachesAll) {
  Gate gate;
  Signal signal;
  EXPECT_TRUE(signal.reached(0));
  EXPECT_FALSE(signal.reached(1));
  signal.set(5, gate);
  EXPECT_TRUE(signal.reached(5));
  EXPECT_FALSE(signal.reached(6));
  signal.set(Signal::kPoison, gate);
  EXPECT_TRUE(signal.reached(std::int64_t{1} << 61));
  EXPECT_EQ(alignof(Signal), 64u);
}

// Two threads take turns; a lost wake-up would hang.
TEST(Signal, PingPongNeverLosesAWakeUp) {
  constexpr std::int64_t kRounds = 3000;
  Gate gate;
  Signal ping, pong;
  std::int64_t shared = 0;  // only the signals order its uses
  std::thread other([&] {
    for (std::int64_t i = 1; i <= kRounds; ++i) {
      await(ping, i, gate);
      ++shared;
      pong.set(i, gate);
    }
  });
  for (std::int64_t i = 1; i <= kRounds; ++i) {
    ++shared;
    ping.set(i, gate);
    await(pong, i, gate);
    if (i % 100 == 0) std::this_thread::sleep_for(std::chrono::microseconds(200));  // let it sleep
  }
  other.join();
  EXPECT_EQ(shared, 2 * kRounds);
}

TEST(SpinTimer, LastsAsLongAsItIsTold) {
  SpinTimer patient(std::chrono::hours(1)), hasty;
  while (!hasty.expired()) EXPECT_FALSE(patient.expired());
  for (int i = 0; i < 1000; ++i) EXPECT_FALSE(patient.expired());
}

// One core is left for the threads that make input.
TEST(GpuSpin, IsLongWhereThereAreMoreCoresThanThreads) {
  EXPECT_EQ(gpu_spin(2, 2), kShortSpin);
  EXPECT_EQ(gpu_spin(2, 3), kGpuSpin);
}

// Without the long spin each worker would be asleep after a moment.
TEST(WorkerPool, ThoseOfAPatientRunDoNotSleepBeforeTheNext) {
  WorkerPool pool(2);
  std::atomic<int> calls{0};
  const auto work = [&](int) { ++calls; };
  pool.run(2, work, std::chrono::hours(1));
  pool.gate().wake();  // forgets a thread that was about to sleep before the run
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_FALSE(pool.gate().has_sleepers());
  pool.run(2, work);
  EXPECT_EQ(calls, 4);
  while (!pool.gate().has_sleepers()) std::this_thread::yield();
}

TEST(WorkerPool, ThoseThatHadNoWorkInAPatientRunSleep) {
  WorkerPool pool(3);
  pool.run(
      2, [](int) {}, std::chrono::hours(1));
  for (int i = 0; i < 3; ++i) {
    while (!pool.gate().has_sleepers()) std::this_thread::yield();
    pool.gate().wake();
  }
}

// An opener that saw no sleeper wakes nobody. So a thread that goes to sleep must see what was
// opened.
TEST(Gate, ASleeperLooksOnceMoreWhenItIsKnown) {
  Gate gate;
  int looks = 0;
  gate.sleep([&] {
    EXPECT_TRUE(gate.has_sleepers());
    ++looks;
    return true;
  });
  EXPECT_EQ(looks, 1);
}

TEST(Await, SleepersWakeForOtherReasonsAndSleepAgain) {
  Gate gate;
  Signal signal;
  std::thread waker([&] {
    for (int i = 0; i < 50; ++i) {
      std::this_thread::sleep_for(std::chrono::microseconds(100));
      gate.wake();
    }
    signal.set(1, gate);
  });
  await(signal, 1, gate);
  EXPECT_TRUE(signal.reached(1));
  waker.join();
}

TEST(Gate, WakesAllSleepers) {
  Gate gate;
  Signal signal;
  std::atomic<int> awake{0};
  std::vector<std::thread> sleepers;
  for (int i = 0; i < 6; ++i)
    sleepers.emplace_back([&] {
      await(signal, 1, gate);
      ++awake;
    });
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_EQ(awake, 0);
  signal.set(1, gate);
  for (std::thread& sleeper : sleepers) sleeper.join();
  EXPECT_EQ(awake, 6);
}

// The sleeper needs no second call of the system, even if it has not run yet.
TEST(Gate, ForgetsSleepersThatItHasWoken) {
  Gate gate;
  EXPECT_FALSE(gate.has_sleepers());
  std::jthread sleeper([&] { gate.sleep([] { return false; }); });
  while (!gate.has_sleepers()) std::this_thread::yield();
  gate.wake();
  EXPECT_FALSE(gate.has_sleepers());
}

// Each waker signals all sleepers in each round, and sleeps until all have answered. Nobody spins,
// so a lost wake-up would hang.
TEST(Gate, LosesNoWakeUpAmongManyWakersAndSleepers) {
  constexpr int kWakers = 4, kSleepers = 4, kRounds = 300;
  Gate gate;
  std::atomic<int> told{0}, answered{0};
  const auto sleep_until = [&](const std::atomic<int>& count, int least) {
    while (count < least) gate.sleep([&] { return count >= least; });
  };
  std::vector<std::jthread> threads;
  for (int waker = 0; waker < kWakers; ++waker)
    threads.emplace_back([&] {
      for (int round = 1; round <= kRounds; ++round) {
        ++told;
        gate.wake();
        sleep_until(answered, round * kSleepers);
      }
    });
  for (int sleeper = 0; sleeper < kSleepers; ++sleeper)
    threads.emplace_back([&] {
      for (int round = 1; round <= kRounds; ++round) {
        sleep_until(told, round * kWakers);
        ++answered;
        gate.wake();
      }
    });
  threads.clear();  // joins them
  EXPECT_EQ(told, kWakers * kRounds);
  EXPECT_EQ(answered, kSleepers * kRounds);
}

TEST(WorkerPool, RunsEveryActiveWorkerOnceAndWaitsForAll) {
  for (int workers = 1; workers <= 8; ++workers) {
    WorkerPool pool(workers);
    EXPECT_EQ(pool.workers(), workers);
    std::vector<int> calls(static_cast<std::size_t>(workers));
    for (int run = 0; run < 200; ++run) {
      const int active = 1 + run % workers;
      pool.run(active, [&](int worker) { ++calls[static_cast<std::size_t>(worker)]; });
      int total = 0;
      for (const int count : calls) total += count;  // no lock: all have finished
      int expected = 0;
      for (int r = 0; r <= run; ++r) expected += 1 + r % workers;
      ASSERT_EQ(total, expected);
    }
  }
}

// Each run is over before its workers have been woken, or while they begin.
TEST(WorkerPool, LateWorkersMayBeLeftOutAndNoneIsInsideAfterwards) {
  WorkerPool pool(4, 1);
  std::atomic<int> inside{0}, calls{0}, enqueued{0};
  for (int run = 1; run <= 500; ++run) {
    std::atomic<bool> over{false};
    pool.run(
        5,
        [&](int worker) {
          EXPECT_FALSE(over);
          ++inside;
          ++(worker == 4 ? enqueued : calls);
          --inside;
        },
        kShortSpin, 4);
    over = true;
    EXPECT_EQ(inside, 0);
    EXPECT_EQ(enqueued, run) << "threads that enqueue are awaited";
  }
  EXPECT_GE(calls, 500);
  EXPECT_LE(calls, 2000);
  pool.run(4, [&](int) { ++inside; });
  EXPECT_EQ(inside, 4) << "nobody is left out of a run that awaits all";
}

// A plan of GPUs alone has one worker, though the pool has two: thread 1 enqueues.
TEST(WorkerPool, AThreadIsAwaitedByItsPlaceInTheRun) {
  WorkerPool pool(2, 1);
  std::atomic<int> enqueued{0};
  for (int run = 1; run <= 500; ++run) {
    pool.run(
        2, [&](int thread) { enqueued += thread; }, kShortSpin, 1);
    ASSERT_EQ(enqueued, run);
  }
}

TEST(WorkerPool, AWorkerThatHasBegunIsAwaited) {
  WorkerPool pool(2);
  for (int run = 0; run < 20; ++run) {
    std::atomic<bool> begun{false}, ended{false};
    pool.run(
        2,
        [&](int worker) {
          if (worker == 0) {
            while (!begun) std::this_thread::yield();
          } else {
            begun = true;
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
            ended = true;
          }
        },
        kShortSpin, 2);
    EXPECT_TRUE(ended);
  }
}

TEST(WorkerPool, WorkerZeroIsTheCaller) {
  WorkerPool pool(3);
  const auto caller = std::this_thread::get_id();
  pool.run(3, [&](int worker) { EXPECT_EQ(std::this_thread::get_id() == caller, worker == 0); });
}

TEST(WorkerPool, WorkersOrderEachOtherThroughSignals) {
  for (int workers = 1; workers <= 8; ++workers) {
    WorkerPool pool(workers);
    for (int run = 0; run < 20; ++run) {
      std::vector<Signal> done(static_cast<std::size_t>(workers));
      std::vector<int> order;
      // Workers finish from the last to the first, so the caller waits longest.
      pool.run(workers, [&](int worker) {
        if (worker + 1 < workers) await(done[static_cast<std::size_t>(worker) + 1], 1, pool.gate());
        order.push_back(worker);
        done[static_cast<std::size_t>(worker)].set(1, pool.gate());
      });
      ASSERT_EQ(order.size(), static_cast<std::size_t>(workers));
      for (int w = 0; w < workers; ++w)
        ASSERT_EQ(order[static_cast<std::size_t>(w)], workers - 1 - w);
    }
  }
}

class ThreadHookTest : public ::testing::Test {
 protected:
  ~ThreadHookTest() override { set_thread_hook({}); }
  // Refuses a thread, as a system does whose user may have no more of them.
  static void refuse(const std::string& what) {
    set_thread_hook([what](const ThreadUse& use) {
      if (use.what == what)
        throw std::system_error(std::make_error_code(std::errc::resource_unavailable_try_again));
    });
  }
};

TEST_F(ThreadHookTest, AWorkerThatCannotBeStartedIsNamedWithWhatToDo) {
  refuse("worker 3 of 4");
  EXPECT_EQ(message_of<DeviceError>([] { WorkerPool pool(4); }),
            "cannot start a thread for worker 3 of 4: Resource temporarily unavailable; use fewer "
            "(the option threads), or allow this user more threads (ulimit -u) and this process "
            "more memory (ulimit -v)");
  EXPECT_NO_THROW(WorkerPool(2));
}

TEST_F(ThreadHookTest, AThreadThatCannotBeStartedForAGpuIsNamed) {
  refuse("the work of GPU 2 of 2");
  EXPECT_THAT(message_of<DeviceError>([] { WorkerPool pool(1, 2); }), HasSubstr("use fewer GPUs"));
  EXPECT_EQ(WorkerPool(1, 1).workers(), 1) << "without those that enqueue";
}

TEST(WorkerPool, EndsWithoutARun) {
  for (int i = 0; i < 20; ++i) WorkerPool pool(4);
}

TEST(FloatingPointMode, IsCheckedForRounding) {
  EXPECT_NO_THROW(check_floating_point_mode());
  std::fesetround(FE_UPWARD);
  EXPECT_THAT(message_of<InvalidArgument>([] { check_floating_point_mode(); }),
              HasSubstr("to nearest"));
  std::fesetround(FE_TONEAREST);
}

#if defined(__x86_64__)
// std::fegetround() does not see this mode.
TEST(FloatingPointMode, IsCheckedForTheRoundingOfVectors) {
  const unsigned mode = _mm_getcsr();
  for (const unsigned rounding : {_MM_ROUND_DOWN, _MM_ROUND_UP, _MM_ROUND_TOWARD_ZERO}) {
    _mm_setcsr((mode & ~_MM_ROUND_MASK) | rounding);
    EXPECT_THAT(message_of<InvalidArgument>([] { check_floating_point_mode(); }),
                HasSubstr("_MM_ROUND_NEAREST"));
    _mm_setcsr(mode);
  }
  EXPECT_NO_THROW(check_floating_point_mode());
}

TEST(FloatingPointMode, IsCheckedForFlushedDenormals) {
  const unsigned mode = _mm_getcsr();
  _mm_setcsr(mode | 0x8000);
  EXPECT_THAT(message_of<InvalidArgument>([] { check_floating_point_mode(); }),
              HasSubstr("flushes denormals"));
  _mm_setcsr(mode);
}
#endif

}  // namespace workers_test
}  // namespace belfry
