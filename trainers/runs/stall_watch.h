// Reports what a training run waits for when it makes no progress. Ends a run that never recovers,
// and sooner if the run was asked to end.
#pragma once
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "belfry/framework/base/activity.h"
#include "belfry/framework/group/failure_detector.h"
#include "belfry/trainers/core/training_activity.h"

namespace belfry {

struct StallOptions {
  // Without progress for this long, the watch warns, or ends the run; 0: never. An op that ends, a
  // part of a batch, and a tensor of a checkpoint count as progress.
  std::chrono::milliseconds warn{10'000}, end{600'000};
  // When the time of the run is up; none: no limit. Normally a callback then ends the run between
  // two steps. If the run makes no progress, the watch reports what it waits for, and ends it.
  std::optional<Activity::Clock::time_point> deadline = {};
  // The name of this process among several: "rank 1, node7"; "" for a lone process. A process that
  // waits for messages is not ended: FailureDetector watches messages, and the process that is late
  // watches itself.
  std::string process = {};
  // Returns whether the process may be waiting for others between two steps. Null: it never is.
  std::function<bool()> waits_for_others = {};
  // Returns how long all processes have waited for each other; 0: at least one does not wait. A
  // request to end ends a run in which all wait. Null: they never do.
  std::function<std::chrono::milliseconds()> mutual_wait = {};
  // Ends the process, because the thread that hangs cannot be stopped. origin_of(error) says where
  // it hangs. `request` is the signal that asked the run to end, SIGTERM if its time is up; 0:
  // nothing did. Called by the thread of the watch. Null: neither a stall nor a request ends
  // anything.
  std::function<void(const StallError& error, int request)> end_run = {};
};

// Watches a training run and all activities of the process. Make one at a time.
class StallReporter {
 public:
  using TimePoint = Activity::Clock::time_point;

  StallReporter(const TrainingActivity& training, StallOptions options)
      : training_(training), options_(std::move(options)) {}

  // Call it again and again from one thread.
  void look(TimePoint now);

 private:
  using What = TrainingActivity::What;
  struct Found {
    TimePoint since;  // when the last progress was seen
    bool in_step = false;
    std::string place;      // "step 12"
    ErrorOrigin details{};  // what is running there
  };

  Found find(TimePoint now);
  static std::string text_of_stall(const Found& found, TimePoint now);
  bool may_wait_for_others(const Found& found) const;
  void look_at_mutual_wait(Found found, TimePoint now);
  Activity::Clock::duration grace() const;
  void look_at_stall(const Found& found, TimePoint now);
  void look_at_requests(const Found& found, TimePoint now);
  void end_run(const Found& found, TimePoint now, int request);
  void warn(const std::string& text) const;

  const TrainingActivity& training_;
  const StallOptions options_;
  LastChange training_change_, notes_change_;
  std::optional<TimePoint> told_since_;  // begin of the last reported stall, while it lasts
  // The shortest stall that is reported. It grows with each reported stall, so that a slow op is
  // reported once, not in each step.
  Activity::Clock::duration least_{};
  TimePoint waited_until_{};  // for other processes
  std::optional<TimePoint> last_progress_;
  Activity::Clock::duration longest_{};   // the longest stall that has ended
  std::optional<TimePoint> asked_since_;  // when the request to end was seen
  bool request_is_told_ = false, ended_ = false;
};

// Calls StallReporter::look() from its own thread while it lives. Does nothing if that thread
// cannot be started.
class StallWatch {
 public:
  StallWatch(const TrainingActivity& training, const StallOptions& options);
  ~StallWatch();
  StallWatch(const StallWatch&) = delete;
  StallWatch& operator=(const StallWatch&) = delete;

 private:
  void watch(const std::stop_token& stop);

  const std::chrono::milliseconds beat_;
  StallReporter reporter_;
  std::mutex mutex_;
  std::condition_variable_any ends_;
  std::jthread thread_;
};

}  // namespace belfry
