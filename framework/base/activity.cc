#include "belfry/framework/base/activity.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <mutex>

#include "belfry/framework/base/text.h"

namespace belfry {
namespace {

struct ShownActivities {
  std::mutex mutex;
  std::vector<Activity*> all;
};

// It is never destroyed: threads may still show activities while the process ends.
ShownActivities& shown_activities() {
  static auto* const shown = new ShownActivities;
  return *shown;
}

std::atomic<std::uint64_t> noted_progress{0};

}  // namespace

ShownActivity::ShownActivity(Activity& activity) : activity_(activity) {
  ShownActivities& shown = shown_activities();
  const std::lock_guard lock(shown.mutex);
  shown.all.push_back(&activity_);
}

ShownActivity::~ShownActivity() {
  ShownActivities& shown = shown_activities();
  const std::lock_guard lock(shown.mutex);
  std::erase(shown.all, &activity_);
}

std::string seconds_text(Activity::Clock::time_point since, Activity::Clock::time_point now) {
  return cat(std::round(std::chrono::duration<double>(now - since).count() * 10) / 10, " s");
}

void with_activities(const std::function<void(const std::vector<Activity*>&)>& f) {
  ShownActivities& shown = shown_activities();
  const std::lock_guard lock(shown.mutex);
  f(shown.all);
}

void note_progress() { noted_progress.fetch_add(1, std::memory_order_relaxed); }

std::uint64_t progress_notes() { return noted_progress.load(std::memory_order_relaxed); }

}  // namespace belfry
