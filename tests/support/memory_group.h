// The processes of one run as threads of a test or a benchmark, which send each other messages
// through memory: a group for many more processes than sockets allow, which counts what they send,
// and loses processes at will.
#pragma once
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "belfry/framework/group/processes.h"

namespace belfry::test {

// What a process has sent, and with how many others it exchanges messages: as many sockets.
struct Traffic {
  std::int64_t messages = 0, bytes = 0;
  int peers = 0;
};

class MemoryNetwork {
 public:
  // Hosts have so many ranks, successive ones or `cyclic`; 0: there is one host.
  explicit MemoryNetwork(int size, int per_host = 0, bool cyclic = false);
  // The group of one process. The network must outlive it.
  std::unique_ptr<ProcessGroup> group(int rank);

  // The process ends at once, as after SIGKILL: its own calls throw, and those who wait for it see
  // that its connections are closed.
  void kill(int rank);
  // Its machine is gone: nobody hears from it any more, and nothing is closed.
  void cut(int rank);
  // What it has sent. Heartbeats count only as `heartbeats`.
  Traffic traffic(int rank, bool heartbeats = false) const;

 private:
  friend class MemoryGroup;
  struct Message {
    int from, tag;
    std::vector<std::byte> bytes;
  };
  // A process, as others see it.
  struct Box {
    mutable std::mutex mutex;
    std::condition_variable changed;
    std::vector<Message> inbox;
    bool woken = false;
    std::atomic<bool> closed{false}, killed{false}, is_cut{false};
    Traffic traffic, heartbeats;
    std::vector<char> peers;  // with whom it exchanges messages
  };

  Box& box(int rank) const { return *boxes_[static_cast<std::size_t>(rank)]; }
  void connect(int from, int to);
  void deliver(int from, int to, int tag, std::span<const std::byte> bytes);
  void wake(int rank);
  void wake_all();

  std::vector<std::unique_ptr<Box>> boxes_;
  std::vector<std::string> hosts_;
  std::atomic<int> closings_{0};  // how many processes have closed their connections
};

// As run_processes(). A process whose network has killed it throws nothing.
void run_in_memory(MemoryNetwork& network, int size,
                   const std::function<void(std::shared_ptr<Processes>)>& body,
                   const WatchOptions& watch = {});

}  // namespace belfry::test
