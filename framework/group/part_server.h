// Bytes that any process may ask of the others while these do something else: their parts of
// tensors that all hold together.
#pragma once
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "belfry/framework/base/allocator.h"
#include "belfry/framework/group/group.h"

namespace belfry {

// What a process holds for the others.
struct PublishedPart {
  const MemoryBlock* memory;
  std::size_t first, bytes;  // of the memory
  // Counts the runs that all processes take part in, when they end. Between two of them the part
  // keeps its value until all take part in the next one.
  const std::atomic<std::uint64_t>* runs;
};

// All that this process holds for the others, by key. Any thread may call it.
class PublishedParts {
 public:
  // What other processes get that ask for this key, from now on. It is read when they ask, by
  // find(), and stays where it is until withdraw().
  void publish(std::uint64_t key, const PublishedPart& part);
  // Before this process alone changes the bytes between two runs: keeps a copy of what the last run
  // has left, for those who still ask for that.
  void keep(std::uint64_t key);
  // Keeps a copy for those who still ask, until forget(). Where memory of a GPU cannot be read any
  // more it throws, and keeps nothing.
  void withdraw(std::uint64_t key);
  // Those that are withdrawn.
  std::vector<std::uint64_t> withdrawn() const;
  // Frees their copies: nobody asks any more.
  void forget(std::span<const std::uint64_t> keys);
  // A copy of what that many runs have left; none if nothing has been published, or fewer runs have
  // ended. Throws what reading memory of a GPU throws.
  std::optional<std::vector<std::byte>> find(std::uint64_t key, std::uint64_t runs) const;

 private:
  struct Part {
    PublishedPart published;
    std::optional<std::vector<std::byte>> kept;  // instead, once withdrawn
    // What so many runs have left, if it has been changed since.
    std::uint64_t runs = 0;
    std::optional<std::vector<std::byte>> before;
  };

  mutable std::mutex mutex_;
  std::map<std::uint64_t, Part> parts_;
};

// Answers what other processes ask. Uses tags of its own. The group outlives it.
class PartServer {
 public:
  // A copy of what this process holds under a key after so many runs; none: nothing yet, so the
  // answer waits.
  using Find =
      std::function<std::optional<std::vector<std::byte>>(std::uint64_t key, std::uint64_t runs)>;

  PartServer(ProcessGroup& group, Find find);
  PartServer(const PartServer&) = delete;
  PartServer& operator=(const PartServer&) = delete;

  // Takes what has come, and answers what can be answered.
  void serve();
  // Whether somebody has asked within the last 100 ms, and so may ask again.
  bool asked_lately() const;

  // This process asks for nothing any more.
  void end();
  // Nobody does, and all is answered.
  bool all_ended() const;

 private:
  struct Ask {
    std::uint64_t key = 0, runs = 0;
    std::uint64_t ends = 0;  // it asks for nothing, now and later
  };
  struct Peer {
    Ask in, out;
    GroupMessage asked, answer, ending;
    std::vector<std::byte> bytes;  // of the answer
    bool ended = false;
  };
  friend void fetch_parts(ProcessGroup& group, std::uint64_t key, std::uint64_t runs,
                          std::span<const std::span<std::byte>> parts);

  ProcessGroup& group_;
  const Find find_;
  std::vector<Peer> peers_;  // by rank
  std::chrono::steady_clock::time_point last_ = {};
};

// Asks each process for its part under a key after so many runs, and waits for it: parts[rank] is
// where it goes. That of this process, and empty ones, are left alone.
void fetch_parts(ProcessGroup& group, std::uint64_t key, std::uint64_t runs,
                 std::span<const std::span<std::byte>> parts);

}  // namespace belfry
