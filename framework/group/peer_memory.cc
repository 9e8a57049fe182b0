#include <cerrno>
#include <cstring>

#include <sys/prctl.h>
#include <sys/uio.h>
#include <unistd.h>

#include "belfry/framework/base/require.h"
#include "belfry/framework/group/peer_memory_impl.h"

namespace belfry::detail {
namespace {

std::uint64_t random_word() {
  std::uint64_t word = 0;
  const bool given = ::getentropy(&word, sizeof(word)) == 0;
  require<CommError>(given, "the system gives no random numbers: ", std::strerror(errno));
  return word | 1;  // 0: withdrawn
}

// Returns whether all bytes were read; otherwise errno says why.
bool read_memory(std::uint32_t pid, std::uint64_t address, std::span<std::byte> to) {
  errno = EFAULT;  // of a copy that stops before its end
  const iovec own{to.data(), to.size()};
  const iovec other{reinterpret_cast<void*>(address), to.size()};
  return ::process_vm_readv(static_cast<pid_t>(pid), &own, 1, &other, 1, 0) == std::ssize(to);
}

}  // namespace

MemoryPass::MemoryPass()
    : drawn_(random_word()), word_(std::make_unique<std::atomic<std::uint64_t>>(drawn_)) {
#ifdef PR_SET_PTRACER
  ::prctl(PR_SET_PTRACER, static_cast<unsigned long>(::getppid()), 0, 0, 0);
#endif
}

PassPlace MemoryPass::place() const {
  return {static_cast<std::uint32_t>(::getpid()), reinterpret_cast<std::uintptr_t>(word_.get()),
          drawn_};
}

bool MemoryPass::covers(std::span<const std::byte> bytes) const {
  std::byte some{};
  const auto reads = [&](const std::byte& one) {
    return read_memory(static_cast<std::uint32_t>(::getpid()),
                       reinterpret_cast<std::uintptr_t>(&one), std::span(&some, 1));
  };
  return bytes.empty() || (reads(bytes.front()) && reads(bytes.back()));
}

std::optional<PeerMemory> PeerMemory::open(const PassPlace& place, std::string* why) {
  std::uint64_t word = 0;
  if (!read_memory(place.pid, place.address, std::as_writable_bytes(std::span(&word, 1))))
    *why = std::strerror(errno);
  else if (word != place.word)
    *why = cat("process ", place.pid, " is another one here");
  else
    return PeerMemory(place);
  return std::nullopt;
}

bool PeerMemory::read(std::uint64_t address, std::span<std::byte> to) const {
  if (read_memory(place_.pid, address, to)) return true;
  require<CommError>(errno == ESRCH || errno == EFAULT,
                     "its memory can no longer be read: ", std::strerror(errno));
  return false;
}

bool PeerMemory::has_pass() const {
  std::uint64_t word = 0;
  // What was read before must not be younger than the word. ThreadSanitizer knows no fences, and
  // sees only one process.
#ifndef __SANITIZE_THREAD__
  std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
  return read(place_.address, std::as_writable_bytes(std::span(&word, 1))) && word == place_.word;
}

}  // namespace belfry::detail
