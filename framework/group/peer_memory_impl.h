// Memory of processes of one host, which read it from each other with a single copy
// (process_vm_readv). A process may read bytes of another one as long as its pass is there.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

namespace belfry::detail {

// Where a process has its pass. Whoever finds this word there reads the process that is meant, and
// not one of another container that has the same number.
struct PassPlace {
  std::uint32_t pid = 0;
  std::uint64_t address = 0, word = 0;
};

// The pass that this process shows to others.
class MemoryPass {
 public:
  // Lets the processes that the parent of this one has started read its memory (Yama).
  MemoryPass();
  ~MemoryPass() { withdraw(); }
  PassPlace place() const;
  // Whether others can read these bytes: memory of devices cannot be read this way.
  bool covers(std::span<const std::byte> bytes) const;
  // From now on, what others read counts as nothing. Call it before memory of messages is freed.
  void withdraw() noexcept { word_->store(0); }

 private:
  const std::uint64_t drawn_;
  const std::unique_ptr<std::atomic<std::uint64_t>> word_;
};

// The memory of another process.
class PeerMemory {
 public:
  // None if it cannot be read; `why` gets the reason.
  static std::optional<PeerMemory> open(const PassPlace& place, std::string* why);

  // Copies bytes from an address of the other process. Returns false if it has ended. Throws
  // CommError if the system no longer allows it.
  bool read(std::uint64_t address, std::span<std::byte> to) const;
  // Whether the process has its pass, so that all that was read before is right.
  bool has_pass() const;

 private:
  explicit PeerMemory(const PassPlace& place) : place_(place) {}

  PassPlace place_;
};

}  // namespace belfry::detail
