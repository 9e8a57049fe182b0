// Says what a training run waits for when it makes no progress, and ends one that never comes on.
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
#include "belfry/framework/group/watched_group.h"
#include "belfry/trainers/core/training_activity.h"

namespace belfry {

struct StallOptions {
  // A run that has made no progress for so long causes a warning, or ends; 0: never. An op that
  // ends, a part of a batch, and a tensor of a checkpoint are progress.
  std::chrono::milliseconds warn{10'000}, end{600'000};
  // When the time of the run is up; none: it has no limit. Another callback ends it then, between
  // two steps. This one says what the run waits for.
  std::optional<Activity::Clock::time_point> deadline = {};
  // Of one of several processes: "rank 1, node7". WatchedGroup watches their steps, and ends the
  // run. So here only what each does between steps is told. "" for a lone process.
  std::string process = {};
  // Ends the process: the thread that hangs cannot be ended. origin_of(error) says where it hangs.
  // Called by the thread of the watch. Null: a stall ends nothing.
  std::function<void(const StallError& error)> end_run = {};
};

// Looks at a training run, and at all activities of the process. One at a time.
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
    ErrorOrigin details{};  // what is under way there
  };

  Found find(TimePoint now);
  void look_at_stall(const Found& found, TimePoint now);
  void look_at_requests(const Found& found, TimePoint now);
  void warn(const std::string& text) const;

  const TrainingActivity& training_;
  const StallOptions options_;
  LastChange training_change_, notes_change_;
  std::optional<TimePoint> told_since_;  // the stall that was told of last, as long as it lasts
  // How long a stall must be to be told. It grows with those that were told, so that a slow op is
  // told of once, not in each step.
  Activity::Clock::duration least_{};
  std::optional<TimePoint> asked_since_;  // when the request to end was seen
  bool request_is_told_ = false;
};

// Has a StallReporter look from a thread of its own as long as it lives. Without a thread it does
// nothing.
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
