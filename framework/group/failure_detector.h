// A failure detector around a group: the processes report to each other that they live, and what
// they do.
#pragma once
#include <chrono>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "belfry/framework/base/error.h"
#include "belfry/framework/group/group.h"
#include "belfry/framework/group/heartbeats.h"
#include "belfry/framework/group/part_server.h"
#include "belfry/framework/group/peer_error.h"

namespace belfry {

// The sentence about a stall, for people.
std::string stalled_run(const std::string& what);

struct WatchOptions {
  std::chrono::milliseconds beat{500};  // from one heartbeat to the next
  // A process is lost if it sends no heartbeat for this many beats of the listener, or for
  // PeerHeartbeats::normal_silence() if that is more; 0: never. Counting the listener's beats, a
  // listener that was stopped itself blames nobody.
  int most_silent = 10;
  // A message that has waited this long causes a warning that names the late processes, or ends the
  // run; 0: never. A late process that is between two steps may save or read, so the run continues,
  // unless all processes wait for each other and nothing moves.
  std::chrono::milliseconds stall_warn{10'000}, stall_end{600'000};
  // How long this process may live on after the group has failed, because another thread hangs; the
  // time does not count while a checkpoint is being written (UnfinishedWrite). Then the message
  // thread calls `abandon` once, with the failure. Null: for ever.
  std::chrono::milliseconds patience{4'000};
  std::function<void(const ProcessGroup&, const std::exception&)> abandon = nullptr;
};

// Forwards to the wrapped group. Each function throws CommError naming a lost process. A process is
// lost if its heartbeats stop, unless the system shows it as stopped. It is also lost if it leaves
// while messages to or from it are under way. Messages of PartServer do not count, because a
// process serves these until all have left. All later calls throw the first error again. By then
// the group has forgotten all messages.
class FailureDetector final : public ProcessGroup {
 public:
  // `find` answers other processes (part_server.h); null: nobody asks.
  explicit FailureDetector(std::unique_ptr<ProcessGroup> group, WatchOptions options = {},
                           PartServer::Find find = nullptr);
  // If nothing has failed, it waits until all others leave, too.
  ~FailureDetector() override;
  FailureDetector(const FailureDetector&) = delete;
  FailureDetector& operator=(const FailureDetector&) = delete;

  int rank() const override { return group_->rank(); }
  int size() const override { return group_->size(); }
  const std::string& host(int rank) const override { return group_->host(rank); }
  std::string transport() const override { return group_->transport(); }
  const std::vector<int>& connected() const override { return group_->connected(); }
  void send(GroupMessage& message) override;
  void receive(GroupMessage& message) override;
  void sum(GroupMessage& message, DType dtype) override;
  // From this call until end_wait(), the caller counts as waiting for messages.
  bool poll() override;
  // Returns by the next beat.
  void wait(std::chrono::steady_clock::time_point until, std::chrono::nanoseconds nap) override;
  void wake() override { group_->wake(); }
  std::uint64_t received_from(int rank) const override { return group_->received_from(rank); }
  bool forget_messages() noexcept override;
  void end_others(const std::string& reason) noexcept override;
  // The other processes throw this error (throw_reason()). If it names no process, it counts as
  // this one's.
  void end_others(ErrorFields error) noexcept;

  // Makes all later calls throw the error, unless something failed before.
  void fail(std::exception_ptr error) noexcept;
  // After a failure: whether the group may still read and write memory of messages. Then this
  // object must stay until the process ends, and memory of tensors is never given back.
  bool needs_memory() const { return needs_memory_; }
  // poll() for callers that wait for no message. If it fails, the next call of another function
  // throws the error. Call it at every beat, or more often.
  void beat() noexcept;
  // The heartbeats that this process sends, and those that it received.
  PeerHeartbeats& heartbeats() { return heartbeats_; }
  // Call it while messages of `what` have waited since `began`. It warns once, or throws
  // StallError, after the times of WatchOptions. It names the processes that have begun fewer
  // messages of steps.
  void waiting(const std::string& what, std::chrono::steady_clock::time_point began);
  // How long all processes have waited for each other while no byte of a message moved; 0: one of
  // them does not wait.
  std::chrono::milliseconds mutual_wait() const { return mutual_wait_; }
  // The caller of poll() or waiting() needs no message any more.
  void end_wait() noexcept { waits_ = false; }
  // Has f() called at every beat, also while a call of this group waits.
  void at_each_beat(std::function<void()> f) { at_each_beat_ = std::move(f); }
  // The error that all later calls throw; null as long as the group works.
  const std::exception_ptr& failure() const { return failure_; }

 private:
  using Clock = std::chrono::steady_clock;

  // Messages to and from one process that are under way.
  struct UnderWay {
    // Whether there are other messages than those of PartServer.
    bool any_but_parts() const;

    std::vector<GroupMessage*> messages;
    Clock::time_point since;  // the first of them
    // Bytes from the peer at the last beat, and how many beats ago more came than heartbeats.
    std::uint64_t received = 0;
    int quiet = 0;
  };
  // Warns once per wait.
  struct StallWarnings {
    bool is_due(Clock::time_point began);

    std::chrono::milliseconds after;  // WatchOptions::stall_warn
    Clock::time_point last = {};      // when the wait began that it last warned of
  };

  void require_intact() const;
  void fail_and_tell(std::exception_ptr error) noexcept;
  // Calls f(), which uses the group. Records a failure, and tells the other processes.
  void use(const std::function<void()>& f);
  void note_under_way(int peer, GroupMessage& message);
  bool turn();
  void drop_done();
  void look_for_lost();
  void note_wait();
  bool still_waits(Clock::time_point now) const;
  void look_at_wait();
  std::string awaited() const;
  void leave();

  std::unique_ptr<ProcessGroup> group_;
  const WatchOptions options_;
  PeerHeartbeats heartbeats_;
  PartServer parts_;
  std::map<int, UnderWay> under_way_;  // by rank
  Clock::time_point next_beat_;
  StallWarnings warnings_;
  bool waits_ = false;
  // When this process began to wait, when it last did, and when something last moved.
  Clock::time_point wait_began_ = {}, waited_ = {}, moved_ = {};
  std::chrono::milliseconds mutual_wait_{0};
  std::function<void()> at_each_beat_;
  bool silent_ = false;  // has sent its last heartbeat, or is about to
  bool needs_memory_ = false;
  std::exception_ptr failure_;
};

}  // namespace belfry
