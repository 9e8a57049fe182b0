#include "belfry/framework/run/worker_cores.h"

#include <atomic>
#include <chrono>
#include <latch>
#include <thread>

#include <sched.h>

#include "belfry/tests/framework/framework_test_support.h"

namespace belfry {
namespace worker_cores_test {

cpu_set_t usable() {
  cpu_set_t set;
  EXPECT_EQ(sched_getaffinity(0, sizeof set, &set), 0);
  return set;
}

// Calls `body` in a thread of its own, so that changes of affinity end with the thread.
template <class Body>
void in_a_thread(const Body& body) {
  std::jthread thread(body);
}

TEST(WorkerCores, AWorkerLeavesTheCoreOfAnother) {
  in_a_thread([] {
    const cpu_set_t before = usable();
    if (CPU_COUNT(&before) < 2) GTEST_SKIP() << "needs two cores";
    for (int i = 0; i < 100; ++i) {
      WorkerCores cores(2);
      cores.note(0);
      cores.enter(1);
      EXPECT_NE(cores.core(0), cores.core(1));
      EXPECT_TRUE(CPU_ISSET(cores.core(1), &before));
      const cpu_set_t after = usable();
      EXPECT_TRUE(CPU_EQUAL(&before, &after));
    }
  });
}

TEST(WorkerCores, AWorkerStaysWhereNoCoreIsFree) {
  in_a_thread([] {
    const cpu_set_t all = usable();
    int core = 0;
    while (!CPU_ISSET(core, &all)) ++core;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
    WorkerCores cores(3);
    cores.note(0);
    cores.enter(1);
    EXPECT_EQ(cores.core(0), core);
    EXPECT_EQ(cores.core(1), core);
    const cpu_set_t after = usable();
    EXPECT_TRUE(CPU_EQUAL(&one, &after));
  });
}

TEST(WorkerCores, OneThatHasLeftHasNoCore) {
  WorkerCores cores(2);
  EXPECT_EQ(cores.core(0), WorkerCores::kNoCore);
  cores.note(0);
  EXPECT_NE(cores.core(0), WorkerCores::kNoCore);
  cores.leave(0);
  EXPECT_EQ(cores.core(0), WorkerCores::kNoCore);
}

// A sleeping thread gets no processor time, as a stopped one.
TEST(WorkerCores, AnIdleWorkerSwapsCoresWithOneThatHasStopped) {
  in_a_thread([] {
    const cpu_set_t before = usable();
    if (CPU_COUNT(&before) < 2) GTEST_SKIP() << "needs two cores";
    WorkerCores cores(2);
    std::latch at_work(1), end(1);
    std::jthread stopped([&] {
      cores.enter(0);
      at_work.count_down();
      end.wait();
    });
    at_work.wait();
    // The system may move this thread to the other's core between two looks.
    const int other = cores.core(0);
    bool swapped = false;
    for (int i = 0; i < 1000 && !swapped; ++i) {
      cores.enter(1);
      swapped = cores.swap(1);
    }
    end.count_down();
    EXPECT_TRUE(swapped);
    EXPECT_EQ(cores.core(1), other);
    const cpu_set_t after = usable();
    EXPECT_TRUE(CPU_EQUAL(&before, &after));
  });
}

TEST(WorkerCores, AnIdleWorkerKeepsItsCoreWhereTheOthersRunOrHaveLeft) {
  in_a_thread([] {
    WorkerCores alone(1), cores(2);
    alone.enter(0);
    EXPECT_FALSE(alone.swap(0));
    cores.enter(0);
    for (int i = 0; i < 4; ++i) EXPECT_FALSE(cores.swap(0));
    std::atomic<bool> end{false};
    std::jthread running([&] {
      cores.enter(1);
      while (!end) {
      }
    });
    while (cores.core(1) == WorkerCores::kNoCore) std::this_thread::yield();
    // The machine may stop the other thread for a while.
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    bool kept = false;
    while (!kept && std::chrono::steady_clock::now() < deadline) kept = !cores.swap(0);
    end = true;
    EXPECT_TRUE(kept);
  });
}

// Each worker may move the others. So two movers could take a thread's mask of one core for its own
// mask.
TEST(WorkerCores, NoThreadIsPinnedByWorkersThatMoveEachOther) {
  constexpr int kWorkers = 4;
  WorkerCores cores(kWorkers);
  const cpu_set_t before = usable();
  std::vector<std::jthread> threads;
  std::latch all_done(kWorkers);
  for (int w = 0; w < kWorkers; ++w)
    threads.emplace_back([&, w] {
      for (int round = 0; round < 300; ++round) {
        cores.enter(w);
        cores.swap(w);
        cores.leave(w);
      }
      all_done.arrive_and_wait();  // nobody moves another
      const cpu_set_t after = usable();
      EXPECT_TRUE(CPU_EQUAL(&before, &after));
    });
}

}  // namespace worker_cores_test
}  // namespace belfry
