#include "belfry/tests/recorder/watched_memory.h"

#include <algorithm>
#include <csignal>

#include <sys/mman.h>
#include <ucontext.h>

#include "belfry/framework/base/require.h"

namespace belfry::recorder {
namespace {

constexpr std::int64_t kPage = 4096;

WatchedMemory* watched = nullptr;
struct sigaction before;

std::int64_t whole_pages(std::int64_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

// On x86-64, bit 1 of a page fault's error code says that the access was a write.
bool is_write(const void* context) {
  constexpr greg_t kWrites = 2;
  return (static_cast<const ucontext_t*>(context)->uc_mcontext.gregs[REG_ERR] & kWrites) != 0;
}

}  // namespace

void WatchedMemory::Extent::include(std::byte* first, std::byte* last) {
  begin = begin ? std::min(begin, first) : first;
  end = std::max(end, last);
}

WatchedMemory::WatchedMemory() {
  require<InternalError>(!watched, "two memories are watched at once");
  watched = this;
  struct sigaction ours {};
  ours.sa_flags = SA_SIGINFO;
  ours.sa_sigaction = [](int signal, siginfo_t* info, void* context) {
    if (watched->touch(static_cast<std::byte*>(info->si_addr), is_write(context))) return;
    sigaction(signal, &before, nullptr);  // the access is made again, and fails
  };
  sigaction(SIGSEGV, &ours, &before);
}

WatchedMemory::~WatchedMemory() {
  clear();
  sigaction(SIGSEGV, &before, nullptr);
  watched = nullptr;
}

std::byte* WatchedMemory::add(std::int64_t bytes, bool by_pages) {
  if (bytes == 0) return nullptr;
  void* const at = mmap(nullptr, static_cast<std::size_t>(whole_pages(bytes)), PROT_NONE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  require<OutOfMemory>(at != MAP_FAILED, "no addresses for ", bytes, " bytes");
  regions_.push_back({static_cast<std::byte*>(at), bytes, by_pages});
  return regions_.back().begin;
}

bool WatchedMemory::touch(std::byte* address, bool writes) {
  const auto found = std::ranges::find_if(regions_, [&](const Region& region) {
    return address >= region.begin && address < region.begin + whole_pages(region.bytes);
  });
  if (found == regions_.end()) return false;
  std::byte* const page = address - (address - found->begin) % kPage;
  std::byte* const first = found->by_pages ? page : found->begin;
  std::byte* const last = std::min(found->by_pages ? page + kPage : found->begin + found->bytes,
                                   found->begin + found->bytes);
  (writes ? found->written : found->read).include(first, last);
  return mprotect(first, static_cast<std::size_t>(whole_pages(last - first)),
                  writes ? PROT_READ | PROT_WRITE : PROT_READ) == 0;
}

Touched WatchedMemory::take() {
  Touched sum;
  for (Region& region : regions_) {
    sum.read += region.read.bytes();
    sum.written += region.written.bytes();
    if (!region.read.begin && !region.written.begin) continue;
    const auto pages = static_cast<std::size_t>(whole_pages(region.bytes));
    mprotect(region.begin, pages, PROT_NONE);
    madvise(region.begin, pages, MADV_DONTNEED);
    region.read = region.written = {};
  }
  return sum;
}

void WatchedMemory::clear() {
  for (const Region& region : regions_)
    munmap(region.begin, static_cast<std::size_t>(whole_pages(region.bytes)));
  regions_.clear();
}

}  // namespace belfry::recorder
