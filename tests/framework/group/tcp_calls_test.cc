// Calls between processes that have met, and callers that are not who they should be.
#include <functional>
#include <optional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>

#include "belfry/tests/framework/group/tcp_meeting_support.h"
#include "belfry/tests/support/process_threads.h"

namespace belfry {
namespace tcp_calls_test {

using namespace tcp_meeting_support;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr char kOfAnotherRun[] = "it is of another run with the same token (BELFRY_TOKEN)";

// What becomes of rank 2 of three, which needs a byte of rank 1. Rank 1 is the test's: it says that
// it listens at a socket, with which listen() may do anything. Rank 0 hears of the same.
std::string outcome_of_call(const TcpGroupOptions& options,
                            const std::function<void(Socket, std::string meeting)>& listen) {
  auto leader = started(options);
  listening(1);
  Socket listener = Socket::listen_on(address("127.0.0.1"));
  FakeCaller first(rank_0_of(options), options.token, cat("1 3 ", listener.here().port(), " a"));
  const Answer welcome = first.heard();
  EXPECT_EQ(welcome.text, "welcome");
  auto second = std::async(std::launch::async, [&] { return outcome_of_need(options); });
  listen(std::move(listener), welcome.from.meeting);
  const std::string why = second.get();
  EXPECT_THAT(leader.get(), HasSubstr(why));
  return why;
}

// The next caller at a socket of rank 1. A test may change Caller::listener before it answers.
std::optional<Caller> next_caller(const TcpGroupOptions& options, Socket socket,
                                  const Member& self) {
  std::vector<Socket> listeners;
  listeners.push_back(std::move(socket));
  const MeetingKey key(options.token, options.round);
  return Reception(std::move(listeners), key, self, "test").next(soon());
}

// It has the token, and welcomes the caller.
TEST(TcpCalls, WhoIsCalledProvesItsRankAndItsRun) {
  const TcpGroupOptions options = test::local_processes(3);
  for (const bool is_other_run : {true, false}) {
    const std::string why = outcome_of_call(options, [&](Socket listener, std::string meeting) {
      std::optional<Caller> caller = next_caller(options, std::move(listener), {1, meeting});
      ASSERT_TRUE(caller);
      EXPECT_EQ(caller->card.rank, 2);
      caller->listener = is_other_run ? Member{1, random_meeting()} : Member{3, meeting};
      EXPECT_TRUE(caller->answer(kWelcome));
    });
    EXPECT_THAT(why,
                AllOf(HasSubstr("rank 1, a: does not take the call of rank 2: "),
                      HasSubstr(is_other_run ? kOfAnotherRun : "it is rank 3 (at 127.0.0.1:")));
  }
}

// A process left over from another run turns the caller away itself.
TEST(TcpCalls, AProcessOfAnotherRunRefuses) {
  const TcpGroupOptions options = test::local_processes(3);
  const std::string why = outcome_of_call(options, [&](Socket listener, const std::string&) {
    std::vector<Socket> listeners;
    ASSERT_TRUE(await(listener.file(), POLLIN, soon()));
    listeners.push_back(std::move(listener));
    const MeetingKey key(options.token, options.round);
    ::testing::internal::CaptureStderr();
    Reception old(std::move(listeners), key, {1, random_meeting()}, "rank 1 on old");
    EXPECT_FALSE(old.next(Clock::now() + std::chrono::milliseconds(300)));
    EXPECT_THAT(
        ::testing::internal::GetCapturedStderr(),
        AllOf(HasSubstr("rank 1 on old: turned away rank 2 on "), HasSubstr(kOfAnotherRun)));
  });
  EXPECT_THAT(why, HasSubstr(kOfAnotherRun));
}

// Somebody who has the token, but means a process of another run.
TEST(TcpCalls, ACallerProvesItsRunAndWhomItMeans) {
  const TcpGroupOptions options = test::local_processes(3);
  auto leader = started(options);
  auto second = started(of_rank(options, 1));
  HostAddress port_of_second = rank_0_of(options);
  for (const HostAddress& at : listening(2))
    if (at.port() != options.port) port_of_second = at;
  const auto answer_to = [&](const HostAddress& at, const std::string& whom) {
    return FakeCaller(at, options.token, "2 3 1000 a", whom).answer();
  };
  const std::string other = random_meeting();
  EXPECT_EQ(answer_to(rank_0_of(options), " 2 -"), "end it wants to reach rank 2");
  for (const char* const rank : {" 0 ", " 2 "})
    EXPECT_THAT(answer_to(rank_0_of(options), cat(rank, other)), HasSubstr(kOfAnotherRun));
  {
    FakeCaller third(rank_0_of(options), options.token, "2 3 1000 a");
    const Answer welcome = third.heard();
    EXPECT_EQ(welcome.text, "welcome");
    EXPECT_THAT(answer_to(port_of_second, cat(" 1 ", other)),
                HasSubstr(cat("end ", kOfAnotherRun)));
    EXPECT_EQ(answer_to(port_of_second, " 1 -"), "end it has not met this run yet");
    EXPECT_EQ(answer_to(port_of_second, cat(" 2 ", welcome.from.meeting)),
              "end it wants to reach rank 2");
    EXPECT_EQ(answer_to(port_of_second, cat(" 1 ", welcome.from.meeting)), "welcome");
  }
  EXPECT_THAT(leader.get(), HasSubstr("rank 2, a: the process has ended"));
  EXPECT_THAT(second.get(), HasSubstr("rank "));
}

// Somebody takes the call, says a part of what it should, and then nothing more.
TEST(TcpCalls, WhoFallsSilentIsCalledAgain) {
  TcpGroupOptions options = test::local_processes(3);
  options.one_try = std::chrono::milliseconds(500);
  const std::string banner = letter(Banner{random_nonce(), 0}.body());
  for (const std::string& said : {std::string(), banner.substr(0, 20), banner}) {
    ::testing::internal::CaptureStderr();
    const std::string why = outcome_of_call(options, [&](Socket listener, std::string meeting) {
      ASSERT_TRUE(await(listener.file(), POLLIN, soon()));
      const Socket silent = listener.accept_one();
      silent.write_now(said);
      std::optional<Caller> caller = next_caller(options, std::move(listener), {1, meeting});
      ASSERT_TRUE(caller);
      EXPECT_TRUE(silent.has_left());
      EXPECT_TRUE(caller->answer(kWelcome));
    });
    EXPECT_THAT(why, HasSubstr("rank 1, a: the process has ended"));
    EXPECT_THAT(
        ::testing::internal::GetCapturedStderr(),
        AllOf(HasSubstr("calls rank 1 (at 127.0.0.1:"),
              HasSubstr(said == banner ? "again: it gives no answer" : "again: it says nothing")));
  }
}

// They get no more time than the one visit, whatever they say, and keep no place.
TEST(TcpCalls, StrangersThatSayNothingAreTurnedAwayInTime) {
  constexpr std::size_t kStrangers = 200;
  std::vector<Socket> listeners, strangers;
  listeners.push_back(Socket::listen_on(address("127.0.0.1")));
  const HostAddress here = listeners.front().here();
  const MeetingKey key("token", 0);
  const std::string meeting = random_meeting();
  Reception reception(std::move(listeners), key, {1, meeting}, "test", std::chrono::seconds(1));
  for (std::size_t i = 0; i < kStrangers; ++i) {
    strangers.push_back(Socket::connect_to(here, soon()));
    if (i % 2 == 0) strangers.back().write_now(letter(random_nonce()).substr(0, 5 + i % 20));
  }
  auto right = std::async(std::launch::async, [&] {
    return FakeCaller(here, "token", "2 3 1000 a", cat(" 1 ", meeting)).answer();
  });
  const std::optional<Caller> caller = reception.next(soon());
  ASSERT_TRUE(caller);
  EXPECT_TRUE(caller->answer(kWelcome));
  EXPECT_EQ(right.get(), "welcome");
  while (reception.visit_end() != Deadline::max())
    EXPECT_FALSE(reception.next(reception.visit_end()));
  for (const Socket& stranger : strangers) EXPECT_TRUE(stranger.has_left());
}

// 200 at once at both of two processes that have yet to connect to each other.
TEST(TcpCalls, ProcessesConnectAmongStrangers) {
  constexpr int kStrangers = 200;
  const TcpGroupOptions options = test::local_processes(3);
  std::vector<std::future<void>> processes;
  std::promise<void> met;
  const std::shared_future<void> go = met.get_future();
  for (int rank = 0; rank < 3; ++rank)
    processes.push_back(std::async(std::launch::async, [&, rank] {
      const auto group = connect_tcp(of_rank(options, rank));
      go.wait();
      std::byte in{}, out{static_cast<unsigned char>(rank)};
      std::vector<GroupMessage> messages{{3 - rank, 5, {&in, 1}}, {3 - rank, 5, {&out, 1}}};
      if (rank > 0) {
        group->receive(messages[0]);
        group->send(messages[1]);
        finish(*group, messages);
        EXPECT_EQ(static_cast<int>(in), 3 - rank);
      }
      EXPECT_EQ(gather(*group, "x").size(), 3u);
    }));
  std::vector<HostAddress> doors;
  while (doors.size() != 2) {  // rank 0 stops to listen once all have met
    doors = listening();
    std::erase(doors, rank_0_of(options));
  }
  std::vector<Socket> strangers;
  for (int i = 0; i < kStrangers; ++i)
    for (const HostAddress& door : doors) {
      strangers.push_back(Socket::connect_to(door, soon()));
      if (i % 2 == 0) strangers.back().write_now(random_nonce());
    }
  met.set_value();
  for (auto& process : processes) process.get();
}

}  // namespace tcp_calls_test
}  // namespace belfry
