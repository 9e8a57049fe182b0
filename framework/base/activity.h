// What may take for ever in a process: runs of steps, and reading data. A watch looks at all of
// them and names those that do not come on.
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
  // Since when it makes no progress; none while it does nothing. A watch asks again and again, so
  // it is as exact as the watch looks often. `now` never decreases.
  virtual std::optional<Clock::time_point> stuck_since(Clock::time_point now) = 0;
  // What it does, as it was at the last stuck_since(): "cpu:0 has computed Relu 'x' for 3.2 s".
  virtual ErrorOrigin describe(Clock::time_point now) const = 0;
};

// Shows an activity to watches as long as it lives. It is the last member of the activity's class.
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

// Calls f() with all that is shown. Until it returns, none of them begins or ends to live.
void with_activities(const std::function<void(const std::vector<Activity*>&)>& f);

// Notes that a long call has come further, such as the writing of a file. Any thread may do so.
void note_progress();
// How often it was called.
std::uint64_t progress_notes();

// When a count last changed, for somebody who looks at it again and again.
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
