// Says what a training run waits for when it makes no progress. Ends one that never comes on, and
// one that was asked to end and does not come on.
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
  // A run that has made no progress for so long causes a warning, or ends; 0: never. An op that
  // ends, a part of a batch, and a tensor of a checkpoint are progress.
  std::chrono::milliseconds warn{10'000}, end{600'000};
  // When the time of the run is up; none: it has no limit. A callback ends it then, between two
  // steps. The watch says what the run waits for, and ends it if it does not come on.
  std::optional<Activity::Clock::time_point> deadline = {};
  // Of one of several processes: "rank 1, node7". "" for a lone process. A process that waits for
  // messages is left alone: FailureDetector watches these, and the process that is late watches
  // itself.
  std::string process = {};
  // Whether the process may be waiting for others between two steps. Null: it never does.
  std::function<bool()> waits_for_others = {};
  // How long all processes have waited for each other; 0: one of them does not. A request ends a
  // run in which they do. Null: they never do.
  std::function<std::chrono::milliseconds()> mutual_wait = {};
  // Ends the process: the thread that hangs cannot be ended. origin_of(error) says where it hangs.
  // `request` is the signal that asked the run to end, SIGTERM if its time is up; 0: nothing did.
  // Called by the thread of the watch. Null: neither a stall nor a request ends anything.
  std::function<void(const StallError& error, int request)> end_run = {};
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
  std::optional<TimePoint> told_since_;  // the stall that was told of last, as long as it lasts
  // How long a stall must be to be told. It grows with those that were told, so that a slow op is
  // told of once, not in each step.
  Activity::Clock::duration least_{};
  TimePoint waited_until_{};  // for other processes
  std::optional<TimePoint> last_progress_;
  Activity::Clock::duration longest_{};   // without progress, of what has come on
  std::optional<TimePoint> asked_since_;  // when the request to end was seen
  bool request_is_told_ = false, ended_ = false;
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
