// The work of streams of a StandInGpus: its memory, its order, and captures, by CUDA's rules.
#pragma once
#include <algorithm>
#include <concepts>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "belfry/framework/device/gpu_backend.h"

namespace belfry::test {

class StandInStream;

// Bytes that work on a GPU reads or writes.
struct Access {
  std::uintptr_t begin, end;
  bool writes;
};

// Work, the memory that it touches, and whom it serves.
struct Work {
  std::function<void()> what;
  std::vector<Access> accesses = {};
  std::string served = {};
  bool noted = true;  // others must be behind it
};

// How much of each stream, by its number, a place is behind.
class Clock {
 public:
  std::int64_t of(int stream) const {
    const auto found = counts_.find(stream);
    return found == counts_.end() ? 0 : found->second;
  }
  void reach(int stream, std::int64_t count) {
    std::int64_t& known = counts_[stream];
    known = std::max(known, count);
  }
  void come_behind(const Clock& other) {
    for (const auto& [stream, count] : other.counts_) reach(stream, count);
  }

 private:
  std::map<int, std::int64_t> counts_;
};

// The capture that this thread has begun.
inline thread_local class StandInCapture* capturing = nullptr;

// Null memory has no bytes.
inline Access accessed(const void* memory, std::integral auto bytes, bool writes) {
  const auto begin = reinterpret_cast<std::uintptr_t>(memory);
  return {begin, memory ? begin + static_cast<std::uintptr_t>(bytes) : begin, writes};
}

// Whether both touch some byte, and one of them writes it.
bool conflict(const std::vector<Access>& a, const std::vector<Access>& b);
// Throws DeviceError naming both.
[[noreturn]] void refuse_race(const std::string& first, const std::string& second);

// Its work is done as a whole. The order is one that the captured work allows, but otherwise as
// unlike the order of the capture as can be.
class StandInSegment final : public GpuSegment {
 public:
  StandInSegment(int gpu, std::vector<Work> in_order);

  int gpu() const { return gpu_; }
  const std::vector<Work>& work() const { return *work_; }
  // The accesses of all work together.
  const std::vector<Access>& accesses() const { return accesses_; }
  // Running work may outlive the segment.
  std::shared_ptr<const std::vector<Work>> keep() const { return work_; }

 private:
  int gpu_;
  std::shared_ptr<const std::vector<Work>> work_;
  std::vector<Access> accesses_;
};

// During a capture, work becomes nodes of a graph. A call that CUDA refuses breaks it.
class StandInCapture {
 public:
  // The place of a stream in a capture: behind these nodes.
  struct Front {
    std::vector<int> nodes;
    Clock clock;  // counts are numbers of nodes
  };

  explicit StandInCapture(StandInStream& origin) : origin_(&origin) { streams_.push_back(&origin); }

  bool is_of(const StandInStream& stream) const { return origin_ == &stream; }
  bool by_this_thread() const { return thread_ == std::this_thread::get_id(); }
  bool active() const { return active_; }
  const std::vector<StandInStream*>& streams() const { return streams_; }
  void join(StandInStream& stream) { streams_.push_back(&stream); }

  // Throws DeviceError if the work touches memory of a node that it is not behind.
  void add(int stream, Front& front, Work work);
  // Breaks the capture and throws DeviceError.
  [[noreturn]] void refuse(const std::string& why);
  // Breaks the capture.
  void spoil(const std::string& why) { broken_ = why; }
  // Forgets the capture, even if events still stand for its places.
  void end() {
    active_ = false;
    nodes_.clear();
  }
  // The work in the order of a segment. Call it once all streams have been joined.
  std::vector<Work> in_order() const;
  const std::string& broken() const { return broken_; }  // "" if it is not

 private:
  struct Node {
    int stream;
    Work work;
    Front front;
  };

  StandInStream* origin_;
  std::thread::id thread_ = std::this_thread::get_id();
  std::vector<StandInStream*> streams_;
  std::vector<Node> nodes_;
  std::string broken_;
  bool active_ = true;
};

}  // namespace belfry::test
