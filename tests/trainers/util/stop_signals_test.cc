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
