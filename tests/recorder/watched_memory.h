// Memory that notes what kernels read and write. It costs address space and the pages that are
// touched, so tensors may be as large as on a GPU.
#pragma once
#include <cstddef>
#include <cstdint>
#include <list>

namespace belfry::recorder {

// What was touched of a tensor: all of it counts. Of workspace: what lies between the lowest and
// the highest page.
struct Touched {
  std::int64_t read = 0, written = 0;  // bytes
};

// One at a time: it handles SIGSEGV while it lives.
class WatchedMemory {
 public:
  WatchedMemory();
  ~WatchedMemory();
  WatchedMemory(const WatchedMemory&) = delete;
  WatchedMemory& operator=(const WatchedMemory&) = delete;

  // Zeros.
  std::byte* tensor(std::int64_t bytes) { return add(bytes, false); }
  std::byte* workspace(std::int64_t bytes) { return add(bytes, true); }
  // What was touched since the last call. All memory is zeros again.
  Touched take();
  // Unmaps all.
  void clear();

 private:
  struct Extent {
    std::byte *begin = nullptr, *end = nullptr;
    std::int64_t bytes() const { return end - begin; }
    void include(std::byte* first, std::byte* last);
  };
  struct Region {
    std::byte* begin;
    std::int64_t bytes;
    bool by_pages;
    Extent read = {}, written = {};
  };

  std::byte* add(std::int64_t bytes, bool by_pages);
  // Notes an access that was refused, and allows it. Whether the address is of this memory.
  bool touch(std::byte* address, bool writes);

  std::list<Region> regions_;
};

}  // namespace belfry::recorder
