// What may hang in a process: runs of steps, and reading data. A watch looks at all of them and
// names those that make no progress.
#pragma once
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "belfry/framework/base/error_origin.h"

namespace belfry {

class Activity {
 public:
  using Clock = std::chrono::steady_clock;
  enum class Kind : std::uint8_t { kStep, kInput };

  virtual ~Activity() = default;
  virtual Kind kind() const = 0;
  // Since when it has made no progress; none while it is idle. A watch polls this, so the time is
  // as exact as the polling is frequent. `now` never decreases.
  virtual std::optional<Clock::time_point> stuck_since(Clock::time_point now) = 0;
  // What it was doing at the last stuck_since(): "cpu:0 has computed Relu 'x' for 3.2 s".
  virtual ErrorOrigin describe(Clock::time_point now) const = 0;
};

// Shows an activity to watches while this lives. Make it the last member of the activity's class.
class ShownActivity {
 public:
  explicit ShownActivity(Activity& activity);
  ~ShownActivity();
  ShownActivity(const ShownActivity&) = delete;
  ShownActivity& operator=(const ShownActivity&) = delete;

 private:
  Activity& activity_;
};

// "10.2 s".
std::string seconds_text(Activity::Clock::time_point since, Activity::Clock::time_point now);

// Calls f() with all activities shown. Until it returns, none is added or removed.
void with_activities(const std::function<void(const std::vector<Activity*>&)>& f);

// Records that a long call, such as writing a file, has made progress. Any thread may call it.
void note_progress();
// How often note_progress() has been called.
std::uint64_t progress_notes();

// When a counter last changed, as seen by a caller that polls it.
class LastChange {
 public:
  Activity::Clock::time_point look(std::uint64_t count, Activity::Clock::time_point now) {
    if (count_ != count) at_ = now;
    count_ = count;
    return at_;
  }
  Activity::Clock::time_point at() const { return at_; }

 private:
  std::optional<std::uint64_t> count_;
  Activity::Clock::time_point at_;
};

}  // namespace belfry
