// The processes of one run, as seen by one of them. A group moves bytes, and can end all processes
// together; it knows nothing of tensors. One thread at a time calls it.
#pragma once
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "belfry/framework/base/dtype.h"

namespace belfry {

// Bytes on their way to or from another process. The message and its bytes stay in place until it
// is done. Messages of one tag between two processes arrive in the order in which they were posted.
struct GroupMessage {
  int peer = 0;
  int tag = 0;  // from 0 up
  std::span<std::byte> bytes = {};
  bool done = false;
  // For a message that is received: called with its bytes in order, as they arrive or all at once;
  // `from` bytes came before. They are valid only during the call, and `bytes` need not hold the
  // message afterwards. A message may fail after some bytes were used. Null: it arrives in `bytes`.
  std::function<void(std::size_t from, std::span<const std::byte> some)> use = {};

  // All bytes of a received message are in `bytes`.
  void end() {
    if (use) use(0, bytes);
    done = true;
  }
};

class ProcessGroup {
 public:
  virtual ~ProcessGroup() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  // The name of the machine that a process runs on.
  virtual const std::string& host(int rank) const = 0;
  // The transport of the messages: "MPI", "TCP".
  virtual std::string transport() const = 0;
  // The ranks of the other processes that this one is connected to, in the order of connecting. It
  // only grows.
  virtual const std::vector<int>& connected() const = 0;

  // Each posts a message, and returns at once. A receiver expects exactly as many bytes as are
  // sent.
  virtual void send(GroupMessage& message) = 0;
  virtual void receive(GroupMessage& message) = 0;
  // Posts a sum, and returns at once. The group adds the f32 or f64 in message.bytes of all
  // processes, in an order that it chooses; the sum replaces them in each process. All processes
  // post their sums in one order. `peer` and `tag` are ignored. Throws CommError if the group only
  // moves bytes.
  virtual void sum(GroupMessage& message, DType dtype);
  // Moves what can be moved without waiting. True if a message was completed since the last call.
  // Throws CommError naming the process that failed, ended, or sent another number of bytes.
  virtual bool poll() = 0;
  // Waits until poll() may find something, until wake(), or until that time. The messages of some
  // groups move only while they are polled (MPI): such a group sleeps for `nap` at most.
  virtual void wait(std::chrono::steady_clock::time_point until, std::chrono::nanoseconds nap);
  // Ends the wait() under way; without one, the next wait() returns at once. Any thread may call
  // it.
  virtual void wake();
  // Bytes received from another process, as far as the group counts them. If the number has grown,
  // the process is alive.
  virtual std::uint64_t received_from(int) const { return 0; }
  // Gives up all messages that are under way, after an error. Returns whether their memory is no
  // longer read or written. Otherwise it must stay until the process ends.
  virtual bool forget_messages() noexcept = 0;
  // Ends other processes: their poll() throws by throw_reason() (peer_error.h). Forgets all
  // messages, and may take a second.
  virtual void end_others(const std::string& reason) noexcept = 0;

 private:
  // Of groups that can only be polled.
  std::mutex napping_;
  std::condition_variable changed_;
  bool woken_ = false;
};

// The longest reason, in bytes, with which a process ends others. A group may cut a longer one.
inline constexpr std::size_t kLongestReason = 1 << 16;

// "rank 3, node7".
std::string describe_rank(const ProcessGroup& group, int rank);

// Polls until all messages are done, and waits in between.
void finish(ProcessGroup& group, std::span<GroupMessage> messages);

// The tree along which gather() and others pass messages: a process's parent is its rank without
// the lowest bit. So a process has at most log2(size) children, and all ranks from a child up to
// the next one are below that child.
struct RankTree {
  RankTree(int rank, int size);
  explicit RankTree(const ProcessGroup& group) : RankTree(group.rank(), group.size()) {}
  // How many processes a child stands for: itself, and all below it.
  int below(int child) const;

  int size;
  int parent = -1;            // of rank 0: -1
  std::vector<int> children;  // by rank
};

// Each process gives bytes, and gets everybody's, by rank: at most 4 GiB in all. They travel up the
// tree, and then down. All processes call it in one order. If it throws, the group has forgotten
// all messages.
std::vector<std::string> gather(ProcessGroup& group, const std::string& own);

// Like gather(), but only rank 0 gets them; others get none.
std::vector<std::string> collect(ProcessGroup& group, const std::string& own);

// The naps of a thread that polls: longer and longer while nothing moves, so that it leaves the
// cores to threads that compute.
class Backoff {
 public:
  void moved() { idle_ = 0; }
  // The length of the next nap; 0: the thread yields.
  std::chrono::nanoseconds next();
  void nap();
  // Waits until the group may have moved something.
  void wait(ProcessGroup& group);

 private:
  int idle_ = 0;  // naps since something moved
};

}  // namespace belfry
