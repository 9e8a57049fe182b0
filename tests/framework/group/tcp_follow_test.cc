// What a process says that does not reach another, or waits for one.
#include <tuple>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>

#include "belfry/tests/framework/group/tcp_meeting_support.h"
#include "belfry/tests/support/process_threads.h"

namespace belfry {
namespace tcp_follow_test {

using namespace tcp_meeting_support;
using ::testing::AllOf;
using ::testing::HasSubstr;

// That something else than rank 0 listens, and what to do.
auto is_told_of_a_stranger(const TcpGroupOptions& options, const std::string& does) {
  return AllOf(HasSubstr(cat("something accepts connections at 127.0.0.1:", options.port,
                             ", but does not answer as rank 0 of a Belfry run does: ", does)),
               HasSubstr("see which program listens there (ss -ltnp)"), HasSubstr("MASTER_ADDR"));
}

// A listener whose queue is full drops calls, as a firewall does.
TEST(TcpFollow, ACallThatNobodyAnswersEndsInTime) {
  TcpGroupOptions options = of_rank(test::local_processes(2), 1);
  const Socket listener = Socket::listen_on(rank_0_of(options));
  ASSERT_EQ(::listen(listener.file(), 0), 0);
  std::vector<Socket> queue;
  for (int i = 0; i < 4; ++i) try {
      queue.push_back(
          Socket::connect_to(rank_0_of(options), Clock::now() + std::chrono::milliseconds(100)));
    } catch (const CommError&) {
      break;
    }
  options.timeout = std::chrono::milliseconds(300);
  const auto begun = Clock::now();
  EXPECT_THAT(outcome(options), HasSubstr(" in 0.3 s: 127.0.0.1: no answer"));
  EXPECT_LT(Clock::now() - begun, std::chrono::seconds(60));  // the system's own limit is 130 s
}

TEST(TcpFollow, WhoListensAtThePortInsteadIsTold) {
  const TcpGroupOptions options = test::local_processes(2);
  const Socket listener = Socket::listen_on(rank_0_of(options));
  EXPECT_THAT(outcome(options), AllOf(HasSubstr(cat("127.0.0.1:", options.port)),
                                      HasSubstr("another program does"), HasSubstr("MASTER_PORT")));
  auto second = started(of_rank(options, 1));
  ASSERT_TRUE(await(listener.file(), POLLIN, soon()));
  const Socket caller = listener.accept_one();
  caller.write_all("SSH-2.0-OpenSSH_9.2\r\n", soon());
  EXPECT_THAT(second.get(), HasSubstr("it is no process of Belfry"));
}

TEST(TcpFollow, WhoListensAndSaysNothingIsTold) {
  TcpGroupOptions options = of_rank(test::local_processes(2), 1);
  const Socket listener = Socket::listen_on(rank_0_of(options));
  options.timeout = std::chrono::milliseconds(200);
  EXPECT_THAT(outcome(options), is_told_of_a_stranger(options, "it says nothing"));
}

// Its queue is full after a try or two, and then takes no calls.
TEST(TcpFollow, WhoListensAndNeverTakesACallIsToldAtTheEnd) {
  TcpGroupOptions options = of_rank(test::local_processes(2), 1);
  const Socket listener = Socket::listen_on(rank_0_of(options));
  ASSERT_EQ(::listen(listener.file(), 0), 0);
  options.one_try = std::chrono::milliseconds(20);
  options.timeout = std::chrono::milliseconds(400);
  EXPECT_THAT(outcome(options), AllOf(HasSubstr(" s: 127.0.0.1: no answer; before, something"),
                                      is_told_of_a_stranger(options, "it says nothing")));
}

// As a proxy does whose target has not begun. Each process says so at once, and tries again.
TEST(TcpFollow, WhoTakesCallsAndClosesThemIsToldAtOnce) {
  const TcpGroupOptions options = of_rank(test::local_processes(2), 1);
  ::testing::internal::CaptureStderr();
  auto second = started(options);
  {
    const Socket proxy = Socket::listen_on(rank_0_of(options));
    for (int i = 0; i < 2; ++i) {
      ASSERT_TRUE(await(proxy.file(), POLLIN, soon()));
      proxy.accept_one();
    }
  }
  EXPECT_EQ(outcome(of_rank(options, 0)), "");
  EXPECT_EQ(second.get(), "");
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              AllOf(HasSubstr("rank 1 on "), HasSubstr("does not reach rank 0 at"),
                    is_told_of_a_stranger(options, "the connection ")));
}

// A process that was stopped in the middle of its start, for example.
TEST(TcpFollow, WhoFallsSilentIsCalledAgain) {
  TcpGroupOptions options = of_rank(test::local_processes(2), 1);
  options.one_try = std::chrono::milliseconds(500);
  auto second = started(options);
  {
    const Socket listener = Socket::listen_on(rank_0_of(options));
    ASSERT_TRUE(await(listener.file(), POLLIN, soon()));
    const Socket first = listener.accept_one();
    first.write_all(letter(Banner{random_nonce(), 0}.body()), soon());
    read_letter(first, kMostCall);
    ASSERT_TRUE(await(listener.file(), POLLIN, soon()));
  }
  EXPECT_EQ(outcome(of_rank(options, 0)), "");
  EXPECT_EQ(second.get(), "");
}

// Rank 1 waits for 30 s, and hears at once why rank 0 does not.
TEST(TcpFollow, WhyRankZeroEndsReachesAll) {
  TcpGroupOptions options = test::local_processes(3);
  auto second = started(of_rank(options, 1));
  options.timeout = std::chrono::seconds(1);
  const std::string why = outcome(options);
  EXPECT_THAT(why, HasSubstr(cat("rank 0 has waited 1 s at port ", options.port,
                                 " for rank 2 of 3; start all processes")));
  EXPECT_EQ(second.get(), why);
}

// Where rank 1 says that it listens, there is somebody else.
TEST(TcpFollow, WhoCannotReachAnotherNamesIt) {
  const TcpGroupOptions options = test::local_processes(3);
  auto leader = started(options);
  listening(1);
  const Socket somebody = Socket::listen_on(address("127.0.0.1"));
  const int port = somebody.here().port();
  FakeCaller second(rank_0_of(options), options.token, cat("1 3 ", port, " a"));
  EXPECT_EQ(second.answer(), "welcome");
  auto third = std::async(std::launch::async, [&] { return outcome_of_need(options); });
  ASSERT_TRUE(await(somebody.file(), POLLIN, soon()));
  const Socket call = somebody.accept_one();
  call.write_all("SSH-2.0-OpenSSH_9.2\r\n", soon());
  const std::string why = third.get();
  EXPECT_THAT(why, AllOf(HasSubstr("rank 1, a: does not take the call of rank 2: it is no process"),
                         HasSubstr(cat("(at 127.0.0.1:", port, ")"))));
  EXPECT_THAT(leader.get(), HasSubstr(why));
}

TEST(TcpFollow, WhoDoesNotListenIsNamed) {
  const TcpGroupOptions options = test::local_processes(3);
  auto leader = started(options);
  listening(1);
  FakeCaller second(rank_0_of(options), options.token, "1 3 1 a");
  EXPECT_EQ(second.answer(), "welcome");
  const std::string why = outcome_of_need(options);
  EXPECT_THAT(why, AllOf(HasSubstr("rank 1, a: cannot be reached: cannot connect: "),
                         HasSubstr("(at 127.0.0.1:1)")));
  EXPECT_THAT(leader.get(), HasSubstr(why));
}

// Where a port follows from the number of a job, another job may have it, even with the same token.
TEST(TcpFollow, ARunFindsItsRankZeroAmongSeveralPorts) {
  for (const auto& [token, run, round] :
       {std::tuple("other", "job 2", 0), {"token", "job 2", 0}, {"token", "job 1", 1}}) {
    TcpGroupOptions options = test::local_processes(2);
    options.ports = 4;
    options.one_try = std::chrono::milliseconds(200);  // for the stranger, who says nothing
    options.token = "token";
    options.run = "job 1";
    TcpGroupOptions other = options;
    other.token = token;
    other.run = run;
    other.round = round;
    auto other_leader = started(other);
    listening(1);
    const Socket stranger = Socket::listen_on(address("127.0.0.1", options.port + 1));
    auto second = started(of_rank(options, 1));
    EXPECT_EQ(outcome(options), "");
    EXPECT_EQ(second.get(), "");
    EXPECT_EQ(outcome(of_rank(other, 1)), "");
    EXPECT_EQ(other_leader.get(), "");
  }
}

TEST(TcpFollow, NoPortOfSeveralIsFree) {
  TcpGroupOptions options = test::local_processes(2);
  options.ports = 2;
  const Socket one = Socket::listen_on(rank_0_of(options));
  const Socket two = Socket::listen_on(address("127.0.0.1", options.port + 1));
  EXPECT_THAT(outcome(options), HasSubstr(cat("127.0.0.1:", options.port + 1)));
  options.one_try = std::chrono::milliseconds(50);
  options.timeout = std::chrono::milliseconds(400);
  EXPECT_THAT(outcome(of_rank(options, 1)),
              AllOf(HasSubstr(cat("127.0.0.1:", options.port, " to ", options.port + 1)),
                    HasSubstr("it says nothing")));
}

// What the run itself says counts at once.
TEST(TcpFollow, ARefusalByRankZeroEndsTheSearch) {
  TcpGroupOptions options = test::local_processes(3);
  options.ports = 4;
  auto leader = started(options);
  listening(1);
  TcpGroupOptions wrong = of_rank(options, 1);
  wrong.size = 2;
  EXPECT_THAT(outcome(wrong), HasSubstr("was started for 2 processes, rank 0 for 3"));
  EXPECT_THAT(leader.get(), HasSubstr("was started for 2 processes"));
}

}  // namespace tcp_follow_test
}  // namespace belfry
