// Heartbeats: the processes of a group keep reporting that they live, and what they do.
#pragma once
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "belfry/framework/group/group.h"

namespace belfry {

// Sends heartbeats of this process to a few others, its listeners: those whose ranks are 1, 4, 16,
// 64, ... higher; after the last rank comes rank 0. So each process also hears from a few others,
// which it watches: three of 64, five of 1,024. Of the ranks of a lost host, the last is watched by
// the first of the next one. Bytes of any message count as a heartbeat, too. A heartbeat passes on
// what its sender has heard of processes that may be late, who has left, and how long all have
// waited. So each process knows that of all, a few heartbeats later, even if some processes are
// silent. Uses its own tags. The group must outlive it.
class PeerHeartbeats {
 public:
  // The caller calls send() once per `interval`.
  PeerHeartbeats(ProcessGroup& group, std::chrono::milliseconds interval);
  PeerHeartbeats(const PeerHeartbeats&) = delete;
  PeerHeartbeats& operator=(const PeerHeartbeats&) = delete;

  // `doing` says what this process does in a step; empty between two steps. Called per heartbeat.
  void tell(std::function<std::string()> doing) { doing_ = std::move(doing); }
  bool in_step() const { return doing_ && !doing_().empty(); }
  // Sets how long this process has waited for others while nothing moved, and for whom: "rank 3,
  // node7"; 0: it does not wait. The next heartbeat reports it.
  void note_wait(std::chrono::milliseconds length, std::string whom) {
    wait_ = length;
    awaited_ = std::move(whom);
  }
  // This process has begun the messages of one more launch of a step.
  void count_launch() { ++launches_; }

  // Receives pending heartbeats.
  void hear();
  // Sends a heartbeat to the next listener in turn; the first and the last heartbeat go to all.
  // Leaves out listeners that have not received the one before. `last`: no more follow.
  void send(bool last = false);
  // Announces that this process no longer needs the others. It still sends heartbeats, and answers
  // their requests.
  void leave();
  // Whether all have left. They tell each other along a RankTree, up and then down.
  bool all_left() const { return all_left_; }
  // Whether nothing that this process says is under way.
  bool all_sent() const;
  // Whether all processes that it watches have sent their last heartbeat.
  bool all_silent() const;

  // Counts one more interval of silence for each process that it watches. Stopped processes that
  // are overdue are left out, so that they have time to speak when they resume. hear() ends the
  // silence.
  void count_interval();
  // A silence of so many intervals says nothing yet.
  int normal_silence() const;
  // The ranks that this process watches, whose heartbeats it gets.
  std::vector<int> watched() const;
  // Those of a process that it watches.
  int silent_intervals(int rank) const;
  bool is_silent(int rank) const;
  // How many intervals ago it became known that a process has left; 0: it has not. Messages that it
  // sent before have arrived, or will within a few intervals.
  int intervals_since_left(int rank) const { return left_[static_cast<std::size_t>(rank)]; }
  // A debugger, a terminal or SIGSTOP may have stopped it. Known only of processes on this machine
  // that this process can see: containers and virtual machines may have equal host names.
  bool is_stopped(int rank) const;
  // "rank 3, node7: computes 'fc0/MatMul' (built at mnist.cc:30) for 3.2 s". For a stopped process
  // this is its last heartbeat, sent less than an interval before it stopped.
  std::string describe(int rank) const;

  // Whether a process in a step has begun the messages of fewer launches than this one.
  bool any_computes_late() const;
  // Like any_computes_late(), but also counts processes between two steps.
  bool any_late() const;
  // The late processes that do not wait for others themselves, as describe() says: "rank 2, node7:
  // ...; rank 3, node7: ...". If all of them wait, all late ones.
  std::string late_processes() const;
  // Between two steps: the process with this rank, or if it waits itself, those that do not.
  std::string late_processes(int awaited) const;
  // The shortest wait of the other processes, by note_wait(); 0: one does not wait, or there is no
  // other. Processes that have left do not count.
  std::chrono::milliseconds least_wait() const;
  // The processes that have not left, this one first: "rank 0, node7: waits for rank 2, node7".
  std::string all_processes() const;
  // The bytes of a heartbeat.
  std::uint64_t heartbeat_bytes() const;

 private:
  using Clock = std::chrono::steady_clock;

  // What a process does, as it travels.
  struct Status {
    std::uint32_t pid = 0;
    std::int32_t rank = 0;
    std::int64_t launches = 0;
    std::uint64_t machine = 0;  // on which `pid` is this process; 0: not known
    // Later ones have a larger number, or more intervals since it was heard.
    std::uint32_t number = 0, unheard = 0;
    std::uint32_t age = 0;      // how old this is, in ms
    std::uint32_t length = 0;   // for how long the process has done the same, in ms
    std::uint32_t silence = 0;  // for how long nobody has heard of it, in ms; 0: that is normal
    std::uint16_t in_step = 0;  // not 0: `doing` is of a step
    std::uint16_t waits = 0;    // not 0: for others
    char doing[224] = {};
  };
  static constexpr std::size_t kPassedOn = 3;
  // A heartbeat. After it come a bit per rank, whether that process has left, and a hash of all
  // this: what is said of third processes must not be damaged on the way.
  struct Heartbeat {
    Status own;
    std::uint32_t is_last = 0;  // not 0: no heartbeat follows
    // How long the sender has waited, and the shortest wait of others that it knows of, in ms.
    std::uint32_t wait = 0, least = 0;
    std::uint32_t unused = 0;
    std::array<Status, kPassedOn> others = {};  // without a pid: none
  };
  struct Listener {
    std::vector<std::byte> out;
    GroupMessage sent;
  };
  struct Watched {
    int rank = 0;
    std::vector<std::byte> in;
    GroupMessage received;
    int silent = 0;             // intervals since it was heard, while it was not stopped
    std::uint32_t unheard = 0;  // all intervals since it was heard
    std::uint64_t bytes = 0;    // ProcessGroup::received_from() by then
    bool is_last = false;
    std::uint32_t wait = 0, least = 0;  // as in its heartbeat
    Clock::time_point heard;            // when that came
  };
  struct Known {
    Status status;
    Clock::time_point said;   // when it said so, or a process that watches it, as far as known
    Clock::time_point since;  // when it began to do so
  };
  // A message of one byte by which processes leave.
  struct Leaving {
    std::byte byte{};
    GroupMessage message;
  };

  // In so many intervals it hears once from each one that it watches.
  int round() const { return static_cast<int>(watched_.size()); }
  // Only then is it worth a look at what the system says about its process.
  bool is_overdue(const Watched& peer) const { return peer.silent > round(); }
  const Watched* find_watched(int rank) const;
  void take(const Heartbeat& heartbeat, Watched& from);
  void learn(Status status, Clock::time_point now);
  void vouch(const Watched& peer);
  void look_at_leaving();
  Status own_status();
  std::uint32_t shortest_wait() const;
  bool is_recent(const Known& known) const;
  bool is_late(const Known& known) const;
  // Whether it waits for no other.
  bool goes_on(const Known& known) const;
  std::string describe(const Known& known) const;
  // Processes by rank, as describe() says.
  template <class F>
  std::string describe_if(const F& f) const;
  // What this process does now.
  std::string own_doing() const;

  ProcessGroup& group_;
  const std::chrono::milliseconds interval_;
  const std::uint64_t machine_;
  const RankTree tree_;
  std::vector<Listener> listeners_;
  std::vector<Watched> watched_;
  std::map<int, Known> known_;  // by rank: those that this process has heard of lately
  std::vector<int> left_;       // intervals_since_left(), by rank
  std::vector<Leaving> from_children_, to_children_;
  Leaving from_parent_, to_parent_;
  bool leaves_ = false, all_left_ = false;
  std::function<std::string()> doing_;
  std::int64_t launches_ = 0;
  Status said_;              // what this process said last
  Clock::time_point since_;  // when it began to do so
  std::chrono::milliseconds wait_{0};
  std::string awaited_;
};

}  // namespace belfry
