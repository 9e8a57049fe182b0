#include "belfry/trainers/runs/stall_watch.h"

#include <algorithm>
#include <csignal>
#include <utility>

#include "belfry/framework/base/end_process.h"
#include "belfry/framework/base/error_origin.h"
#include "belfry/framework/base/log.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/base/threads.h"
#include "belfry/trainers/runs/stop_on_request.h"

namespace belfry {
namespace {

// A request to end takes effect after the running step. If that takes longer than this, a line says
// why.
constexpr std::chrono::seconds kBeforeRequestIsTold{1};

// The grace of a request if warnings are turned off.
constexpr std::chrono::seconds kUsualGrace{10};

// How often the watch looks, which limits how exact its times are. It costs a process that waits
// two system calls each time.
std::chrono::milliseconds stall_beat(const StallOptions& options) {
  constexpr std::chrono::milliseconds kLeast{5}, kMost{1'250};
  std::chrono::milliseconds beat = kMost;
  for (const std::chrono::milliseconds time : {options.warn, options.end})
    if (time.count() > 0) beat = std::min(beat, time / 8);
  return std::max(beat, kLeast);
}

std::string details_text(const std::string& details) {
  return details.empty() ? "" : cat(": ", details);
}

// `signal` is 0 if the time is up.
std::string request_text(int signal) {
  return signal != 0 ? name_of_signal(signal) : "the time is up";
}

}  // namespace

StallReporter::Found StallReporter::find(TimePoint now) {
  const std::uint64_t moves = training_.moves();
  const TrainingActivity::Place place = training_.place();
  Found found{.since = std::max(training_change_.look(moves, now),
                                notes_change_.look(progress_notes(), now)),
              .in_step = place.what == What::kStep || place.what == What::kTowers,
              .place = place.str()};
  with_activities([&](const std::vector<Activity*>& all) {
    std::vector<std::pair<TimePoint, const Activity*>> steps, inputs;
    for (Activity* const activity : all)
      if (const auto since = activity->stuck_since(now))
        (activity->kind() == Activity::Kind::kStep ? steps : inputs).push_back({*since, activity});
    // With free-running towers, the steps of other towers continue while one hangs.
    if (!steps.empty()) found.since = std::ranges::min(steps).first;
    const bool reads = steps.empty() && place.what != What::kStep;
    if (reads)
      for (const auto& [since, input] : inputs) found.since = std::max(found.since, since);
    std::vector<std::string> texts;
    for (const auto& [since, activity] : steps.empty() ? inputs : steps) {
      // Those that come on are no reason to wait.
      if (now - since < (now - found.since) / 2) continue;
      ErrorOrigin told = activity->describe(now);
      if (!told.what.empty()) texts.push_back(told.what);
      if (found.details.op.empty()) found.details = std::move(told);
    }
    found.details.what = join(texts, "; ");
  });
  if (found.details.what.empty() && place.what == What::kInput)
    found.details.what = "it waits for its samples";
  found.details.step = place.step;
  return found;
}

std::string StallReporter::text_of_stall(const Found& found, TimePoint now) {
  return cat(found.place, " has made no progress for ", seconds_text(found.since, now),
             details_text(found.details.what));
}

void StallReporter::look(TimePoint now) {
  const What what = training_.place().what;
  if (what == What::kNothing || what == What::kEnded || ended_) return;
  Found found = find(now);
  if (may_wait_for_others(found)) {
    waited_until_ = now;
    last_progress_.reset();
    return look_at_mutual_wait(std::move(found), now);
  }
  found.since = std::max(found.since, waited_until_);
  if (last_progress_) longest_ = std::max(longest_, found.since - *last_progress_);
  last_progress_ = found.since;
  look_at_requests(found, now);
  if (!ended_) look_at_stall(found, now);
}

// In a step, an op that this process computes is its own.
bool StallReporter::may_wait_for_others(const Found& found) const {
  if (options_.process.empty()) return false;
  if (found.in_step) return found.details.op.empty();
  return options_.waits_for_others && options_.waits_for_others();
}

// The group ends a wait in a circle after options_.end; a request ends it before that.
void StallReporter::look_at_mutual_wait(Found found, TimePoint now) {
  if (!options_.mutual_wait) return;
  const std::chrono::milliseconds wait = options_.mutual_wait();
  if (wait < kBeforeRequestIsTold) return;
  found.since = now - wait;
  found.details.what = "all processes wait for each other";
  look_at_requests(found, now);
}

void StallReporter::look_at_stall(const Found& found, TimePoint now) {
  const auto length = now - found.since;
  if (told_since_ && *told_since_ != found.since) {
    log_info("the run makes progress again, after ", seconds_text(*told_since_, found.since));
    told_since_.reset();
  }
  if (options_.end.count() > 0 && length >= options_.end && options_.end_run)
    return end_run(found, now, 0);
  if (options_.warn.count() == 0 ||
      length < std::max<Activity::Clock::duration>(options_.warn, least_))
    return;
  told_since_ = found.since;
  least_ = 2 * length;
  warn(text_of_stall(found, now));
}

// A step that is slow but makes progress is not cut off. So a run may wait as long again as it has
// waited before, and a checkpoint is written first.
Activity::Clock::duration StallReporter::grace() const {
  const auto usual = options_.warn.count() > 0 ? options_.warn : kUsualGrace;
  return std::max<Activity::Clock::duration>(usual, 2 * longest_);
}

void StallReporter::look_at_requests(const Found& found, TimePoint now) {
  // Before there is a trainer, a signal ends the process at once.
  const bool is_setup = training_.place().what == What::kSetup;
  const int signal = is_setup ? 0 : StopSignals::signal();
  const bool is_late = options_.deadline && now >= *options_.deadline;
  if (signal == 0 && !is_late) return;
  if (!asked_since_) asked_since_ = now;
  const auto unmoved = now - std::max(*asked_since_, found.since);
  if (unmoved >= grace() && !UnfinishedWrite::any() && options_.end_run)
    return end_run(found, now, signal != 0 ? signal : SIGTERM);
  if (request_is_told_ || now - *asked_since_ < kBeforeRequestIsTold) return;
  request_is_told_ = true;
  warn(cat(request_text(signal), ": waiting for ", found.place, details_text(found.details.what),
           options_.end_run ? cat("; if nothing moves for ", seconds_text({}, TimePoint(grace())),
                                  ", the run ends without it")
                            : "",
           signal != 0 ? "; once more ends the program at once" : ""));
}

void StallReporter::end_run(const Found& found, TimePoint now, int request) {
  ended_ = true;
  const std::string why = request == 0 ? "" : request_text(StopSignals::signal()) + ", but ";
  try {
    try {
      throw StallError(why + stalled_run(text_of_stall(found, now)));
    } catch (const StallError&) {
      ErrorOrigin origin = found.details;
      origin.what = found.place + details_text(found.details.what);
      origin.is_told = true;
      rethrow_from(std::move(origin));
    }
  } catch (const StallError& error) {
    options_.end_run(error, request);
  }
}

void StallReporter::warn(const std::string& text) const {
  log_warning(options_.process.empty() ? "" : cat("[", options_.process, "] "), text);
}

StallWatch::StallWatch(const TrainingActivity& training, const StallOptions& options)
    : beat_(stall_beat(options)), reporter_(training, options) {
  try {
    thread_ = start_thread({.what = "the watch over a training run", .remedy = "use fewer threads"},
                           [this](const std::stop_token& stop) { watch(stop); });
  } catch (const Error& error) {
    log_debug("nobody tells of a run that hangs: ", error.what());
  }
}

StallWatch::~StallWatch() {
  thread_.request_stop();
  ends_.notify_all();
}

void StallWatch::watch(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  while (!stop.stop_requested()) {
    ends_.wait_for(lock, stop, beat_, [&] { return stop.stop_requested(); });
    if (!stop.stop_requested()) reporter_.look(Activity::Clock::now());
  }
}

}  // namespace belfry
