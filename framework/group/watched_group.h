// A group whose processes tell each other that they live, and what they do.
#pragma once
#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "belfry/framework/base/error.h"
#include "belfry/framework/group/group.h"
#include "belfry/framework/group/part_server.h"
#include "belfry/framework/group/signs_of_life.h"

namespace belfry {

// A message has waited longer than WatchOptions::stall_end, here or in another process.
class StallError : public CommError {
 public:
  using CommError::CommError;
};

// How a process tells the others that it ends them because of a stall: there, too, that is a
// StallError.
std::string stalled_run(const std::string& what);

struct WatchOptions {
  std::chrono::milliseconds beat{200};  // from one sign of life to the next
  // A process is lost that gives no sign of life in so many beats of the one that listens. So a
  // listener that was stopped itself blames nobody.
  int most_silent = 25;
  // How long a message may wait before a warning names the processes that are late, and before the
  // run ends; 0: for ever. Processes that are between two steps never end it, and messages between
  // two steps do not either.
  std::chrono::milliseconds stall_warn{10'000}, stall_end{600'000};
  // How long this process may live on after the group has failed. Then `abandon` is called once,
  // with the failure, in the thread of the messages: another thread hangs. Null: for ever.
  std::chrono::milliseconds patience{4'000};
  std::function<void(const ProcessGroup&, const std::exception&)> abandon = nullptr;
};

// Forwards to the group that it is made of. Each function throws CommError naming a process that is
// lost. That is one without a sign of life, unless the system shows it as stopped, and one that has
// left while messages to or from it are under way. The first error is thrown again by all later
// calls.
class WatchedGroup final : public ProcessGroup {
 public:
  // `find`: what it answers to others (part_server.h); null: nobody asks.
  explicit WatchedGroup(std::unique_ptr<ProcessGroup> group, WatchOptions options = {},
                        PartServer::Find find = nullptr);
  // Waits until all others leave, too, if nothing has failed.
  ~WatchedGroup() override;
  WatchedGroup(const WatchedGroup&) = delete;
  WatchedGroup& operator=(const WatchedGroup&) = delete;

  int rank() const override { return group_->rank(); }
  int size() const override { return group_->size(); }
  const std::string& host(int rank) const override { return group_->host(rank); }
  std::string carrier() const override { return group_->carrier(); }
  void send(GroupMessage& message) override;
  void receive(GroupMessage& message) override;
  void sum(GroupMessage& message, DType dtype) override;
  bool poll() override;
  void end_others(const std::string& why) noexcept override;

  // poll() for those who wait for no message: the next call of another function throws what it
  // would throw. Call it at least every 100 ms.
  void beat() noexcept;
  // Whether others ask this process for parts, and wait for beat() to answer.
  bool asked_lately() const { return parts_.asked_lately(); }
  // What this process tells the others, and what they told.
  SignsOfLife& signs() { return signs_; }
  // To be called while messages of `what` wait, since `began`: warns once, or throws StallError,
  // after the times of WatchOptions. Names the processes that have begun fewer messages of steps.
  void waiting(const std::string& what, std::chrono::steady_clock::time_point began);
  // What all later calls throw; null as long as the group works.
  const std::exception_ptr& failure() const { return failure_; }

 private:
  using Clock = std::chrono::steady_clock;

  // Messages to and from one process that are under way.
  struct UnderWay {
    // One that is done at once may be gone when this group looks next.
    void add(GroupMessage& message);

    std::vector<GroupMessage*> messages;
    Clock::time_point since;  // the first of them
  };
  // Each wait is warned of once.
  struct StallWarnings {
    bool is_due(Clock::time_point began);

    std::chrono::milliseconds after;  // WatchOptions::stall_warn
    Clock::time_point last = {};      // warned of a wait that began then
  };

  void require_intact() const;
  bool turn();
  void look_for_lost();
  void leave();

  std::unique_ptr<ProcessGroup> group_;
  const WatchOptions options_;
  SignsOfLife signs_;
  PartServer parts_;
  std::vector<UnderWay> under_way_;  // by rank
  Clock::time_point next_beat_;
  StallWarnings warnings_;
  bool leaving_ = false;
  std::exception_ptr failure_;
};

}  // namespace belfry
