#include "belfry/framework/group/heartbeats.h"

#include <csignal>
#include <cstring>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "belfry/framework/base/check_hash.h"
#include "belfry/framework/group/tags.h"

namespace belfry {
namespace heartbeats_test {

// Rank 0 of two. It keeps what it sends, and a test answers for rank 1.
class OneOfTwo final : public ProcessGroup {
 public:
  int rank() const override { return 0; }
  int size() const override { return 2; }
  const std::string& host(int) const override { return host_; }
  std::string transport() const override { return "test"; }
  const std::vector<int>& connected() const override { return connected_; }
  void send(GroupMessage& message) override {
    sent_.assign(message.bytes.begin(), message.bytes.end());
    message.done = true;
  }
  void receive(GroupMessage& message) override {
    message.done = false;
    if (message.tag == kHeartbeatTag) awaited_ = &message;
  }
  bool poll() override { return false; }
  bool forget_messages() noexcept override { return true; }
  void end_others(const std::string&) noexcept override {}

  // Rank 1, as process `pid`, answers with the heartbeat that rank 0 sent last. `apart`: from
  // another machine, or from a container that has processes of its own with these numbers.
  void answer(std::uint32_t pid, bool apart = false) {
    constexpr std::size_t kMachine = 16;           // where the heartbeat has it
    std::memcpy(sent_.data(), &pid, sizeof(pid));  // its first member
    std::ranges::copy(sent_, awaited_->bytes.begin());
    if (apart) awaited_->bytes[kMachine] ^= std::byte{1};
    const std::uint64_t check =
        check_hash(awaited_->bytes.first(awaited_->bytes.size() - sizeof(std::uint64_t)));
    std::memcpy(&awaited_->bytes[awaited_->bytes.size() - sizeof(check)], &check, sizeof(check));
    awaited_->done = true;
  }

 private:
  const std::string host_ = "here";
  const std::vector<int> connected_{1};
  std::vector<std::byte> sent_;
  GroupMessage* awaited_ = nullptr;
};

// A process that sleeps until it is killed.
struct Child {
  const pid_t pid = fork();
  Child() {
    while (pid == 0) pause();
  }
  ~Child() {
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
  }
  // Returns once the system shows it as stopped.
  void stop() const {
    kill(pid, SIGSTOP);
    waitpid(pid, nullptr, WUNTRACED);
  }
  void go_on() const {
    kill(pid, SIGCONT);
    waitpid(pid, nullptr, WCONTINUED);
  }
};

TEST(Heartbeats, AStoppedProcessHasTimeToSpeakWhenItGoesOn) {
  const Child child;
  OneOfTwo group;
  PeerHeartbeats heartbeats(group, std::chrono::milliseconds(200));
  heartbeats.send();
  group.answer(static_cast<std::uint32_t>(child.pid));
  heartbeats.hear();
  EXPECT_EQ(heartbeats.silent_intervals(1), 0);
  child.stop();
  for (int i = 0; i < 100; ++i) heartbeats.count_interval();
  EXPECT_TRUE(heartbeats.is_stopped(1));
  EXPECT_EQ(
      heartbeats.describe(1),
      "rank 1, here: is stopped (SIGCONT lets it go on), and said last that it is between two "
      "steps");
  EXPECT_EQ(heartbeats.silent_intervals(1), 2);  // overdue
  child.go_on();
  EXPECT_FALSE(heartbeats.is_stopped(1));
  for (int i = 0; i < 8; ++i) heartbeats.count_interval();
  EXPECT_EQ(heartbeats.silent_intervals(1), 10);
  EXPECT_EQ(heartbeats.describe(1), "rank 1, here: no heartbeat for 2 s");
}

// Both have the name "here". The process of rank 1 may be any, so its silence counts.
TEST(Heartbeats, AnotherMachineOfTheSameNameHasOtherProcesses) {
  const Child child;
  child.stop();
  OneOfTwo group;
  PeerHeartbeats heartbeats(group, std::chrono::milliseconds(200));
  heartbeats.send();
  for (const bool apart : {false, true}) {
    group.answer(static_cast<std::uint32_t>(child.pid), apart);
    heartbeats.hear();
    EXPECT_EQ(heartbeats.is_stopped(1), !apart);
  }
  for (int i = 0; i < 10; ++i) heartbeats.count_interval();
  EXPECT_EQ(heartbeats.silent_intervals(1), 10);
}

TEST(Heartbeats, SayWhatAProcessDoesAndSinceWhen) {
  const Child child;
  OneOfTwo group;
  PeerHeartbeats heartbeats(group, std::chrono::milliseconds(200));
  heartbeats.tell([] { return "computes 'fc0'"; });
  const auto speak = [&] {
    heartbeats.send();
    group.answer(static_cast<std::uint32_t>(child.pid));
    heartbeats.hear();
  };
  speak();
  speak();
  EXPECT_THAT(heartbeats.describe(1),
              testing::MatchesRegex("rank 1, here: computes 'fc0' for [0-9.]+ s"));
  child.stop();
  EXPECT_THAT(heartbeats.describe(1),
              testing::HasSubstr("and said last that it computes 'fc0' for "));
}

}  // namespace heartbeats_test
}  // namespace belfry
