#include "belfry/framework/group/failure_detector.h"

#include <atomic>
#include <latch>
#include <thread>

#include "belfry/framework/base/end_process.h"
#include "belfry/framework/group/processes.h"
#include "belfry/framework/group/tcp_group.h"
#include "belfry/tests/framework/framework_test_support.h"
#include "belfry/tests/support/process_threads.h"

namespace belfry {
namespace failure_detector_test {

using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::HasSubstr;

const WatchOptions kQuick{.beat = milliseconds(10), .most_silent = 20};
constexpr int kPatient = 1 << 20;

// Calls body(group) in a thread per process.
void run(int size, WatchOptions options, const std::function<void(FailureDetector&)>& body) {
  TcpGroupOptions tcp = test::local_processes(size);
  std::vector<std::jthread> threads;
  for (tcp.rank = 0; tcp.rank < size; ++tcp.rank)
    threads.emplace_back([=] {
      FailureDetector group(connect_tcp(tcp), options);
      body(group);
    });
}

// Polls the group until it fails, and returns why.
std::string failure_of(FailureDetector& group) {
  return message_of<CommError>([&] {
    for (;;) {
      group.poll();
      std::this_thread::sleep_for(milliseconds(1));
    }
  });
}

void look_until(FailureDetector& group, const std::atomic<bool>& over) {
  while (!over) {
    group.beat();
    std::this_thread::sleep_for(milliseconds(1));
  }
}

TEST(FailureDetector, AProcessWithoutAHeartbeatIsNamed) {
  std::latch noticed(2);
  run(3, kQuick, [&](FailureDetector& group) {
    if (group.rank() == 2) return noticed.wait();
    EXPECT_THAT(failure_of(group), AllOf(HasSubstr("rank 2, "), HasSubstr("no heartbeat for")));
    // All later calls say the same.
    EXPECT_THAT(failure_of(group), HasSubstr("rank 2, "));
    noticed.arrive_and_wait();
  });
}

TEST(FailureDetector, OnesThatLiveAreNotBlamed) {
  run(3, kQuick, [&](FailureDetector& group) {
    for (int i = 0; i < 400; ++i) {
      EXPECT_NO_THROW(group.poll());
      std::this_thread::sleep_for(milliseconds(1));
    }
  });
}

// A listener counts only beats that it could have heard.
TEST(FailureDetector, AListenerThatWasStoppedBlamesNobody) {
  std::atomic<bool> over = false;
  WatchOptions patient = kQuick;
  patient.most_silent = kPatient;
  TcpGroupOptions tcp = test::local_processes(2);
  std::jthread other([&, options = tcp]() mutable {
    options.rank = 1;
    FailureDetector group(connect_tcp(options), patient);
    look_until(group, over);
  });
  FailureDetector group(connect_tcp(tcp), kQuick);
  for (int i = 0; i < 10; ++i) EXPECT_NO_THROW(group.poll());
  std::this_thread::sleep_for(2 * kQuick.most_silent * kQuick.beat);
  for (int i = 0; i < 100; ++i) {
    EXPECT_NO_THROW(group.poll());
    std::this_thread::sleep_for(milliseconds(1));
  }
  over = true;
}

TEST(FailureDetector, AllLeaveTogether) {
  std::atomic<int> working = 2;
  run(2, kQuick, [&](FailureDetector& group) {
    if (group.rank() == 1) std::this_thread::sleep_for(milliseconds(50));
    --working;
  });
  EXPECT_EQ(working, 0);
}

TEST(FailureDetector, AProcessThatLeavesEarlyIsNamedByThoseWhoWaitForIt) {
  run(2, kQuick, [](FailureDetector& group) {
    if (group.rank() == 1) return;
    std::byte byte{};
    GroupMessage message{1, 3, {&byte, 1}};
    group.receive(message);
    EXPECT_THAT(failure_of(group), AllOf(HasSubstr("rank 1, "), HasSubstr("before the others")));
  });
}

TEST(FailureDetector, WhoEndsTheOthersIsNamedWhileNothingIsSent) {
  run(2, kQuick, [](FailureDetector& group) {
    if (group.rank() == 1) return group.end_others("the disk is full");
    EXPECT_THAT(failure_of(group), AllOf(HasSubstr("rank 1, "), HasSubstr("the disk is full")));
  });
}

// The process of rank 0 hangs, so nobody sees its failure.
TEST(Processes, ThatHangWhenTheGroupHasFailedAreAbandonedOnce) {
  TcpGroupOptions tcp = test::local_processes(2);
  std::atomic<int> abandoned = 0;
  std::string why;
  std::latch hangs(1);
  std::jthread other([options = tcp, &hangs]() mutable {
    options.rank = 1;
    Processes processes([=] { return connect_tcp(options); }, kQuick);
    hangs.wait();
    processes.end_others({.why = "the disk is full"});
  });
  WatchOptions watch = kQuick;
  watch.patience = milliseconds(20);
  watch.abandon = [&](const ProcessGroup& group, const std::exception& error) {
    EXPECT_EQ(group.rank(), 0);
    why = error.what();
    ++abandoned;
  };
  const Processes processes([=] { return connect_tcp(tcp); }, watch);
  hangs.count_down();
  while (abandoned == 0) std::this_thread::sleep_for(milliseconds(1));
  EXPECT_THAT(why, AllOf(HasSubstr("rank 1, "), HasSubstr("the disk is full")));
  std::this_thread::sleep_for(milliseconds(150));
  EXPECT_EQ(abandoned, 1);
}

// The end of the process would destroy what it writes.
TEST(Processes, ThatWriteAreAbandonedWhenTheyHaveWritten) {
  TcpGroupOptions tcp = test::local_processes(2);
  std::atomic<int> abandoned = 0;
  std::latch writes(1);
  std::jthread other([options = tcp, &writes]() mutable {
    options.rank = 1;
    Processes processes([=] { return connect_tcp(options); }, kQuick);
    writes.wait();
    processes.end_others({.why = "the disk is full"});
  });
  WatchOptions watch = kQuick;
  watch.patience = milliseconds(20);
  watch.abandon = [&](const ProcessGroup&, const std::exception&) { ++abandoned; };
  const Processes processes([=] { return connect_tcp(tcp); }, watch);
  auto write = std::make_unique<UnfinishedWrite>();
  writes.count_down();
  std::this_thread::sleep_for(milliseconds(400));
  EXPECT_EQ(abandoned, 0);
  write.reset();
  while (abandoned == 0) std::this_thread::sleep_for(milliseconds(1));
}

// It never ends unless the group fails.
struct EndlessWork final : Processes::Work {
  Progress advance(FailureDetector& group) override {
    group.poll();
    return Progress::kNone;
  }
};

// A watch sees that its own process hangs, between two steps or while there is work.
TEST(Processes, AWatchEndsTheOthersWhateverItsOwnProcessDoes) {
  WatchOptions watch = kQuick;
  watch.most_silent = kPatient;
  for (const bool works : {false, true})
    test::run_processes(
        2,
        [works](const std::shared_ptr<Processes>& processes) {
          if (processes->rank() == 0) {
            EXPECT_THAT(message_of<StallError>([&] { processes->gather("of rank 0"); }),
                        AllOf(HasSubstr("rank 1, "), HasSubstr("the run has stalled: step 7")));
            return;
          }
          EndlessWork work;
          if (works) processes->begin(work);
          EXPECT_EQ(processes->has_work(), works);
          std::jthread([&] {
            processes->end_others_in(milliseconds(60'000),
                                     {.kind = ErrorKind::kStalled, .why = stalled_run("step 7")});
          }).join();
          if (works) {
            EXPECT_THROW(processes->wait(), StallError);
          }
          EXPECT_THROW(processes->gather("of rank 1"), StallError);
        },
        watch);
}

// Rank 0 waits for a part that rank 1 never has, and rank 1 for a text that rank 0 never gives.
void wait_for_each_other(Processes& processes) {
  if (processes.rank() == 1) {
    processes.gather("of rank 1");
    return;
  }
  std::byte part{};
  const std::span<std::byte> parts[] = {{}, {&part, 1}};
  processes.fetch(7, 1, parts);
}

TEST(Processes, ThatWaitForEachOtherEndAndSayWhoWaitsForWhom) {
  WatchOptions watch = kQuick;
  watch.most_silent = kPatient;
  watch.stall_end = milliseconds(300);
  test::run_processes(
      2,
      [](const std::shared_ptr<Processes>& processes) {
        const std::string told = message_of<StallError>([&] { wait_for_each_other(*processes); });
        EXPECT_THAT(told,
                    AllOf(HasSubstr("all processes wait for each other, and nothing has moved for"),
                          testing::ContainsRegex("rank 0, .*: waits for rank 1, .* between two "),
                          testing::ContainsRegex("rank 1, .*: waits for rank 0, .* between two ")));
        processes->end_others({.kind = ErrorKind::kStalled, .why = told});  // as programs do
      },
      watch);
}

// As one whose process is asked to end: the call that waits then ends, too.
TEST(Processes, ThatWaitForEachOtherAreSeenAndEndedByAWatch) {
  WatchOptions watch = kQuick;
  watch.most_silent = kPatient;
  watch.stall_end = {};
  test::run_processes(
      2,
      [](const std::shared_ptr<Processes>& processes) {
        EXPECT_EQ(processes->mutual_wait(), milliseconds(0));
        const std::jthread sees([&] {
          while (processes->mutual_wait() < milliseconds(200))
            std::this_thread::sleep_for(milliseconds(1));
          if (processes->rank() == 1)
            processes->end_others_in(milliseconds(60'000),
                                     {.kind = ErrorKind::kStalled, .why = "SIGTERM, but"});
        });
        EXPECT_THAT(message_of<StallError>([&] { wait_for_each_other(*processes); }),
                    HasSubstr("SIGTERM, but"));
      },
      watch);
}

// It has to have time to save, and to read.
TEST(Processes, OneThatDoesNotWaitKeepsAllAlive) {
  WatchOptions watch = kQuick;
  watch.most_silent = kPatient;
  watch.stall_end = milliseconds(50);
  test::run_processes(
      3,
      [](const std::shared_ptr<Processes>& processes) {
        if (processes->rank() == 1) std::this_thread::sleep_for(milliseconds(800));
        EXPECT_EQ(processes->gather("x").size(), 3u);
      },
      watch);
}

class Waiting : public ::testing::Test {
 protected:
  // Makes rank 0 wait for rank 1, which does `doing`, and looks at the group of rank 0.
  void wait(WatchOptions options, const std::string& doing,
            const std::function<void(FailureDetector&)>& look) {
    std::atomic<bool> over = false;
    options.beat = milliseconds(10);
    options.most_silent = kPatient;
    run(2, options, [&](FailureDetector& group) {
      group.heartbeats().tell([&] { return doing; });
      if (group.rank() == 1) return look_until(group, over);
      group.heartbeats().count_launch();
      look(group);
      over = true;
    });
  }
};

TEST_F(Waiting, TellsOnceWhoIsLateAndWhatItDoes) {
  ::testing::internal::CaptureStderr();
  wait({.stall_warn = milliseconds(100), .stall_end = {}}, "computes 'fc0'", [](auto& group) {
    const auto began = std::chrono::steady_clock::now();
    for (int i = 0; i < 300; ++i) {
      group.poll();
      group.waiting("node 'Sum'", began);
      std::this_thread::sleep_for(milliseconds(1));
    }
  });
  const std::string told = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(told, AllOf(testing::ContainsRegex("node 'Sum' has waited [0-9.]+ s; late: rank 1, "),
                          HasSubstr(": computes 'fc0'")));
  EXPECT_EQ(told.find("has waited"), told.rfind("has waited")) << told;
}

TEST_F(Waiting, BetweenTwoStepsTellsOnceWhoIsLate) {
  ::testing::internal::CaptureStderr();
  wait({.stall_warn = milliseconds(100), .stall_end = milliseconds(150)}, "", [](auto& group) {
    std::byte byte{};
    GroupMessage message{1, 3, {&byte, 1}};
    group.receive(message);
    for (int i = 0; i < 300; ++i) {
      EXPECT_NO_THROW(group.poll());
      std::this_thread::sleep_for(milliseconds(1));
    }
    group.end_others("that was all");
  });
  const std::string told = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(
      told, AllOf(testing::ContainsRegex("a message between two steps has waited [0-9.]+ s; late: "
                                         "rank 1, .*: is between two steps")));
  EXPECT_EQ(told.find("has waited"), told.rfind("has waited")) << told;
}

TEST_F(Waiting, EndsAfterTheLimit) {
  wait({.stall_warn = {}, .stall_end = milliseconds(100)}, "computes 'fc0'", [](auto& group) {
    const auto began = std::chrono::steady_clock::now();
    EXPECT_THAT(message_of<StallError>([&] {
                  for (;;) {
                    group.poll();
                    group.waiting("node 'Sum'", began);
                  }
                }),
                AllOf(HasSubstr("node 'Sum' has waited"), HasSubstr("computes 'fc0'")));
  });
}

// All processes of a stalled run know of the stall.
TEST(FailureDetector, AStallInOneProcessIsOneInAll) {
  run(2, kQuick, [](FailureDetector& group) {
    if (group.rank() == 1)
      return group.end_others(
          ErrorFields{.kind = ErrorKind::kStalled, .why = "node 'Sum' has waited"});
    EXPECT_THAT(message_of<StallError>([&] {
                  for (;;) group.poll();
                }),
                HasSubstr("node 'Sum' has waited"));
  });
}

// The process may save, evaluate or read, which takes its time.
TEST_F(Waiting, NeverEndsForAProcessBetweenTwoSteps) {
  wait({.stall_warn = {}, .stall_end = milliseconds(20)}, "", [](auto& group) {
    const auto began = std::chrono::steady_clock::now();
    for (int i = 0; i < 200; ++i) {
      group.poll();
      EXPECT_NO_THROW(group.waiting("node 'Sum'", began));
      std::this_thread::sleep_for(milliseconds(1));
    }
  });
}

}  // namespace failure_detector_test
}  // namespace belfry
