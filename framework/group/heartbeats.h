// Heartbeats: the processes of a group keep reporting to each other that they live, and what they
// do.
#pragma once
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "belfry/framework/group/group.h"

namespace belfry {

// Sends heartbeats of this process to all others, and keeps the last one of each of them. Bytes of
// any message count as a heartbeat, too. Uses its own tags. The group must outlive it.
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
  // Sends a heartbeat to all that have received the one before. `last`: no more follow.
  void send(bool last = false);
  // Announces that this process no longer needs the others. It still sends heartbeats, and answers
  // their requests.
  void leave();
  bool all_sent() const;
  bool all_left() const;
  // Whether all have sent their last heartbeat.
  bool all_silent() const;

  // Counts one more interval of silence for each other process. Stopped processes are left out, so
  // that they have time to speak when they resume. hear() ends the silence.
  void count_interval();
  int silent_intervals(int rank) const { return peer(rank).silent; }
  // How many intervals ago a process has left; 0: it has not. Messages that it sent before have
  // arrived, or will within a few intervals.
  int intervals_since_left(int rank) const { return peer(rank).left; }
  bool is_silent(int rank) const { return peer(rank).last.is_last != 0; }
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
  // All late processes, as describe() says: "rank 2, node7: ...; rank 3, node7: ...".
  std::string late_processes() const;
  // The shortest wait of the other processes, by note_wait(); 0: one does not wait, or there is no
  // other. Processes that have left do not count.
  std::chrono::milliseconds least_wait() const;
  // All processes that have not left, this one first: "rank 0, node7: waits for rank 2, node7".
  std::string all_processes() const;

 private:
  struct Heartbeat {
    std::uint32_t pid = 0;
    std::uint32_t is_last = 0;  // not 0: no heartbeat follows
    std::int64_t launches = 0;
    std::uint64_t machine = 0;  // on which `pid` is this process; 0: not known
    std::uint32_t wait = 0;     // note_wait(), in ms
    std::uint32_t in_step = 0;  // not 0: `doing` is of a step
    char doing[224] = {};
  };
  struct Peer {
    int rank = 0;
    Heartbeat in, out, last;  // being received; being sent; the last one received
    GroupMessage received, sent;
    std::byte leaves_in{}, leaves_out{};
    GroupMessage leaving, told;                   // leave() of the other, and of this process
    int silent = 0;                               // intervals since it was heard
    std::uint64_t bytes = 0;                      // ProcessGroup::received_from() by then
    std::chrono::steady_clock::time_point since;  // the first of a row of equal heartbeats
    int left = 0;                                 // intervals_since_left()
  };

  bool is_own(const Peer& peer) const { return peer.rank == group_.rank(); }
  const Peer& peer(int rank) const { return peers_[static_cast<std::size_t>(rank)]; }
  bool is_late(const Peer& peer) const;
  // What this process does now.
  std::string own_doing() const;

  ProcessGroup& group_;
  const std::chrono::milliseconds interval_;
  const std::uint64_t machine_;
  std::vector<Peer> peers_;
  std::function<std::string()> doing_;
  std::int64_t launches_ = 0;
  std::chrono::milliseconds wait_{0};
  std::string awaited_;
};

}  // namespace belfry
