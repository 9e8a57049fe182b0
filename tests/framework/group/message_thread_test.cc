// The thread that talks to other processes sleeps until there is something to do.
#include <atomic>
#include <chrono>
#include <string>
#include <thread>

#include <gtest/gtest.h>

#include "belfry/tests/support/process_threads.h"

namespace belfry {
namespace message_thread_test {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

// Heartbeats wake nobody in time.
const WatchOptions kRareBeats{.beat = milliseconds(60'000), .stall_warn = {}};
constexpr milliseconds kSoon{20'000};

// Waits for a flag of this process, and counts how often it was called.
struct Waits final : Processes::Work {
  Waits(Progress how, std::atomic<bool>& until) : progress(how), over(until) {}
  Progress advance(FailureDetector& with) override {
    ++calls;
    group.store(&with);
    with.poll();
    return over.load() ? Progress::kEnded : progress;
  }

  const Progress progress;
  std::atomic<bool>& over;
  std::atomic<int> calls{0};
  std::atomic<FailureDetector*> group{nullptr};
};

TEST(MessageThread, NothingWaitsForAHeartbeat) {
  const auto began = Clock::now();
  test::run_processes(
      3,
      [](const std::shared_ptr<Processes>& processes) {
        for (int i = 0; i < 20; ++i) {
          // Whoever comes last wakes those that sleep between two calls, or in one.
          if (i % 3 == processes->rank()) std::this_thread::sleep_for(milliseconds(3));
          const std::string own(i % 2 ? 100'000 : 10, static_cast<char>('a' + i));
          EXPECT_EQ(processes->gather(own), std::vector(3, own));
        }
      },
      kRareBeats);
  EXPECT_LT(Clock::now() - began, kSoon);
}

// A wake() is not lost, whether or not the thread sleeps by then.
TEST(MessageThread, AnotherThreadWakesIt) {
  const auto began = Clock::now();
  test::run_processes(
      2,
      [](const std::shared_ptr<Processes>& processes) {
        for (int i = 0; i < 200; ++i) {
          std::atomic<bool> over{false};
          Waits work(Processes::Work::Progress::kIdle, over);
          processes->begin(work);
          while (!work.group.load()) std::this_thread::yield();
          if (i % 4 == 0) std::this_thread::sleep_for(milliseconds(1));
          over = true;
          work.group.load()->wake();
          processes->wait();
        }
      },
      kRareBeats);
  EXPECT_LT(Clock::now() - began, kSoon);
}

TEST(MessageThread, AThreadThatWaitsForMessagesSleeps) {
  constexpr milliseconds kBeat{100};
  constexpr int kBeats = 10;
  test::run_processes(2,
                      [&](const std::shared_ptr<Processes>& processes) {
                        std::atomic<bool> over{false};
                        Waits work(Processes::Work::Progress::kMessages, over);
                        processes->begin(work);
                        while (!work.group.load()) std::this_thread::yield();
                        const auto began = Clock::now();
                        std::this_thread::sleep_for(kBeats * kBeat);
                        const int calls = work.calls;
                        const auto beats = (Clock::now() - began) / kBeat + 1;
                        over = true;
                        work.group.load()->wake();
                        processes->wait();
                        // For its own heartbeats, and for those of the other.
                        EXPECT_LE(calls, 5 * beats);
                      },
                      {.beat = kBeat, .most_silent = 0, .stall_warn = {}});
}

}  // namespace message_thread_test
}  // namespace belfry
