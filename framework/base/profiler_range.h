// Ranges of time of a thread, with names, as profilers show them. They are ranges of NVTX in the
// domain "belfry"; Nsight Systems shows them above the work that the thread enqueued meanwhile.
#pragma once
#include <string>

namespace belfry {

// Registers a name with the profiler, so that a range need not copy it. If there is no profiler, or
// Belfry was built without the header of NVTX, the name is empty.
class RangeName {
 public:
  RangeName() = default;
  explicit RangeName(const std::string& name);

  explicit operator bool() const { return registered_; }

 private:
  friend class ProfilerRange;

  void* registered_ = nullptr;
};

// A range of the calling thread while it lives. One with an empty name costs two branches.
class ProfilerRange {
 public:
  explicit ProfilerRange(const RangeName& name) : open_(name) {
    if (open_) begin(name);
  }
  ~ProfilerRange() {
    if (open_) end();
  }
  ProfilerRange(const ProfilerRange&) = delete;
  ProfilerRange& operator=(const ProfilerRange&) = delete;

 private:
  static void begin(const RangeName& name) noexcept;
  static void end() noexcept;

  const bool open_;
};

}  // namespace belfry
