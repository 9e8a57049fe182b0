// Messages between two processes that have met: what they may send, and how slowly.
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/framework/base/error.h"
#include "belfry/framework/group/failure_detector.h"
#include "belfry/framework/group/tags.h"
#include "belfry/framework/group/tcp_messages_impl.h"
#include "belfry/tests/framework/framework_test_support.h"
#include "belfry/tests/framework/group/socket_pairs.h"

namespace belfry {
namespace tcp_messages_test {

using std::chrono::milliseconds;
using test::Stranger;
using ::testing::AllOf;
using ::testing::HasSubstr;

std::span<std::byte> bytes_of(std::string& text) {
  return std::as_writable_bytes(std::span(text.data(), text.size()));
}

// Rank 0 of two, and somebody in the place of rank 1.
struct Attacked {
  std::pair<detail::Socket, detail::Socket> ends = test::socket_pair();
  Stranger stranger{std::move(ends.second)};
  std::unique_ptr<ProcessGroup> group;

  explicit Attacked(detail::TcpLimits limits = {.to_end = milliseconds(0)})
      : group(test::one_of_two(0, std::move(ends.first), limits)) {}

  std::string error_of_poll() {
    return message_of<CommError>([&] {
      for (int i = 0; i < 100; ++i) group->poll();
    });
  }
};

TEST(TcpMessages, AnEarlyMessageOfAnotherSizeIsRefused) {
  for (const std::size_t size : {std::size_t{1}, std::size_t{4} << 10}) {
    Attacked attacked;
    attacked.stranger.send(3, std::string(size, 'x'));
    EXPECT_FALSE(attacked.group->poll());
    std::string text(5, ' ');
    GroupMessage message{1, 3, bytes_of(text)};
    EXPECT_THAT(message_of<CommError>([&] { attacked.group->receive(message); }),
                AllOf(HasSubstr("rank 1, host: sends "), HasSubstr("bytes where 5 are expected")));
    EXPECT_FALSE(message.done);
    EXPECT_EQ(text, "     ");
  }
}

// It is half there when somebody asks for it.
TEST(TcpMessages, AHalfEarlyMessageOfAnotherSizeIsRefused) {
  Attacked attacked;
  attacked.stranger.send(3, 100, "half");
  attacked.group->poll();
  std::string text(99, ' ');
  GroupMessage message{1, 3, bytes_of(text)};
  EXPECT_THAT(message_of<CommError>([&] { attacked.group->receive(message); }),
              HasSubstr("sends 100 bytes where 99 are expected"));
}

TEST(TcpMessages, AHalfEarlyMessageGoesOnIntoItsPlace) {
  Attacked attacked;
  attacked.stranger.send(test::head_of(3, 8, "halfrest"));
  attacked.stranger.send(std::as_bytes(std::span("half", 4)));
  attacked.group->poll();
  std::string text(8, ' ');
  GroupMessage message{1, 3, bytes_of(text)};
  attacked.group->receive(message);
  EXPECT_EQ(text, "half    ");
  attacked.stranger.send(std::as_bytes(std::span("rest", 4)));
  EXPECT_TRUE(attacked.group->poll());
  EXPECT_TRUE(message.done);
  EXPECT_EQ(text, "halfrest");
}

// Memory comes with bytes, and the head alone costs nothing: the limit is not reached.
TEST(TcpMessages, AnEarlyMessageTakesNoMemoryBeforeItsBytes) {
  Attacked attacked({.most_early = 100'000});
  attacked.stranger.send(3, std::uint64_t{1} << 62, "only this");
  for (int i = 0; i < 10; ++i) EXPECT_NO_THROW(attacked.group->poll());
}

TEST(TcpMessages, EarlyMessagesAreBoundedInSum) {
  Attacked attacked({.most_early = 100'000});
  attacked.stranger.send(3, std::string(40'000, 'x'));
  attacked.stranger.send(4, std::string(40'000, 'x'));
  EXPECT_NO_THROW(attacked.group->poll());
  // One that is taken makes room for another.
  std::string text(40'000, ' ');
  GroupMessage message{1, 3, bytes_of(text)};
  attacked.group->receive(message);
  EXPECT_TRUE(message.done);
  attacked.stranger.send(5, std::string(40'000, 'x'));
  EXPECT_NO_THROW(attacked.group->poll());
  attacked.stranger.send(6, std::string(40'000, 'x'));
  EXPECT_THAT(attacked.error_of_poll(),
              AllOf(HasSubstr("rank 1, host"), HasSubstr("early"), HasSubstr("tag 6")));
}

// Each costs something, if it is empty, too.
TEST(TcpMessages, EmptyEarlyMessagesAreBounded) {
  Attacked attacked({.most_early = 100'000});
  for (int i = 0; i < 100; ++i) attacked.stranger.send(3, "");
  EXPECT_THAT(attacked.error_of_poll(), HasSubstr("more than this process can keep"));
}

TEST(TcpMessages, TagsThatNobodyHasAreRefused) {
  for (const int tag : {kEndTag + 1, 1 << 20, -1}) {
    Attacked attacked;
    attacked.stranger.send(tag, "x");
    EXPECT_THAT(attacked.error_of_poll(), HasSubstr("rank 1, host: sends what is no message"));
  }
}

// A frame continues the message that the one before began.
TEST(TcpMessages, AFrameOfAnotherMessageIsRefused) {
  Attacked attacked;
  constexpr std::size_t kFrame = detail::TcpPeer::kFrameBytes;
  attacked.stranger.send(test::head_of(3, kFrame + 10, std::string(kFrame, 'x')));
  const std::string more(64 << 10, 'x');
  for (int i = 0; i < 4; ++i) {
    attacked.stranger.send(std::as_bytes(std::span(more)));
    attacked.group->poll();
  }
  attacked.stranger.send(4, detail::TcpPeer::kFrameBytes + 10, "0123456789");
  EXPECT_THAT(attacked.error_of_poll(), HasSubstr("sends what is no message"));
}

// The sender flips one bit after it has taken the hashes.
TEST(TcpMessages, ABitThatChangesOnTheWayIsNoticed) {
  const std::string text = "seven.";
  const detail::FrameHead head = test::head_of(3, text.size(), text);
  std::vector<std::byte> frame(sizeof(head) + text.size());
  std::memcpy(frame.data(), &head, sizeof(head));
  std::memcpy(frame.data() + sizeof(head), text.data(), text.size());
  for (std::size_t bit = 0; bit < 8 * frame.size(); ++bit) {
    Attacked attacked;
    frame[bit / 8] ^= std::byte{1} << bit % 8;
    attacked.stranger.send(frame);
    frame[bit / 8] ^= std::byte{1} << bit % 8;
    EXPECT_THAT(attacked.error_of_poll(),
                AllOf(HasSubstr("rank 1, host: the check hash of"), HasSubstr("to rank 0")))
        << bit;
  }
}

TEST(TcpMessages, AChangedFrameIsNamed) {
  constexpr std::size_t kFrame = detail::TcpPeer::kFrameBytes;
  const std::string first(kFrame, 'x'), rest(10, 'y');
  Attacked attacked;
  std::string text(kFrame + 10, ' ');
  GroupMessage message{1, 3, bytes_of(text)};
  attacked.group->receive(message);
  std::jthread sender([&] {  // the connection cannot hold it
    attacked.stranger.send(3, kFrame + 10, first);
    attacked.stranger.send(test::head_of(3, kFrame + 10, rest));
    attacked.stranger.send(std::as_bytes(std::span("yyyyyzyyyy", 10)));
  });
  EXPECT_THAT(
      message_of<CommError>([&] {
        finish(*attacked.group, {&message, 1});
      }),
      AllOf(HasSubstr("rank 1, host: the check hash of a message of 262154 bytes (tag 3, at "
                      "byte 262144) does not fit"),
            HasSubstr("on its way to rank 0")));
  EXPECT_FALSE(message.done);
}

TEST(TcpMessages, TheReasonOfAnEndHasNoControlCharacters) {
  Attacked attacked;
  attacked.stranger.send(kEndTag, "\x1b[2Jgone\nfor good");
  EXPECT_THAT(attacked.error_of_poll(), HasSubstr("rank 1, host: ?[2Jgone\nfor good"));
}

TEST(TcpMessages, AReasonOfAnEndThatIsTooLargeIsRefused) {
  Attacked attacked;
  attacked.stranger.send(kEndTag, std::uint64_t{1} << 40, "x");
  EXPECT_THAT(attacked.error_of_poll(), HasSubstr("sends what is no message"));
}

// A process announces any size to gather() and collect().
TEST(TcpMessages, TextsOfImpossibleSizesAreRefused) {
  for (const std::uint64_t size : {~std::uint64_t{0}, std::uint64_t{1} << 40}) {
    Attacked attacked;
    attacked.stranger.send(kSizesTag,
                           std::string(reinterpret_cast<const char*>(&size), sizeof(size)));
    EXPECT_THAT(message_of<CommError>([&] { gather(*attacked.group, "own"); }),
                AllOf(HasSubstr("rank 1, host: announces a text of"), HasSubstr("bytes")));
    EXPECT_FALSE(attacked.group->poll());  // what gather() has posted is forgotten
  }
}

TEST(TcpMessages, TextsThatDoNotAddUpAreRefused) {
  const auto words = [](std::vector<std::uint64_t> sizes) {
    return std::string(reinterpret_cast<const char*>(sizes.data()), 8 * sizes.size());
  };
  // The sizes of two texts, and what should be the texts.
  for (const std::string& all : {std::string("short"), words({1, ~std::uint64_t{0}}) + "ab",
                                 words({1, 2}) + "ab", words({1, 0}) + "ab"}) {
    auto [near, far] = test::socket_pair();
    const std::unique_ptr<ProcessGroup> group = test::one_of_two(1, std::move(near));
    const Stranger stranger(std::move(far));
    stranger.send(kSizesTag, words({all.size()}));
    stranger.send(kContentsTag, all);
    EXPECT_THAT(message_of<CommError>([&] { gather(*group, "own"); }),
                HasSubstr("rank 0, host: sends texts whose sizes are wrong"));
  }
}

// Heartbeats with any content. The text of what a process does may lack its end.
TEST(TcpMessages, ASignWithoutAnEndIsShown) {
  Attacked attacked;
  FailureDetector group(std::move(attacked.group), {.most_silent = 0});
  attacked.stranger.send(kHeartbeatTag,
                         test::with_check_hash(std::string(48, '\0') + std::string(224, '\x07') +
                                               std::string(833, '\0')));
  group.poll();
  EXPECT_THAT(group.heartbeats().describe(1), HasSubstr(": " + std::string(223, '?') + " for "));
  group.end_others("that was all");
}

// Else it might blame other processes.
TEST(TcpMessages, ADamagedHeartbeatIsRefused) {
  Attacked attacked;
  FailureDetector group(std::move(attacked.group), {.most_silent = 0});
  attacked.stranger.send(kHeartbeatTag, std::string(1113, '\x07'));
  EXPECT_THAT(message_of<CommError>([&] {
                for (int i = 0; i < 100; ++i) group.poll();
              }),
              HasSubstr("rank 1, host: sends a damaged heartbeat"));
}

TEST(FailureDetector, WhatFailsToBePostedFailsTheGroup) {
  Attacked attacked;
  FailureDetector group(std::move(attacked.group), {.most_silent = 0});
  attacked.stranger.send(3, "long");
  group.poll();
  std::string text(3, ' '), other(3, ' ');
  GroupMessage message{1, 3, bytes_of(text)}, waits{1, 4, bytes_of(other)};
  group.receive(waits);
  EXPECT_THROW(group.receive(message), CommError);
  EXPECT_TRUE(group.failure());
  // Nothing is written into messages any more.
  attacked.stranger.send(4, "abc");
  group.beat();
  EXPECT_FALSE(waits.done);
  EXPECT_EQ(other, "   ");
}

// Two processes with a slow link between them. Every look at a group is a beat, so no clock counts.
class SlowLinks : public ::testing::Test {
 protected:
  static constexpr int kMostSilent = 20;

  std::unique_ptr<FailureDetector> watched(std::size_t rank) {
    return std::make_unique<FailureDetector>(
        test::one_of_two(static_cast<int>(rank), std::move(ends_[rank])),
        WatchOptions{.beat = milliseconds(0), .most_silent = kMostSilent, .stall_warn = {}});
  }
  // Each process looks once, and so many bytes cross the link.
  void turn(std::size_t bytes) {
    for (const auto& group : groups_) group->poll();
    link_.carry(bytes);
  }
  // Rank 0 begins to send a message of so many bytes.
  void begin(std::size_t size) {
    out_.assign(size, 'x');
    in_.assign(size, ' ');
    sent_ = {1, 3, bytes_of(out_)};
    received_ = {0, 3, bytes_of(in_)};
    groups_[0]->send(sent_);
    groups_[1]->receive(received_);
  }
  // Both leave in one thread, so they do not wait for each other.
  void TearDown() override {
    for (const auto& group : groups_) group->fail(std::make_exception_ptr(CommError("over")));
  }

  std::string out_, in_;
  GroupMessage sent_, received_;
  test::SlowLink link_;
  std::array<detail::Socket, 2> ends_ = link_.take_ends();
  std::array<std::unique_ptr<FailureDetector>, 2> groups_{watched(0), watched(1)};
};

TEST_F(SlowLinks, AMessageThatTakesItsTimeEndsNoRun) {
  begin(4 << 20);
  int turns = 0;
  for (; !received_.done && turns < 100'000; ++turns) ASSERT_NO_THROW(turn(8 << 10));
  EXPECT_GT(turns, 10 * kMostSilent);  // else the link was not slow
  EXPECT_EQ(in_, out_);
}

// Heartbeats say that the sender has left before its last message is there.
TEST_F(SlowLinks, TheLastMessageOfAProcessThatHasLeftMayTakeItsTime) {
  begin(4 << 20);
  groups_[0]->heartbeats().leave();
  int late = 0;
  for (int turns = 0; !received_.done && turns < 100'000; ++turns) {
    ASSERT_NO_THROW(turn(8 << 10));
    late = groups_[1]->heartbeats().intervals_since_left(0);
  }
  EXPECT_GT(late, 2 * kMostSilent);  // else it did not say so before
  EXPECT_EQ(in_, out_);
}

// The receiver hears of what the sender does while the message is on its way.
TEST_F(SlowLinks, HeartbeatsOvertakeLargeMessages) {
  begin(64 << 20);
  turn(8 << 10);
  groups_[0]->heartbeats().tell([] { return "computes 'fc0'"; });
  const auto heard = [&] {
    return groups_[1]->heartbeats().describe(0).find("computes 'fc0'") != std::string::npos;
  };
  std::size_t carried = 0;
  for (; !heard() && carried < out_.size(); carried += 64 << 10) turn(64 << 10);
  EXPECT_TRUE(heard());
  EXPECT_LT(carried, out_.size() / 8);
  EXPECT_FALSE(received_.done);
}

TEST_F(SlowLinks, ALinkThatCarriesNothingIsNoticed) {
  EXPECT_THAT(message_of<CommError>([&] {
                for (int i = 0; i < 10 * kMostSilent; ++i) turn(0);
              }),
              HasSubstr("no heartbeat for"));
}

// A process that has half sent a message says why it ends; the rest of a frame goes first.
TEST(TcpMessages, AnEndPassesAMessageThatIsHalfSent) {
  test::SlowLink link;
  auto [first, second] = link.take_ends();
  const auto sender = test::one_of_two(0, std::move(first), {.to_end = milliseconds(0)});
  FailureDetector receiver(test::one_of_two(1, std::move(second)), {.most_silent = 0});
  auto out = std::make_unique<std::string>(64 << 20, 'x');
  std::string in(out->size(), ' ');
  GroupMessage sent{1, 3, bytes_of(*out)}, received{0, 3, bytes_of(in)};
  sender->send(sent);
  receiver.receive(received);
  for (int i = 0; i < 10; ++i) {
    sender->poll();
    link.carry(10'000);
    receiver.poll();
  }
  sender->forget_messages();
  out.reset();  // the message is gone, too
  EXPECT_THAT(message_of<StallError>([&] {
                for (int i = 0; i < 1000; ++i) {
                  sender->end_others(
                      reason_of({.kind = ErrorKind::kStalled, .why = "node 'Sum' has waited"}));
                  link.carry(10'000);
                  receiver.poll();
                }
              }),
              AllOf(HasSubstr("rank 0, host"), HasSubstr("node 'Sum' has waited")));
  EXPECT_FALSE(received.done);
}

TEST(FailureDetector, AMistakeInOneProcessIsOneInAll) {
  Attacked attacked;
  FailureDetector group(std::move(attacked.group), {.most_silent = 0});
  attacked.stranger.send(kEndTag, reason_of({.is_mistake = true, .why = "--seed=x is no number"}));
  EXPECT_THAT(message_of<MistakeError>([&] {
                for (int i = 0; i < 100; ++i) group.poll();
              }),
              AllOf(HasSubstr("rank 1, host"), HasSubstr("--seed=x is no number")));
}

// The process needs the others no more, but they need its parts for long after it has left.
TEST(FailureDetector, AProcessThatHasLeftServesParts) {
  test::TwoGroups two;
  constexpr int kAnswersAfter = 200;
  int asked = 0;
  const WatchOptions options{.beat = milliseconds(0), .most_silent = 0, .stall_warn = {}};
  std::jthread leaver([&, group = std::move(two.groups[1])]() mutable {
    const FailureDetector leaves(std::move(group), options, [&](std::uint64_t, std::uint64_t) {
      return ++asked < kAnswersAfter ? std::optional<std::vector<std::byte>>{}
                                     : std::vector<std::byte>(3, std::byte{7});
    });
  });
  FailureDetector stays(std::move(two.groups[0]), options);
  std::vector<std::byte> part(3);
  const std::vector<std::span<std::byte>> parts{{}, part};
  EXPECT_NO_THROW(fetch_parts(stays, 1, 1, parts));
  EXPECT_EQ(part, std::vector<std::byte>(3, std::byte{7}));
  EXPECT_GE(asked, kAnswersAfter);
}

}  // namespace tcp_messages_test
}  // namespace belfry
