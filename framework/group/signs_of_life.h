// What the processes of a group tell each other again and again: that they live, and what they do.
#pragma once
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "belfry/framework/group/group.h"

namespace belfry {

// Sends signs of life of this process to all others, and keeps the last sign of each of them. Uses
// a tag of its own. The group outlives it.
class SignsOfLife {
 public:
  // `interval`: from one sign to the next; the caller keeps to it.
  SignsOfLife(ProcessGroup& group, std::chrono::milliseconds interval);
  SignsOfLife(const SignsOfLife&) = delete;
  SignsOfLife& operator=(const SignsOfLife&) = delete;

  // What this process does in a step, asked for each sign; empty: it is between two steps.
  void tell(std::function<std::string()> doing) { doing_ = std::move(doing); }
  bool in_step() const { return doing_ && !doing_().empty(); }
  // This process has begun the messages of one more launch of a step.
  void count_launch() { ++launches_; }

  // Takes the signs that have come.
  void hear();
  // To all that have taken the sign before. `last`: this process leaves.
  void send(bool last = false);
  bool all_sent() const;
  bool all_left() const;

  // Counts one more interval of silence of each other process. One that is stopped is left out, so
  // that it has time to speak when it goes on. hear() ends the silence.
  void count_interval();
  int silent_intervals(int rank) const { return peer(rank).silent; }
  bool has_left(int rank) const { return peer(rank).left; }
  // As a debugger, a terminal or SIGSTOP does; known of processes of this machine.
  bool is_stopped(int rank) const;
  // "rank 3, node7: computes 'fc0/MatMul' (built at mnist.cc:30) for 3.2 s". Of a stopped process:
  // what it said last, less than an interval before.
  std::string describe(int rank) const;

  // Whether a process has begun the messages of fewer launches than this one, and is in a step.
  bool any_computes_late() const;
  // Also between two steps.
  bool any_late() const;
  // Those that have begun fewer, as describe() does: "rank 2, node7: ...; rank 3, node7: ...".
  std::string late_processes() const;

 private:
  struct Sign {
    std::uint32_t pid = 0;
    std::uint32_t leaves = 0;  // it is the last
    std::int64_t launches = 0;
    char doing[240] = {};
  };
  struct Peer {
    int rank = 0;
    Sign in, out, last;  // on its way here; on its way there; that came last
    GroupMessage received, sent;
    int silent = 0;                               // intervals since it came
    std::chrono::steady_clock::time_point since;  // the first sign in a row that said the same
    bool left = false;
  };

  const Peer& peer(int rank) const { return peers_[static_cast<std::size_t>(rank)]; }
  bool is_late(const Peer& peer) const;

  ProcessGroup& group_;
  const std::chrono::milliseconds interval_;
  std::vector<Peer> peers_;
  std::function<std::string()> doing_;
  std::int64_t launches_ = 0;
};

}  // namespace belfry
