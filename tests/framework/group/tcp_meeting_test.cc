// How processes find each other, and what others can do meanwhile.
#include <atomic>
#include <cstring>
#include <future>
#include <optional>
#include <random>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <unistd.h>

#include "belfry/tests/framework/framework_test_support.h"
#include "belfry/tests/framework/group/tcp_meeting_support.h"
#include "belfry/tests/support/process_threads.h"

namespace belfry {
namespace tcp_meeting_test {

using namespace tcp_meeting_support;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

// Takes one call as rank 0 would, and answers with this table.
void lead_with(const TcpGroupOptions& options, const std::string& table) {
  const MeetingKey key(options.token, options.round);
  Reception reception(listen_at(options.address, options.port), key, {0, random_meeting()}, "test");
  const std::optional<Caller> caller = reception.next(soon());
  ASSERT_TRUE(caller);
  EXPECT_TRUE(caller->answer("welcome"));
  caller->socket.write_all(letter(caller->seal.close("table", table)), soon());
  while (!caller->socket.has_left()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
}

TEST(TcpMeeting, ARankThatCannotBeEndsAllAndIsNamed) {
  for (const auto& [rank, why] : {std::pair(1'000'000, "says that it is rank 1000000 of 3"),
                                  {3, "says that it is rank 3 of 3"},
                                  {0, "says that it is rank 0 of 3"},
                                  {-5, "says that it is rank -5 of 3"}}) {
    const TcpGroupOptions options = test::local_processes(3);
    auto first = started(options);
    auto second = started(of_rank(options, 1));
    listening(2);
    FakeCaller caller(rank_0_of(options), options.token, cat(rank, " 3 1000 a"));
    EXPECT_THAT(caller.answer(), AllOf(HasSubstr("end a process on a"), HasSubstr(why)));
    EXPECT_THAT(first.get(), HasSubstr(why));
    EXPECT_THAT(second.get(), HasSubstr(why));
  }
}

// It would else try again until its time is up, without a reason.
TEST(TcpMeeting, WhoIsAboutToCallIsToldOfTheEnd) {
  const TcpGroupOptions options = test::local_processes(3);
  auto first = started(options);
  listening(1);
  Socket socket = Socket::connect_to(rank_0_of(options), soon());
  const Banner banner = Banner::read(read_letter(socket, kMostBanner));
  FakeCaller wrong(rank_0_of(options), options.token, "7 3 1000 a");
  EXPECT_THAT(wrong.answer(), HasSubstr("says that it is rank 7 of 3"));
  const std::string nonce = random_nonce();
  const Seal seal(MeetingKey(options.token, 0), banner.nonce, nonce);
  socket.write_all(letter(Call{nonce, 0, seal.close("card", "1 3 1000 b" + kToRankZero)}.body()),
                   soon());
  EXPECT_THAT(seal.open("answer", read_letter(socket, kMostAnswer)).value(),
              HasSubstr("says that it is rank 7 of 3"));
  EXPECT_THAT(first.get(), HasSubstr("says that it is rank 7 of 3"));
}

TEST(TcpMeeting, ARankThatIsThereTwiceEndsAllAndIsNamed) {
  const TcpGroupOptions options = test::local_processes(3);
  auto first = started(options);
  listening(1);
  FakeCaller one(rank_0_of(options), options.token, "2 3 1000 a");
  EXPECT_EQ(one.answer(), "welcome");
  FakeCaller two(rank_0_of(options), options.token, "2 3 1000 b");
  const std::string why = "two processes say that they are rank 2, on a and on b";
  EXPECT_EQ(two.answer(), "end " + why);
  EXPECT_EQ(first.get(), why);
}

// It has the token, so it is of the run, but perhaps of another version.
TEST(TcpMeeting, ACardThatCannotBeReadIsToldToBothSides) {
  const TcpGroupOptions options = test::local_processes(2);
  ::testing::internal::CaptureStderr();
  auto leader = started(options);
  listening(1);
  for (const char* const card : {"", "1 2 1000 a more", "1 2 1000", "1 2 70000 a", "one 2 1000 a",
                                 "1 99999999999999999999 1000 a", "\x01\x02\x03"}) {
    FakeCaller caller(rank_0_of(options), options.token, card);
    EXPECT_THAT(caller.answer(),
                AllOf(HasSubstr("end rank 0 on "), HasSubstr(" cannot read who calls: a greeting "),
                      HasSubstr("the same version of Belfry")));
  }
  EXPECT_EQ(outcome(of_rank(options, 1)), "");
  EXPECT_EQ(leader.get(), "");
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              AllOf(HasSubstr("turned away a process from 127.0.0.1, which has the token"),
                    HasSubstr("a greeting has no card"), HasSubstr("same version of Belfry")));
}

// It may have been started again, and then comes again.
TEST(TcpMeeting, ARankThatHasLeftMayComeAgain) {
  const TcpGroupOptions options = test::local_processes(3);
  auto leader = started(options);
  listening(1);
  {
    FakeCaller gone(rank_0_of(options), options.token, "1 3 1000 a");
    EXPECT_EQ(gone.answer(), "welcome");
  }
  auto second = started(of_rank(options, 1));
  EXPECT_EQ(outcome(of_rank(options, 2)), "");
  EXPECT_EQ(second.get(), "");
  EXPECT_EQ(leader.get(), "");
}

// Somebody calls rank 1 with ranks that cannot be, or are connected already.
TEST(TcpMeeting, AFollowerTurnsAwayRanksThatCannotBe) {
  const TcpGroupOptions options = test::local_processes(4);
  auto leader = started(options);
  listening(1);
  auto second = started(of_rank(options, 1));
  listening(2);
  HostAddress port_of_second = rank_0_of(options);
  for (const HostAddress& at : listening(2))
    if (at.port() != options.port) port_of_second = at;
  FakeCaller third(rank_0_of(options), options.token, cat("2 4 1000 a"));
  const Answer welcome = third.heard();
  EXPECT_EQ(welcome.text, "welcome");
  FakeCaller fourth(rank_0_of(options), options.token, cat("3 4 1000 a"));
  EXPECT_EQ(fourth.answer(), "welcome");
  const std::string to_second = cat(" 1 ", welcome.from.meeting);
  FakeCaller right(port_of_second, options.token, "2 4 1000 a", to_second);
  EXPECT_EQ(right.answer(), "welcome");
  for (const char* const rank : {"1000000", "2", "1", "0", "-5", "4"}) {
    FakeCaller wrong(port_of_second, options.token, cat(rank, " 4 1000 a"), to_second);
    EXPECT_THAT(wrong.answer(), HasSubstr(cat("expects no call of rank ", rank)));
  }
  FakeCaller wrong_size(port_of_second, options.token, "3 5 1000 a", to_second);
  EXPECT_THAT(wrong_size.answer(), HasSubstr("end rank 1 on "));
  FakeCaller last(port_of_second, options.token, "3 4 1000 a", to_second);
  EXPECT_EQ(last.answer(), "welcome");
  for (FakeCaller* const fake : {&third, &fourth, &right, &last}) fake->socket = Socket();
  EXPECT_THAT(leader.get(), HasSubstr("rank 2, a: "));
  EXPECT_THAT(second.get(), HasSubstr("rank 0, "));
}

TEST(TcpMeeting, ATableThatCannotBeIsRefused) {
  for (const std::string table :
       {"", "- 0 a\n", "- 0 a\n127.0.0.1 1000 b\n", "- 0 a\n127.0.0.1 0 b\n127.0.0.1 1 c\n",
        "- 0 a\n127.0.0.1 70000 b\n127.0.0.1 1 c\n", "- 0 a\n127.0.0.1 -1 b\n127.0.0.1 1 c\n",
        "- 0 a\nexample/x 1000 b\n127.0.0.1 1 c\n", "- 0 a\n127.0.0.1 1000\n127.0.0.1 1 c\n",
        "- 0 a\n127.0.0.1 1000 b\n127.0.0.1 1 c\n127.0.0.1 2 d\n",
        "- 0 a\n127.0.0.1 99999999999999999999 b\n127.0.0.1 1 c\n"}) {
    const TcpGroupOptions options = test::local_processes(3);
    auto second = started(of_rank(options, 2));
    lead_with(options, table);
    EXPECT_THAT(second.get(), HasSubstr("a greeting has no ")) << table;
  }
}

TEST(TcpMeeting, AnAddressOfTheTableIsNumbers) {
  const TcpGroupOptions options = test::local_processes(3);
  auto second = started(of_rank(options, 2));
  lead_with(options, "- 0 a\nexample.org 1000 b\n127.0.0.1 1 c\n");
  EXPECT_THAT(second.get(), HasSubstr("rank 0 gives an address that is none: example.org"));
}

// Strangers of every kind, until told to stop. Some are kept open.
class Strangers {
 public:
  int call(const HostAddress& where) try {
    const int kind = static_cast<int>(random_() % 9);
    Socket socket = Socket::connect_to(where, soon());
    if (kind == 1) reset(socket);
    if (kind == 2) say(socket, "GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    if (kind == 3) say(socket, std::string("Belfry5\n\0\1\0\0", 12) + "half of a greeting");
    if (kind == 4) say(socket, std::string("Belfry5\n\xff\xff\xff\xff", 12));
    if (kind == 5) say(socket, random_nonce());
    const std::string call =
        letter(random_nonce() + "0\n" + random_nonce() + random_nonce() + "1 5 1000 a 0 -");
    if (kind == 6) say(socket, call);
    if (kind == 8) say(socket, call.substr(0, random_() % call.size()));
    if (kind == 7 || kind == 8 || kind == 3) open_.push_back(std::move(socket));
    if (open_.size() > 400) open_.erase(open_.begin(), open_.begin() + 200);
    return 1;
  } catch (const CommError&) {
    return 0;
  }

 private:
  static void say(const Socket& socket, const std::string& text) { socket.write_now(text); }
  static void reset(const Socket& socket) {
    const linger at_once{1, 0};
    ::setsockopt(socket.file(), SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
  }

  std::mt19937 random_{7};
  std::vector<Socket> open_;
};

TEST(TcpMeeting, StrangersHoldUpNobody) {
  constexpr int kProcesses = 5, kStrangers = 4'000;
  const TcpGroupOptions options = test::local_processes(kProcesses);
  std::vector<std::future<std::string>> all;
  for (int rank = 0; rank + 1 < kProcesses; ++rank) all.push_back(started(of_rank(options, rank)));
  Strangers strangers;
  const std::vector<HostAddress> ports = listening(kProcesses - 1);
  int reached = 0;
  for (int i = 0; i < kStrangers; ++i)
    reached += strangers.call(ports[static_cast<std::size_t>(i) % ports.size()]);
  EXPECT_GT(reached, kStrangers / 2);
  std::atomic<bool> over = false;
  std::jthread more([&] {
    while (!over)
      for (const HostAddress& at : listening()) strangers.call(at);
  });
  all.push_back(started(of_rank(options, kProcesses - 1)));
  for (auto& one : all) EXPECT_EQ(one.get(), "");
  over = true;
}

TEST(TcpMeeting, StrangersDuringARunHoldUpNobody) {
  constexpr int kStrangers = 2'000;
  const TcpGroupOptions options = test::local_processes(2);
  std::jthread other([&] {
    const auto group = connect_tcp(of_rank(options, 1));
    EXPECT_THAT(gather(*group, "b"), SizeIs(2));
    EXPECT_THAT(gather(*group, "d"), SizeIs(2));
  });
  const auto group = connect_tcp(options);
  EXPECT_THAT(gather(*group, "a"), SizeIs(2));
  const std::vector<HostAddress> ports = listening();
  ASSERT_THAT(ports, SizeIs(1));  // of rank 1
  Strangers strangers;
  int reached = 0;
  for (int i = 0; i < kStrangers; ++i) reached += strangers.call(ports[0]);
  EXPECT_GT(reached, kStrangers / 2);
  EXPECT_EQ(strangers.call(rank_0_of(options)), 0);
  EXPECT_THAT(gather(*group, "c"), SizeIs(2));
}

TEST(TcpMeeting, TheTokenIsNeverSentAndNothingCanBeSaidAgain) {
  TcpGroupOptions options = test::local_processes(2);
  options.token = "a secret of this run";
  std::string said;
  {
    const Socket listener = Socket::listen_on(rank_0_of(options));
    auto second = started(of_rank(options, 1));
    ASSERT_TRUE(await(listener.file(), POLLIN, soon()));
    const Socket caller = listener.accept_one();
    caller.write_all(letter(Banner{random_nonce(), 0}.body()), soon());
    said = read_letter(caller, kMostCall);
    caller.write_all(letter("nobody who has the token"), soon());
    EXPECT_THAT(second.get(), HasSubstr("does not take this process in: it has another token"));
  }
  EXPECT_THAT(said, Not(HasSubstr(options.token)));
  auto leader = started(options);
  listening(1);
  const Socket again = Socket::connect_to(rank_0_of(options), soon());
  read_letter(again, kMostBanner);
  again.write_all(letter(said), soon());
  read_letter(again, kMostAnswer);
  EXPECT_THROW(read_letter(again, kMostAnswer), CommError);  // it is turned away
  EXPECT_EQ(outcome(of_rank(options, 1)), "");
  EXPECT_EQ(leader.get(), "");
}

TEST(TcpMeeting, AProcessOfAnotherStartIsTurnedAway) {
  TcpGroupOptions options = test::local_processes(2);
  options.round = 2;
  auto leader = started(options);
  listening(1);
  TcpGroupOptions old = of_rank(options, 1);
  old.round = 1;
  EXPECT_THAT(outcome(old), HasSubstr("it is of start 2 of the run, this process of start 1"));
  // Rank 0 is the old one, and may soon be another.
  TcpGroupOptions next = of_rank(options, 1);
  next.round = 3;
  next.timeout = std::chrono::milliseconds(300);
  EXPECT_THAT(outcome(next), AllOf(HasSubstr("has not reached rank 0"), HasSubstr("of start 2")));
  EXPECT_EQ(outcome(of_rank(options, 1)), "");
  EXPECT_EQ(leader.get(), "");
}

// Whatever a process says about its start, the seal is of it.
TEST(TcpMeeting, TheStartIsProven) {
  const Seal old(MeetingKey("token", 1), "a", "b"), now(MeetingKey("token", 2), "a", "b");
  EXPECT_FALSE(now.open("card", old.close("card", "1 2 3 a")));
  EXPECT_EQ(now.open("card", now.close("card", "1 2 3 a")), "1 2 3 a");
  EXPECT_FALSE(now.open("answer", now.close("card", "1 2 3 a")));
}

TEST(TcpMeeting, ATokenIsNeededWhereOthersReachThePort) {
  TcpGroupOptions options{.size = 2};
  for (const char* const here : {"127.0.0.1", "localhost", "::1", "127.0.1.1"}) {
    options.address = here;
    EXPECT_FALSE(lacks_token(options)) << here;
  }
  for (const char* const there : {"10.0.0.7", "node1", "0.0.0.0", "::", "localhost.example"}) {
    options.address = there;
    EXPECT_TRUE(lacks_token(options)) << there;
    EXPECT_THAT(message_of<InvalidArgument>([&] { connect_tcp(options); }),
                AllOf(HasSubstr("BELFRY_TOKEN"), HasSubstr("BELFRY_INSECURE=1"), HasSubstr(there)));
  }
  options.insecure = true;
  EXPECT_FALSE(lacks_token(options));
  options = {.size = 2, .address = "node1", .token = "secret"};
  EXPECT_FALSE(lacks_token(options));
}

// The addresses at which three processes listen that meet at `where`.
std::vector<std::string> listeners_at(const std::string& where) {
  TcpGroupOptions options = test::local_processes(3);
  options.address = where;
  auto leader = started(options);
  auto second = started(of_rank(options, 1));
  std::vector<std::string> found;
  for (const HostAddress& at : listening(2)) found.push_back(at.str());
  EXPECT_EQ(outcome(of_rank(options, 2)), "");
  EXPECT_EQ(leader.get(), "");
  EXPECT_EQ(second.get(), "");
  return found;
}

// An address of this machine that others can reach.
std::optional<std::string> outer_address(int family) {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return std::nullopt;
  std::optional<std::string> found;
  for (const ifaddrs* one = list; one; one = one->ifa_next) {
    if (!one->ifa_addr || one->ifa_addr->sa_family != family) continue;
    sockaddr_storage address{};
    std::memcpy(&address, one->ifa_addr,
                family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6));
    const HostAddress here(address);
    if (!here.is_loopback() && here.str().find('%') == std::string::npos) found = here.str();
  }
  ::freeifaddrs(list);
  return found;
}

TEST(TcpMeeting, ProcessesListenWhereTheyMeetAlone) {
  EXPECT_THAT(listeners_at("127.0.0.1"), Each("127.0.0.1"));
  EXPECT_THAT(listeners_at("localhost"), Each(testing::AnyOf("127.0.0.1", "::1")));
  if (const auto outer = outer_address(AF_INET)) {
    EXPECT_THAT(listeners_at(*outer), Each(*outer));
  }
}

TEST(TcpMeeting, ProcessesMeetByIpv6) {
  if (!Socket::listen_on(address("::1"))) GTEST_SKIP() << "this machine has no IPv6";
  EXPECT_THAT(listeners_at("::1"), Each("::1"));
}

// A Debian gives its own name the address 127.0.1.1. Others know the name by another one.
TEST(TcpMeeting, ANameThatMeansThisMachineAloneIsHeardEverywhere) {
  char name[256] = {};
  ::gethostname(name, sizeof(name) - 1);
  std::vector<HostAddress> own;
  try {
    own = look_up(name, 0);
  } catch (const CommError&) {
  }
  if (own.empty() || !std::ranges::any_of(own, &HostAddress::is_loopback))
    GTEST_SKIP() << name << " has another address than 127.x.x.x";
  EXPECT_THAT(listeners_at(name), Each(testing::AnyOf("::", "0.0.0.0")));
}

// Rank 0 sees processes of its own machine come from 127.0.0.1. Those of other machines call them
// at the address of rank 0.
TEST(TcpMeeting, AProcessBesideRankZeroIsCalledWhereRankZeroIs) {
  const Place beside{"127.0.0.1", 1000, "a"}, apart{"10.0.0.9", 2000, "b"};
  const HostAddress other = address("10.0.0.8"), first = address("10.0.0.7", 29500);
  EXPECT_EQ(way_to(beside, other, first), address("10.0.0.7", 1000));
  EXPECT_EQ(way_to(apart, other, first), address("10.0.0.9", 2000));
  const HostAddress here = address("127.0.0.1"), named = address("127.0.1.1", 29500);
  EXPECT_EQ(way_to(beside, here, named), address("127.0.0.1", 1000));
  EXPECT_EQ(way_to(apart, here, named), address("10.0.0.9", 2000));
  EXPECT_EQ(way_to(beside, address("fd00::8"), address("fd00::7", 29500)),
            address("fd00::7", 1000));
  EXPECT_EQ(way_to({"::1", 1000, "a"}, other, first), address("10.0.0.7", 1000));
}

TEST(TcpMeeting, AnAddressOfIpv4IsOneInIpv6Too) {
  EXPECT_EQ(address("::ffff:10.0.0.7", 5), address("10.0.0.7", 5));
  EXPECT_EQ(endpoint(address("fd00::7").str(), 5), "[fd00::7]:5");
  EXPECT_EQ(endpoint("node1", 5), "node1:5");
}

// It may be known soon.
TEST(TcpMeeting, AnUnknownNameIsTriedAgain) {
  TcpGroupOptions options = of_rank(test::local_processes(2), 1);
  options.address = "no-such-host.invalid";
  options.timeout = std::chrono::milliseconds(200);
  EXPECT_THAT(outcome(options),
              AllOf(HasSubstr("has not reached rank 0 at no-such-host.invalid:"),
                    HasSubstr(" in 0.2 s: cannot find the host 'no-such-host.invalid'"),
                    HasSubstr("MASTER_ADDR")));
}

// Nothing that rank 0 calls has this name. Others may know it, so it waits, and says so.
TEST(TcpMeeting, ANameThatRankZeroDoesNotKnowIsTold) {
  TcpGroupOptions options = test::local_processes(2);
  options.address = "no-such-host.invalid";
  options.timeout = std::chrono::milliseconds(200);
  ::testing::internal::CaptureStderr();
  const std::string why = outcome(options);
  const auto named =
      AllOf(HasSubstr("cannot find the host 'no-such-host.invalid': "), HasSubstr("MASTER_ADDR"));
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              AllOf(HasSubstr("rank 0 on "), HasSubstr("it listens at all addresses"), named));
  EXPECT_THAT(why, AllOf(HasSubstr("rank 0 has waited 0.2 s"), named));
  EXPECT_THAT(outcome(of_rank(options, 1)), named);
}

TEST(TcpMeeting, AnEmptyAddressIsRefused) {
  TcpGroupOptions options = test::local_processes(2);
  options.address = "";
  EXPECT_THAT(message_of<InvalidArgument>([&] { connect_tcp(options); }),
              HasSubstr("the address at which the processes meet is empty"));
}

TEST(TcpMeeting, TheLimitOfOpenFilesIsRaisedOrNamed) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  if (before.rlim_max < 2'048) GTEST_SKIP() << "the limit cannot be raised";
  rlimit low = before;
  low.rlim_cur = 256;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &low), 0);
  allow_connections(1'000);
  rlimit raised{};
  ::getrlimit(RLIMIT_NOFILE, &raised);
  EXPECT_EQ(raised.rlim_cur, before.rlim_max);
  if (before.rlim_max < 1'000'000'000) {
    EXPECT_THAT(message_of<CommError>([] { allow_connections(2'000'000'000); }),
                AllOf(HasSubstr("needs 2000000000 connections"), HasSubstr("ulimit -n")));
  }
  ::setrlimit(RLIMIT_NOFILE, &before);
}

}  // namespace tcp_meeting_test
}  // namespace belfry
