#include "belfry/trainers/util/stop_signals.h"

#include <atomic>
#include <chrono>
#include <csignal>
#include <thread>

#include <gtest/gtest.h>
#include <unistd.h>

#include "belfry/framework/base/threads.h"
#include "belfry/framework/core_ops/constant.h"
#include "belfry/framework/run/session.h"
#include "belfry/ops/matmul.h"
#include "belfry/tests/support/op_test.h"

namespace belfry {
namespace stop_signals_test {

TEST(StopSignals, NotesWhatComesAndRestoresWhatWasThere) {
  struct sigaction before = {}, after = {};
  ::sigaction(SIGUSR2, nullptr, &before);
  {
    const StopSignals signals;
    EXPECT_EQ(StopSignals::take().signal, 0);
    ::raise(SIGUSR2);
    EXPECT_TRUE(StopSignals::take().save);
    EXPECT_FALSE(StopSignals::take().save) << "taken";
    ::raise(SIGTERM);
    EXPECT_EQ(StopSignals::take().signal, SIGTERM);
    EXPECT_EQ(StopSignals::take().signal, SIGTERM) << "stays";
  }
  ::sigaction(SIGUSR2, nullptr, &after);
  EXPECT_EQ(after.sa_handler, before.sa_handler);
}

TEST(StopSignals, LeaveWhatIsIgnoredIgnored) {
  const auto before = std::signal(SIGHUP, SIG_IGN);
  {
    const StopSignals signals;
    ::raise(SIGHUP);
    EXPECT_EQ(StopSignals::take().signal, 0);
  }
  std::signal(SIGHUP, SIG_DFL);
  {
    const StopSignals signals;
    ::raise(SIGHUP);
    EXPECT_EQ(StopSignals::take().signal, SIGHUP);
  }
  std::signal(SIGHUP, before);
}

sigset_t mask_of(std::initializer_list<int> signals) {
  sigset_t mask;
  ::sigemptyset(&mask);
  for (const int signal : signals) ::sigaddset(&mask, signal);
  return mask;
}

// A parent that waits for signals has them blocked, and so has every process that it starts.
TEST(StopSignals, AreNotBlockedWhileTheyAreNoted) {
  const sigset_t blocked = mask_of({SIGTERM, SIGUSR2, SIGWINCH});
  sigset_t before, mask;
  ::pthread_sigmask(SIG_BLOCK, &blocked, &before);
  ::raise(SIGTERM);  // waits
  {
    const StopSignals signals;
    EXPECT_EQ(StopSignals::take().signal, SIGTERM);
    ::raise(SIGUSR2);
    EXPECT_TRUE(StopSignals::take().save);
    ::pthread_sigmask(SIG_SETMASK, nullptr, &mask);
    EXPECT_TRUE(::sigismember(&mask, SIGWINCH)) << "of others";
  }
  ::pthread_sigmask(SIG_SETMASK, nullptr, &mask);
  EXPECT_TRUE(::sigismember(&mask, SIGTERM) && ::sigismember(&mask, SIGUSR2)) << "as before";
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

// Some send two signals at once, such as SIGINT and SIGTERM. The second must not end the process.
TEST(StopSignals, ThatComeAtOnceAreOneRequest) {
  const sigset_t both = mask_of({SIGINT, SIGTERM});
  const StopSignals signals;
  ::pthread_sigmask(SIG_BLOCK, &both, nullptr);
  ::raise(SIGTERM);
  ::raise(SIGINT);
  ::pthread_sigmask(SIG_UNBLOCK, &both, nullptr);
  EXPECT_NE(StopSignals::take().signal, 0);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2}) {
    struct sigaction action = {};
    ::sigaction(signal, nullptr, &action);
    for (const int other : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2})
      EXPECT_TRUE(::sigismember(&action.sa_mask, other)) << other << " interrupts " << signal;
  }
}

// A handler on the stack of a product of oneDNN 2.6.3 soon corrupts the heap.
TEST(StopSignals, DestroyNoMemoryOfProducts) {
  const StopSignals signals;
  std::atomic<int> sent{0};
  const std::jthread sender = start_thread({"signals", ""}, [&](const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      ::kill(::getpid(), SIGUSR2);
      ++sent;
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  });
  Graph graph;
  const Output a = constant(graph, random_values({8, 3136})),
               b = constant(graph, random_values({3136, 128}, -1, 1, 2));
  const Output product = matmul(a, b);
  for (const int threads : {1, 2}) {
    Session session(graph, {.threads = threads, .all_workers = true});
    const Tensor first = session.run(product);
    const int start = sent;
    while (sent < start + 1000) EXPECT_EQ(doubles(session.run(product)), doubles(first));
  }
  EXPECT_TRUE(StopSignals::take().save);
}

}  // namespace stop_signals_test
}  // namespace belfry
