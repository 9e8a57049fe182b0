#include "belfry/framework/group/tcp_group.h"

#include <fstream>
#include <numeric>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/framework/base/error.h"
#include "belfry/framework/group/tags.h"
#include "belfry/tests/framework/framework_test_support.h"
#include "belfry/tests/support/process_threads.h"

namespace belfry {
namespace tcp_group_test {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Runs body(group) in a thread for each process.
void run(int size, const std::function<void(ProcessGroup&)>& body) {
  TcpGroupOptions options = test::local_processes(size);
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < size; ++rank) {
    options.rank = rank;
    threads.emplace_back([=] { body(*connect_tcp(options)); });
  }
}

std::span<std::byte> bytes_of(std::vector<int>& values) {
  return std::as_writable_bytes(std::span(values));
}

// Sockets are opened when processes need each other.
TEST(TcpGroup, EveryProcessReachesEveryOther) {
  for (const int size : {1, 2, 3, 5}) {
    run(size, [&](ProcessGroup& group) {
      EXPECT_EQ(group.size(), size);
      std::vector<std::vector<int>> in(static_cast<std::size_t>(size)), out = in;
      std::vector<GroupMessage> messages;
      for (int r = 0; r < size; ++r) {
        if (r == group.rank()) continue;
        const auto at = static_cast<std::size_t>(r);
        in[at].resize(1000);
        out[at].assign(1000, group.rank() * 100 + r);
        messages.push_back({r, 7, bytes_of(in[at])});
        messages.push_back({r, 7, bytes_of(out[at])});
      }
      for (std::size_t i = 0; i < messages.size(); ++i)
        i % 2 == 0 ? group.receive(messages[i]) : group.send(messages[i]);
      finish(group, messages);
      in[static_cast<std::size_t>(group.rank())].assign(1000, group.rank() * 101);
      for (int r = 0; r < size; ++r)
        EXPECT_EQ(in[static_cast<std::size_t>(r)], std::vector(1000, r * 100 + group.rank()));
    });
  }
}

// Messages of several tags are larger than the system's buffers. The receiver asks for them in
// another order than they are sent, and before or after they arrive.
TEST(TcpGroup, MessagesFindTheirTags) {
  run(2, [](ProcessGroup& group) {
    constexpr int kSize = 1 << 20, kTags = 4;
    std::vector<std::vector<int>> tensors(kTags);
    std::vector<GroupMessage> messages(kTags);
    for (int i = 0; i < kTags; ++i) {
      const int tag = group.rank() == 0 ? i : kTags - 1 - i;
      std::vector<int>& tensor = tensors[static_cast<std::size_t>(i)];
      tensor.resize(kSize);
      if (group.rank() == 0) std::iota(tensor.begin(), tensor.end(), tag * kSize);
      messages[static_cast<std::size_t>(i)] = {1 - group.rank(), tag, bytes_of(tensor)};
    }
    for (GroupMessage& message : messages) {
      group.rank() == 0 ? group.send(message) : group.receive(message);
      if (message.tag == 1) std::this_thread::sleep_for(std::chrono::milliseconds(20));
      group.poll();
    }
    finish(group, messages);
    for (std::size_t i = 0; i < kTags; ++i) EXPECT_EQ(tensors[i][5], messages[i].tag * kSize + 5);
  });
}

TEST(TcpGroup, GathersBytesOfAnySize) {
  for (const int size : {1, 2, 4})
    run(size, [&](ProcessGroup& group) {
      const std::string own(static_cast<std::size_t>(group.rank()) * 100000, 'a');
      for (int turn = 0; turn < 3; ++turn) {
        const std::vector<std::string> all = gather(group, own + std::to_string(turn));
        ASSERT_EQ(std::ssize(all), size);
        for (int r = 0; r < size; ++r)
          EXPECT_EQ(all[static_cast<std::size_t>(r)],
                    std::string(static_cast<std::size_t>(r) * 100000, 'a') + std::to_string(turn));
      }
    });
}

TEST(TcpGroup, AnotherNumberOfBytesIsRefused) {
  run(2, [](ProcessGroup& group) {
    std::vector<int> values(group.rank() == 0 ? 10 : 8);
    GroupMessage message{1 - group.rank(), 3, bytes_of(values)};
    if (group.rank() == 0) {
      group.send(message);
      finish(group, {&message, 1});
      return;
    }
    group.receive(message);
    EXPECT_THAT(message_of<CommError>([&] {
                  finish(group, {&message, 1});
                }),
                AllOf(HasSubstr("rank 0, "), HasSubstr("sends 40 bytes where 32 are expected")));
  });
}

TEST(TcpGroup, WhoEndsIsNamed) {
  run(3, [](ProcessGroup& group) {
    if (group.rank() == 2) return;
    std::vector<int> values(10);
    GroupMessage message{2, 3, bytes_of(values)};
    group.receive(message);
    EXPECT_THAT(message_of<CommError>([&] {
                  finish(group, {&message, 1});
                }),
                AllOf(HasSubstr("rank 2, "),
                      HasSubstr(group.rank() == 0 ? "the process has ended"
                                                  : "cannot be reached: cannot connect: Conn")));
  });
}

TEST(TcpGroup, WhoAbortsSaysWhy) {
  run(2, [](ProcessGroup& group) {
    if (group.rank() == 0) return group.end_others("the disk is full");
    std::vector<int> values(10);
    GroupMessage message{0, 3, bytes_of(values)};
    group.receive(message);
    EXPECT_THAT(message_of<CommError>([&] {
                  finish(group, {&message, 1});
                }),
                AllOf(HasSubstr("rank 0, "), HasSubstr("the disk is full")));
  });
}

// Rank 1 asks rank 2, which does not expect it, or both ask each other at once.
TEST(TcpGroup, AnUnexpectedQuestionOpensAConnection) {
  for (const bool both : {false, true})
    run(3, [&](ProcessGroup& group) {
      const int peer = 3 - group.rank();
      const bool asks = group.rank() == 1 || both, is_asked = group.rank() == 2 || both;
      std::vector<int> asked(1), told(1), own{group.rank()};
      GroupMessage question{peer, kAskTag, bytes_of(asked)},
          answer{peer, kAnswerTag, bytes_of(told)};
      GroupMessage ask{peer, kAskTag, bytes_of(own)}, reply{peer, kAnswerTag, bytes_of(own)};
      if (group.rank() > 0) {
        group.receive(question);
        if (asks) group.receive(answer);
        if (asks) group.send(ask);
        if (is_asked) {
          finish(group, {&question, 1});
          EXPECT_EQ(asked[0], peer);
          group.send(reply);
          finish(group, {&reply, 1});
        }
        if (asks) {
          finish(group, {&answer, 1});
          EXPECT_EQ(told[0], peer);
        }
      }
      EXPECT_EQ(gather(group, "x").size(), 3u);
    });
}

// A process that calls rank 0 before rank 0 listens must not get the port of rank 0 as its own.
TEST(TcpGroup, AFreePortIsNoneThatTheSystemGivesToAnySocket) {
  int first = 0, last = 0;
  if (!(std::ifstream("/proc/sys/net/ipv4/ip_local_port_range") >> first >> last) || first < 32'768)
    GTEST_SKIP() << "the system gives other ports than by default";
  for (int i = 0; i < 20; ++i) EXPECT_LT(free_port(), first);
}

TEST(TcpGroup, WhoIsMissingIsNamed) {
  TcpGroupOptions options = test::local_processes(3);
  options.timeout = std::chrono::seconds(1);
  EXPECT_THAT(message_of<CommError>([&] { connect_tcp(options); }),
              HasSubstr("for rank 1, 2 of 3"));
}

TEST(TcpGroup, OthersAreTurnedAway) {
  const TcpGroupOptions first = test::local_processes(2);
  std::jthread right([&] {
    const auto group = connect_tcp(first);
    EXPECT_EQ(gather(*group, "a"), (std::vector<std::string>{"a", "b"}));
  });
  TcpGroupOptions other = first;
  other.rank = 1;
  other.token = "of another run";
  other.timeout = std::chrono::seconds(5);
  EXPECT_THAT(message_of<CommError>([&] { connect_tcp(other); }),
              HasSubstr("does not take this process in"));
  other.token = first.token;
  EXPECT_EQ(gather(*connect_tcp(other), "b"), (std::vector<std::string>{"a", "b"}));
}

TEST(TcpGroup, TwoSizesAreRefusedInBoth) {
  const TcpGroupOptions first = test::local_processes(2);
  const std::string why = "rank 1 on ";
  std::jthread leader([&] {
    EXPECT_THAT(message_of<CommError>([&] { connect_tcp(first); }),
                HasSubstr("was started for 3 processes, rank 0 for 2"));
  });
  TcpGroupOptions other = first;
  other.rank = 1;
  other.size = 3;
  EXPECT_THAT(message_of<CommError>([&] { connect_tcp(other); }),
              HasSubstr("was started for 3 processes, rank 0 for 2"));
}

}  // namespace tcp_group_test
}  // namespace belfry
