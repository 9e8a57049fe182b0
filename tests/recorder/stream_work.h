// The recorder's records of memory, streams, events and graphs.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace belfry::recorder {

// A set of owners in which a plain pointer can be looked up.
struct ByAddress {
  using is_transparent = void;
  template <class T>
  static const void* address(const std::unique_ptr<T>& owner) {
    return owner.get();
  }
  static const void* address(const void* pointer) { return pointer; }
  bool operator()(const auto& a, const auto& b) const {
    return std::less<const void*>()(address(a), address(b));
  }
};

struct Allocation {
  int gpu;  // -1: pinned
  std::size_t bytes;
  unsigned flags;  // of pinned memory
  std::byte* behind;
};

// Work that was enqueued in a stream.
struct Work {
  std::string what;
  std::function<void()> act = {};  // empty if it is only noted
};

struct Stream;
using Clock = std::map<const Stream*, int>;  // by captured stream, the works that are done before

struct Capture {
  Stream* origin;
  std::thread::id thread;
  std::vector<Work> work = {};
  Clock counts = {};
  bool open = true;
  int broken = 0;  // its error; 0: none
};

constexpr int kHighestPriority = -5;  // as GPUs report it

struct Stream {
  int gpu;
  int priority = 0;
  std::shared_ptr<Capture> capture = {};
  Clock clock = {};
};

struct Event {
  int gpu;
  bool timer = false;
  bool recorded = false;
  std::int64_t time = 0;                  // works enqueued until the record
  std::shared_ptr<Capture> capture = {};  // the capture in which it was recorded
  Clock clock = {};
};

struct CudaGraph {
  int gpu;
  bool executable;
  std::vector<Work> work;
};

}  // namespace belfry::recorder
