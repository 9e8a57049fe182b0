// Serves parts of tensors that the processes hold together. Other processes may ask for them at any
// time (a one-sided get).
#pragma once
#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "belfry/framework/base/allocator.h"
#include "belfry/framework/group/group.h"

namespace belfry {

// The part of a tensor that this process holds for the others.
struct PublishedPart {
  const MemoryBlock* memory;
  std::size_t first, bytes;  // of the memory
  // Counts the finished runs that all processes take part in. Between two of them the part keeps
  // its value.
  const std::atomic<std::uint64_t>* runs;
};

// Everything that this process holds for the others, by key. Any thread may call it.
class PublishedParts {
 public:
  // From now on, other processes that ask for this key get this part. find() reads it when they
  // ask. It stays where it is until withdraw().
  void publish(std::uint64_t key, const PublishedPart& part);
  // Call it before this process alone changes the bytes between two runs. Keeps a copy of the value
  // after the last run, for processes that still ask for it.
  void keep(std::uint64_t key);
  // Keeps a copy for processes that still ask, until forget(). If GPU memory can no longer be read,
  // it throws and keeps nothing.
  void withdraw(std::uint64_t key);
  // The keys of withdrawn parts.
  std::vector<std::uint64_t> withdrawn() const;
  // Frees the copies of these keys, which nobody asks for any more.
  void forget(std::span<const std::uint64_t> keys);
  // A copy of the value after `runs` runs; none if nothing is published, or fewer runs have
  // finished. Throws if GPU memory cannot be read.
  std::optional<std::vector<std::byte>> find(std::uint64_t key, std::uint64_t runs) const;

 private:
  struct Part {
    PublishedPart published;
    std::optional<std::vector<std::byte>> kept;  // after withdraw(), instead of `published`
    // The value after `runs` runs, if it has been changed since.
    std::uint64_t runs = 0;
    std::optional<std::vector<std::byte>> before;
  };

  mutable std::mutex mutex_;
  std::map<std::uint64_t, Part> parts_;
};

// Answers the requests of the processes that this one is connected to; whoever asks connects. Uses
// its own tags. The group must outlive it.
class PartServer {
 public:
  // A copy of what this process holds under a key after that many runs. None if it does not hold it
  // yet; the answer is then postponed.
  using Find =
      std::function<std::optional<std::vector<std::byte>>(std::uint64_t key, std::uint64_t runs)>;

  PartServer(ProcessGroup& group, Find find);
  PartServer(const PartServer&) = delete;
  PartServer& operator=(const PartServer&) = delete;

  // Receives pending requests, and answers those that it can. Call it when messages have moved,
  // when there are new peers, and while an answer is postponed.
  void serve();
  bool has_new_peers() const { return peers_.size() < group_.connected().size(); }
  bool has_postponed() const { return has_postponed_; }
  // Whether a process has asked, or got an answer, within the last 100 ms. So it may soon ask
  // again, or what it has asked for may soon be there.
  bool asked_lately() const;

 private:
  struct Ask {
    std::uint64_t key = 0, runs = 0;
  };
  struct Peer {
    Ask in;
    GroupMessage asked, answer;
    std::vector<std::byte> bytes;  // of the answer
    bool is_postponed = false;
  };
  friend void fetch_parts(ProcessGroup& group, std::uint64_t key, std::uint64_t runs,
                          std::span<const std::span<std::byte>> parts);

  ProcessGroup& group_;
  const Find find_;
  std::deque<Peer> peers_;  // as in ProcessGroup::connected(); they stay in place
  bool has_postponed_ = false;
  std::chrono::steady_clock::time_point last_ = {};
};

// Asks each other process for its part under a key after that many runs, and waits for it. The part
// goes to parts[rank]. Empty places, and this process's own, are left alone.
void fetch_parts(ProcessGroup& group, std::uint64_t key, std::uint64_t runs,
                 std::span<const std::span<std::byte>> parts);

}  // namespace belfry
