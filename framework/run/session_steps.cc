// How a session compiles steps, and which it keeps: those that users hold, and a few of those of
// run().
#include <algorithm>
#include <chrono>
#include <new>
#include <thread>
#include <utility>

#include "belfry/framework/base/log.h"
#include "belfry/framework/passes/passes.h"
#include "belfry/framework/run/session_state.h"

namespace belfry {
namespace {

std::string key_of(std::span<const Fetch> fetches, std::span<const FeedType> feeds, Locks locks) {
  std::string text = locks == Locks::kEachVariable ? "each " : "";
  for (const Fetch& fetch : fetches)
    text += cat(fetch.node->id(), ":", fetch.output ? fetch.output.index() : -1, " ");
  for (const FeedType& feed : feeds)
    text += cat(feed.where.node().id(), ":", feed.where.index(), feed.shape,
                feed.first_sample ? cat("@", *feed.first_sample) : "", " ");
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

std::unique_ptr<Step::State> Session::State::build(std::span<const Fetch> fetches,
                                                   std::span<const FeedType> feeds,
                                                   bool log_placement, bool kept, Locks locks) {
  for (const Fetch& fetch : fetches) require_own(*fetch.node);
  try {
    Plan plan = compile_plan(fetches, feeds, locks);
    if (log_placement) print_placement(plan);
    if (log_enabled(LogLevel::kDebug)) log_debug(plan.str(devices));
    if (options.plan_hook) {
      options.plan_hook(plan);
      plan.commands = issue(plan, options.capture);  // of the launches as they are now
    }
    make_room(plan, kept);
    initialise(plan);
    return std::make_unique<Step::State>(std::move(plan), runtime);
  } catch (const std::bad_alloc&) {
    throw OutOfMemory(cat(fetches.empty() ? "a step" : fetches[0].node->describe(),
                          ": there was no memory left to compile the step that computes it; use "
                          "fewer devices, or allow this process more memory (ulimit -v)"));
  }
}

Plan Session::State::compile_plan(std::span<const Fetch> fetches, std::span<const FeedType> feeds,
                                  Locks locks) {
  for (;;) {
    PlanContext compiling = context();
    compiling.locks = locks;
    Plan plan = compile(fetches, feeds, compiling);
    if (plan.unshare.empty()) return plan;
    for (const Node* variable : plan.unshare) unshare(*variable);
  }
}

// By the plan, before anything is allocated.
void Session::State::make_room(const Plan& plan, bool kept) {
  for (;;) {
    const std::string text = lacking(plan, kept);
    if (text.empty()) return;
    // A run that uses a step ends without this thread's help.
    if (!drop_idle_step() && !await_idle_step()) throw OutOfMemory(text);
  }
}

// What the limits of devices do not allow, for people; empty if the plan fits.
std::string Session::State::lacking(const Plan& plan, bool kept) const {
  std::vector<DeviceUse> all = device_use();
  for (std::size_t d = 0; d < all.size(); ++d)
    all[d].bytes += plan.arena_bytes[d] + (kept ? plan.fetch_bytes[d] : 0);
  for (const PlanNode& planned : plan.nodes)
    if (planned.is_variable() && !variables.contains(planned.node) &&
        !plan.shares.contains(planned.node))
      all[static_cast<std::size_t>(planned.device())].bytes += planned.types[0].bytes();
  for (std::size_t d = 0; d < all.size(); ++d) {
    const std::int64_t limit = devices[d]->memory.limit();
    if (limit != 0 && all[d].bytes > limit)
      return cat(all[d].device, ": its plans need ", all[d].bytes, " bytes, of which ",
                 plan.arena_bytes[d], " for this one's arena",
                 kept && plan.fetch_bytes[d] > 0
                     ? cat(" and ", plan.fetch_bytes[d], " for its fetches")
                     : "",
                 ", but its limit is ", limit, "; use a smaller batch or more devices");
  }
  return {};
}

std::vector<DeviceUse> Session::State::device_use() const {
  std::vector<DeviceUse> use_of;
  for (const auto& device : devices)
    use_of.push_back({.device = device->spec,
                      .physical_gpu = device->backend ? device->gpu : device->memory_space - 1,
                      .declared = device->declared});
  for (const auto& [node, kept] : variables) {
    DeviceUse& use = use_of[static_cast<std::size_t>(kept.device)];
    ++use.variables;
    use.variable_bytes += kept.bytes;
    use.bytes += kept.bytes;
  }
  for (const auto& [key, prepared] : steps)
    for (std::size_t d = 0; d < use_of.size() && prepared.step; ++d) {
      const Plan& plan = *prepared.step->plan();
      use_of[d].bytes += plan.arena_bytes[d] + plan.fetch_bytes[d];
    }
  for (std::size_t d = 0; d < use_of.size(); ++d)
    use_of[d].peak_bytes = std::max(peak_bytes[d], use_of[d].bytes);
  return use_of;
}

void Session::State::note_peak() {
  const std::vector<DeviceUse> use_of = device_use();
  for (std::size_t d = 0; d < use_of.size(); ++d) peak_bytes[d] = use_of[d].peak_bytes;
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
