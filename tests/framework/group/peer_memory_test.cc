// Processes of one host that read long messages from each other's memory.
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "belfry/framework/base/error.h"
#include "belfry/tests/framework/framework_test_support.h"
#include "belfry/tests/framework/group/socket_pairs.h"

namespace belfry {
namespace peer_memory_test {

using detail::FrameHead;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr std::size_t kLong = 3 << 20;
const detail::TcpLimits kByMemory{.to_end = std::chrono::milliseconds(0), .by_memory = true};

// Two processes of one host. The test carries what they send to each other.
class PeerMemory : public ::testing::Test {
 protected:
  PeerMemory() {
    for (int i = 0; i < 3; ++i) turn();  // they learn that they can
  }
  void turn() {
    for (const auto& group : groups_) group->poll();
    carried_ += link_.carry(1 << 16);
  }
  // So many bytes have crossed the link when all is done.
  std::size_t carried_until_done(const std::vector<GroupMessage>& messages) {
    carried_ = 0;
    for (int i = 0; i < 1000 && !std::ranges::all_of(messages, &GroupMessage::done); ++i) turn();
    EXPECT_TRUE(std::ranges::all_of(messages, &GroupMessage::done));
    return carried_;
  }

  test::SlowLink link_;
  std::array<detail::Socket, 2> ends_ = link_.take_ends();
  std::array<std::unique_ptr<ProcessGroup>, 2> groups_{
      test::one_of_two(0, std::move(ends_[0]), kByMemory),
      test::one_of_two(1, std::move(ends_[1]), kByMemory)};
  std::size_t carried_ = 0;
  std::vector<std::byte> out_ = std::vector<std::byte>(kLong, std::byte{7});
  std::vector<std::byte> in_ = std::vector<std::byte>(kLong);
};

TEST_F(PeerMemory, ALongMessageDoesNotTravel) {
  for (const bool early : {false, true}) {
    in_.assign(kLong, std::byte{});
    std::vector<GroupMessage> messages{{1, 3, out_}, {0, 3, in_}};
    groups_[0]->send(messages[0]);
    for (int i = 0; early && i < 3; ++i) turn();
    EXPECT_FALSE(messages[0].done);
    groups_[1]->receive(messages[1]);
    EXPECT_LT(carried_until_done(messages), 1000u);
    EXPECT_EQ(in_, out_);
  }
  EXPECT_GE(groups_[1]->received_from(0), 2 * kLong);
}

// Some of them travel, and some do not.
TEST_F(PeerMemory, MessagesOfATagKeepTheirOrder) {
  constexpr std::size_t kSizes[] = {10, kLong, 20, kLong / 2, kLong, 0, 200'000, 5};
  for (const bool early : {false, true}) {
    std::vector<std::vector<std::byte>> out, in;
    std::vector<GroupMessage> messages;
    for (const std::size_t size : kSizes) {
      out.emplace_back(size, static_cast<std::byte>(out.size() + 1));
      in.emplace_back(size);
    }
    for (std::size_t i = 0; i < out.size(); ++i) messages.push_back({1, 3, out[i]});
    for (std::size_t i = 0; i < in.size(); ++i) messages.push_back({0, 3, in[i]});
    for (std::size_t i = 0; i < out.size(); ++i) groups_[0]->send(messages[i]);
    for (int i = 0; early && i < 10; ++i) turn();
    for (std::size_t i = 0; i < in.size(); ++i) {
      groups_[1]->receive(messages[out.size() + i]);
      if (i % 2 == 0) turn();
    }
    carried_until_done(messages);
    EXPECT_EQ(in, out);
  }
}

// They lie in cache then, and the receiver may add them at once.
TEST_F(PeerMemory, AReceiverMayUseBytesAsTheyArrive) {
  for (std::size_t i = 0; i < kLong; ++i) out_[i] = static_cast<std::byte>(i / 4096);
  std::vector<std::byte> used;
  std::size_t calls = 0;
  std::vector<GroupMessage> messages{{1, 3, out_}, {0, 3, in_}};
  messages[1].use = [&](std::size_t from, std::span<const std::byte> some) {
    EXPECT_EQ(from, used.size());
    EXPECT_EQ(some.data(), in_.data()) << "it takes no more memory";
    used.insert(used.end(), some.begin(), some.end());
    ++calls;
  };
  groups_[0]->send(messages[0]);
  groups_[1]->receive(messages[1]);
  carried_until_done(messages);
  EXPECT_EQ(used, out_);
  EXPECT_GT(calls, 1u);
}

TEST_F(PeerMemory, ABitThatChangesOnTheWayIsNoticed) {
  std::vector<std::byte> others = out_;
  std::vector<GroupMessage> messages{{1, 3, others}, {1, 4, out_}, {0, 3, in_}, {0, 4, in_}};
  for (GroupMessage& sent : std::span(messages).first(2)) groups_[0]->send(sent);
  for (int i = 0; i < 3; ++i) turn();
  out_[kLong - 5] ^= std::byte{16};
  for (GroupMessage& received : std::span(messages).last(2)) groups_[1]->receive(received);
  EXPECT_THAT(message_of<CommError>([&] {
                for (int i = 0; i < 20; ++i) turn();
              }),
              AllOf(HasSubstr("rank 0, host: the check hash of a message of 3145728 bytes (tag 4) "
                              "does not fit"),
                    HasSubstr("on its way to rank 1; see to the memory")));
  EXPECT_TRUE(messages[2].done) << "its bits are right";
  EXPECT_FALSE(messages[3].done);
}

// Its memory may hold something else by then.
TEST_F(PeerMemory, AMessageThatWasGivenUpIsNotTaken) {
  std::vector<GroupMessage> messages{{1, 3, out_}, {0, 3, in_}};
  groups_[0]->send(messages[0]);
  for (int i = 0; i < 3; ++i) turn();
  groups_[0]->forget_messages();
  out_.assign(kLong, std::byte{9});
  groups_[1]->receive(messages[1]);
  for (int i = 0; i < 3; ++i) turn();
  EXPECT_FALSE(messages[1].done);
  groups_[0]->end_others("the disk is full");
  EXPECT_THAT(message_of<CommError>([&] {
                for (int i = 0; i < 10; ++i) turn();
              }),
              HasSubstr("rank 0, host: the disk is full"));
}

TEST_F(PeerMemory, AnOfferOfAnotherSizeIsRefused) {
  GroupMessage sent{1, 3, out_}, received{0, 3, std::span(in_).first(kLong - 1)};
  groups_[0]->send(sent);
  for (int i = 0; i < 3; ++i) turn();
  EXPECT_THAT(message_of<CommError>([&] { groups_[1]->receive(received); }),
              HasSubstr("rank 0, host: sends 3145728 bytes where 3145727 are expected"));
}

// Rank 0 of two on one host, and somebody in the place of rank 1.
struct Attacked {
  std::pair<detail::Socket, detail::Socket> ends = test::socket_pair();
  test::Stranger stranger{std::move(ends.second)};
  std::unique_ptr<ProcessGroup> group = test::one_of_two(0, std::move(ends.first), kByMemory);

  void show(const detail::PassPlace& place) const {
    stranger.send(test::sealed(
        {.kind = FrameHead::kPass, .tag = place.pid, .word = place.word, .place = place.address}));
  }
  // The next frame that rank 0 sends.
  FrameHead heard() const {
    FrameHead head;
    group->poll();
    return ::recv(stranger.socket().file(), &head, sizeof(head), MSG_DONTWAIT) == sizeof(head)
               ? head
               : FrameHead{.tag = ~0u};
  }
};

TEST_F(PeerMemory, ItTakesAPassThatIsThere) {
  Attacked attacked;
  EXPECT_EQ(attacked.heard().kind, FrameHead::kPass);
  const detail::MemoryPass pass;
  attacked.show(pass.place());
  EXPECT_EQ(attacked.heard().kind, FrameHead::kReads);
}

// Another process, or none, has this number here. Messages go through TCP.
TEST_F(PeerMemory, ItTakesNoPassThatIsNotThere) {
  const detail::MemoryPass pass;
  detail::PassPlace other = pass.place(), nowhere = other;
  ++other.word;
  nowhere.address = 8;
  for (const detail::PassPlace& place : {other, nowhere}) {
    Attacked attacked;
    EXPECT_EQ(attacked.heard().kind, FrameHead::kPass);
    attacked.show(place);
    EXPECT_EQ(attacked.heard().tag, ~0u);
    std::vector<std::byte> bytes(detail::TcpPeer::kLeastOffer);
    GroupMessage sent{1, 3, bytes};
    attacked.group->send(sent);
    EXPECT_EQ(attacked.heard().kind, FrameHead::kBytes);
  }
}

TEST_F(PeerMemory, OffersOfStrangersAreRefused) {
  const FrameHead offer{.kind = FrameHead::kOffer, .tag = 3, .size = 5, .place = 4096};
  const FrameHead taken{.kind = FrameHead::kTaken, .tag = 3, .size = 5};
  for (const FrameHead& head : {offer, taken}) {
    Attacked attacked;
    attacked.stranger.send(test::sealed(head));
    EXPECT_THAT(message_of<CommError>([&] { attacked.group->poll(); }),
                HasSubstr("rank 1, host: sends what is no message"));
  }
}

// The peer offers memory that it does not have.
TEST_F(PeerMemory, AnOfferOfNoMemoryIsAnError) {
  Attacked attacked;
  const detail::MemoryPass pass;
  attacked.show(pass.place());
  attacked.group->poll();
  attacked.stranger.send(
      test::sealed({.kind = FrameHead::kOffer, .tag = 3, .size = kLong, .place = 4096}));
  GroupMessage received{1, 3, in_};
  attacked.group->receive(received);
  EXPECT_THAT(message_of<CommError>([&] { attacked.group->poll(); }),
              HasSubstr("rank 1, host: offers memory that cannot be read"));
}

TEST_F(PeerMemory, AProcessThatHasEndedIsNotRead) {
  const detail::MemoryPass pass;  // the child has a copy at the same place
  const pid_t child = fork();
  while (child == 0) pause();
  detail::PassPlace place = pass.place();
  place.pid = static_cast<std::uint32_t>(child);
  std::string why;
  const auto memory = detail::PeerMemory::open(place, &why);
  ASSERT_TRUE(memory) << why;
  EXPECT_TRUE(memory->has_pass());
  EXPECT_TRUE(memory->read(place.address, std::span(in_).first(8)));
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  EXPECT_FALSE(memory->has_pass());
  EXPECT_FALSE(memory->read(place.address, std::span(in_).first(8)));
  EXPECT_FALSE(detail::PeerMemory::open(place, &why));
  EXPECT_EQ(why, "No such process");
}

// As a container's filter does, or Yama between processes that no common parent has started.
void forbid_reading_of_memory() {
  sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_process_vm_readv, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program{std::size(filter), filter};
  prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) _exit(2);
}

TEST(PeerMemoryDeathTest, WhereItIsForbiddenLongMessagesTravel) {
  const auto send_in_a_process = [] {
    forbid_reading_of_memory();
    test::SlowLink link;
    auto [first, second] = link.take_ends();
    const auto sender = test::one_of_two(0, std::move(first), kByMemory),
               receiver = test::one_of_two(1, std::move(second), kByMemory);
    std::vector<std::byte> out(kLong, std::byte{7}), in(kLong);
    GroupMessage sent{1, 3, out}, received{0, 3, in};
    for (int i = 0; i < 3; ++i) {  // they learn that they cannot
      sender->poll();
      receiver->poll();
      link.carry(1 << 16);
    }
    sender->send(sent);
    receiver->receive(received);
    std::size_t carried = 0;
    for (int i = 0; i < 1000 && !received.done; ++i) {
      sender->poll();
      receiver->poll();
      carried += link.carry(1 << 20);
    }
    _exit(received.done && in == out && carried > kLong ? 0 : 1);
  };
  EXPECT_EXIT(send_in_a_process(), ::testing::ExitedWithCode(0),
              "cannot read the memory of rank ., host .Operation not permitted.; messages between "
              "processes of this host go through TCP");
}

}  // namespace peer_memory_test
}  // namespace belfry
