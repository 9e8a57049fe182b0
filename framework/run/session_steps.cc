// The compiled steps of a session: those that users hold, and those of run(), of which it keeps a
// few.
#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "belfry/framework/run/session_state.h"

namespace belfry {
namespace {

std::string key_of(std::span<const Fetch> fetches, std::span<const FeedType> feeds, Locks locks) {
  std::string text = locks == Locks::kEachVariable ? "each " : "";
  for (const Fetch& fetch : fetches)
    text += cat(fetch.node->id(), ":", fetch.output ? fetch.output.index() : -1, " ");
  for (const FeedType& feed : feeds)
    text += cat(feed.where.node().id(), ":", feed.where.index(), feed.shape, " ");
  return text;
}

}  // namespace

std::shared_ptr<Step> Session::State::step_for(std::span<const Fetch> fetches,
                                               std::span<const FeedType> feeds, Locks locks,
                                               bool held) {
  const std::string key = key_of(fetches, feeds, locks);
  Prepared& prepared = steps[key];
  if (!prepared.step) {
    try {
      prepared.fetches.assign(fetches.begin(), fetches.end());
      prepared.feeds.assign(feeds.begin(), feeds.end());
      prepared.held = held;
      make_step(prepared, locks);
    } catch (...) {
      steps.erase(key);
      throw;
    }
  }
  prepared.held = prepared.held || held;
  prepared.used = ++uses;
  return prepared.step;
}

void Session::State::make_step(Prepared& prepared, Locks locks) {
  const auto kept = [&] {
    return std::ranges::count_if(
        steps, [](const auto& entry) { return entry.second.step && !entry.second.held; });
  };
  while (!prepared.held && kept() >= options.kept_steps && drop_idle_step()) {
  }
  auto built =
      build(prepared.fetches, prepared.feeds, options.log_device_placement, /*kept=*/true, locks);
  built->connect();
  prepared.step.reset(new Step(std::move(built)));
  note_peak();
}

// Waits until a step that nobody holds is used no more; false if none is used.
bool Session::State::await_idle_step() const {
  const auto used = [](const auto& entry) {
    return entry.second.step && !entry.second.held && entry.second.step.use_count() > 1;
  };
  const auto count = std::ranges::count_if(steps, used);
  if (count == 0) return false;
  while (std::ranges::count_if(steps, used) == count)
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  return true;
}

// The one that was used longest ago of those that nobody holds or runs; false if there is none.
bool Session::State::drop_idle_step() {
  auto oldest = steps.end();
  for (auto entry = steps.begin(); entry != steps.end(); ++entry) {
    const Prepared& prepared = entry->second;
    if (!prepared.step || prepared.held || prepared.step.use_count() > 1) continue;
    if (oldest == steps.end() || prepared.used < oldest->second.used) oldest = entry;
  }
  if (oldest == steps.end()) return false;
  if (!runtime.gpus) {
    steps.erase(oldest);
    return true;
  }
  const std::lock_guard no_run(runtime.mutex);  // runs look at what is captured
  steps.erase(oldest);
  return true;
}

}  // namespace belfry
