// A peer that has passed the token, and sends mutations of right messages. Nothing may crash or
// hang. A mutation may end the run, with an error that names the peer.
#include <array>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/framework/base/error.h"
#include "belfry/framework/group/failure_detector.h"
#include "belfry/framework/group/tags.h"
#include "belfry/tests/framework/group/socket_pairs.h"
#include "belfry/tests/support/mutate.h"

namespace belfry {
namespace mutated_messages_test {

using std::chrono::milliseconds;
using test::Input;
using ::testing::HasSubstr;

constexpr std::size_t kLength = 3000;  // of the messages of steps
constexpr int kStepsOfRound = 8;       // tags of steps

Input message(int tag, const std::string& text) {
  const detail::FrameHead head = test::head_of(tag, text.size(), text);
  Input bytes(sizeof(head) + text.size());
  std::memcpy(bytes.data(), &head, sizeof(head));
  std::memcpy(bytes.data() + sizeof(head), text.data(), text.size());
  return bytes;
}

std::vector<Input> right_messages() {
  const std::string no(8, '\0'), one = "\1" + std::string(7, '\0');
  std::vector<Input> all{
      message(kHeartbeatTag, test::with_check_hash(std::string(48, '\0') + "computes 'fc0'" +
                                                   std::string(1043, '\0'))),
      message(kLeaveTag, "\1"),
      message(kAskTag, one + one),
      message(kAskTag, no + one),
      message(kAnswerTag, "an answer"),
      message(kSizesTag, one),
      message(kContentsTag, "a"),
      message(kClockTag, one),
      message(kEndTag, "the disk is full")};
  for (int tag = 0; tag < kStepsOfRound; ++tag) {
    all.push_back(message(tag, std::string(kLength, 'x')));
    all.push_back(message(tag, ""));
  }
  return all;
}

// The group of one of three processes, with a socket to each of the others.
std::unique_ptr<FailureDetector> one_of_three(int rank, detail::Socket to_first,
                                              detail::Socket to_second) {
  std::vector<detail::Met> met(3);
  detail::Socket* socket = &to_first;
  for (int r = 0; r < 3; ++r) {
    detail::Met& one = met[static_cast<std::size_t>(r)];
    one.host = "host";
    if (r == rank) continue;
    one.socket = std::move(*socket);
    socket = &to_second;
  }
  return std::make_unique<FailureDetector>(
      detail::make_tcp_group(rank, std::move(met),
                             {.most_early = 1 << 20, .to_end = milliseconds(0)}),
      WatchOptions{.beat = milliseconds(0), .most_silent = 0, .stall_warn = {}},
      [](std::uint64_t key, std::uint64_t) {
        return key == 1 ? std::optional(std::vector<std::byte>(10)) : std::nullopt;
      });
}

// Ranks 0 and 2 in one thread. Rank 1 sends to both of them whatever it likes.
class Run {
 public:
  static constexpr int kHostile = 1;

  Run() {
    auto [first, hostile_to_first] = test::socket_pair();
    auto [last, hostile_to_last] = test::socket_pair();
    auto [first_to_last, last_to_first] = test::socket_pair();
    groups_ = {one_of_three(0, std::move(first), std::move(first_to_last)),
               one_of_three(2, std::move(last_to_first), std::move(last))};
    hostile_ = {std::move(hostile_to_first), std::move(hostile_to_last)};
  }
  ~Run() {
    for (const auto& group : groups_) group->fail(std::make_exception_ptr(CommError("over")));
  }
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  void attack(const Input& bytes) const {
    for (const detail::Socket& socket : hostile_) {
      std::ignore = ::send(socket.file(), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
      // Answers and heartbeats must not fill the connection.
      std::array<std::byte, 4096> dropped;
      while (::recv(socket.file(), dropped.data(), dropped.size(), MSG_DONTWAIT) > 0) {
      }
    }
  }
  // Both wait for the hostile process.
  void wait() {
    for (std::size_t g = 0; g < groups_.size(); ++g) {
      if (!awaited_[g].bytes.empty() && !awaited_[g].done) continue;
      memory_[g].resize(kLength);
      awaited_[g] = {kHostile, 0, memory_[g]};
      groups_[g]->receive(awaited_[g]);
    }
    for (const auto& group : groups_) group->poll();
  }
  // Both send to each other, and get what was sent.
  void step(int number) {
    std::array<std::vector<std::byte>, 2> in, out;
    std::array<GroupMessage, 4> messages;
    for (std::size_t g = 0; g < groups_.size(); ++g) {
      in[g].resize(kLength);
      out[g].assign(kLength, static_cast<std::byte>(number + static_cast<int>(g)));
      const int peer = g == 0 ? 2 : 0;
      messages[g] = {peer, number % kStepsOfRound, in[g]};
      messages[2 + g] = {peer, number % kStepsOfRound, out[g]};
      groups_[g]->receive(messages[g]);
      groups_[g]->send(messages[2 + g]);
    }
    for (int turns = 0; !std::ranges::all_of(messages, &GroupMessage::done); ++turns) {
      ASSERT_LT(turns, 1000) << "the run hangs";
      for (const auto& group : groups_) group->poll();
    }
    EXPECT_EQ(in[0], out[1]);
    EXPECT_EQ(in[1], out[0]);
  }

 private:
  std::array<std::vector<std::byte>, 2> memory_;
  std::array<GroupMessage, 2> awaited_;
  std::array<detail::Socket, 2> hostile_;
  std::array<std::unique_ptr<FailureDetector>, 2> groups_;  // of ranks 0 and 2
};

// Throws `count` mutations at runs, and lets each take `move` in between. Counts those that end.
int ended_by(int count, const std::function<void(Run&, int)>& move) {
  test::Mutator mutator(right_messages(), 20'261'128);
  auto run = std::make_unique<Run>();
  int ended = 0;
  for (int i = 0; i < count; ++i) {
    if (i % 20 == 0) run = std::make_unique<Run>();  // some wait for the rest of a long message
    try {
      Input bytes = mutator.next();
      // Half of them come from a peer that means it; the others have changed on the way.
      if (i % 2 == 0) test::seal_frames(std::span(bytes));
      run->attack(bytes);
      move(*run, i);
    } catch (const CommError& error) {
      EXPECT_THAT(error.what(), HasSubstr("rank 1, host")) << "mutation " << i;
      ++ended;
      run = std::make_unique<Run>();
    }
  }
  return ended;
}

void wait(Run& run, int) { run.wait(); }
void step(Run& run, int number) { run.step(number); }

TEST(MutatedMessages, DoNotCrashProcessesThatWait) { EXPECT_GT(ended_by(20'000, wait), 500); }
TEST(MutatedMessages, DoNotCrashProcessesThatTrain) { EXPECT_GT(ended_by(20'000, step), 500); }
TEST(MutatedMessages, LongDoNotCrashProcessesThatWait) {
  EXPECT_GT(ended_by(1'000'000, wait), 25'000);
}
TEST(MutatedMessages, LongDoNotCrashProcessesThatTrain) {
  EXPECT_GT(ended_by(1'000'000, step), 25'000);
}

// What a process gathers from a peer. The peer has said all that it says, and ended.
TEST(MutatedMessages, DoNotCrashProcessesThatGather) {
  const auto words = [](std::vector<std::uint64_t> sizes) {
    return std::string(reinterpret_cast<const char*>(sizes.data()), 8 * sizes.size());
  };
  Input all = message(kSizesTag, words({19}));
  const Input contents = message(kContentsTag, words({1, 2}) + "abb");
  all.insert(all.end(), contents.begin(), contents.end());
  test::Mutator mutator({all, right_messages()[0]}, 1);
  for (int i = 0; i < 20'000; ++i) {
    auto [near, far] = test::socket_pair();
    const int rank = i % 2;
    const auto group = test::one_of_two(rank, std::move(near), {.most_early = 1 << 20});
    Input input = mutator.next();
    test::seal_frames(std::span(input));
    EXPECT_EQ(::send(far.file(), input.data(), input.size(), MSG_NOSIGNAL), std::ssize(input));
    ::shutdown(far.file(), SHUT_WR);
    try {
      EXPECT_EQ(gather(*group, "own").size(), 2u);
    } catch (const CommError& error) {
      EXPECT_THAT(error.what(), HasSubstr(rank == 0 ? "rank 1, host" : "rank 0, host"));
    }
  }
}

}  // namespace mutated_messages_test
}  // namespace belfry
