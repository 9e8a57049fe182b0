#include "belfry/framework/run/kept_steps.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "belfry/framework/base/text.h"

namespace belfry {
namespace {

std::string key_of(std::span<const Fetch> fetches, std::span<const FeedType> feeds,
                   const PrepareOptions& options) {
  std::string text = options.locks == LockDuration::kEachVariable ? "each " : "";
  if (options.gathers_first) text += "first ";
  if (!options.fuse) text += "unfused ";
  for (const Fetch& fetch : fetches)
    text += cat(fetch.node->id(), ":", fetch.output ? fetch.output.index() : -1, " ");
  for (const FeedType& feed : feeds)
    text += cat(feed.where.node().id(), ":", feed.where.index(), feed.shape,
                feed.first_sample ? cat("@", *feed.first_sample) : "", " ");
  return text;
}

bool is_held(const KeptSteps::Entry& entry) { return entry.holder != Holder::kNobody; }
bool is_run(const KeptSteps::Entry& entry) { return entry.step.use_count() > 1; }

}  // namespace

std::shared_ptr<CompiledStep> KeptSteps::find(std::span<const Fetch> fetches,
                                              std::span<const FeedType> feeds,
                                              const PrepareOptions& options, Holder holder) {
  const auto found = entries_.find(key_of(fetches, feeds, options));
  if (found == entries_.end()) return nullptr;
  Entry& entry = found->second;
  if (holder == Holder::kUser) entry.holder = holder;
  entry.used = ++uses_;
  return entry.step;
}

void KeptSteps::add(std::span<const Fetch> fetches, std::span<const FeedType> feeds,
                    const PrepareOptions& options, Holder holder,
                    std::shared_ptr<CompiledStep> step) {
  entries_.emplace(key_of(fetches, feeds, options), Entry{.fetches{fetches.begin(), fetches.end()},
                                                          .feeds{feeds.begin(), feeds.end()},
                                                          .step = std::move(step),
                                                          .holder = holder,
                                                          .used = ++uses_});
}

void KeptSteps::make_room() {
  const auto kept = [&] {
    return std::ranges::count_if(entries_,
                                 [](const auto& entry) { return !is_held(entry.second); });
  };
  while (kept() >= most_ && drop_idle()) {
  }
}

bool KeptSteps::drop_idle() {
  auto oldest = entries_.end();
  for (auto entry = entries_.begin(); entry != entries_.end(); ++entry) {
    if (is_held(entry->second) || is_run(entry->second)) continue;
    if (oldest == entries_.end() || entry->second.used < oldest->second.used) oldest = entry;
  }
  if (oldest == entries_.end()) return false;
  erase(oldest);
  return true;
}

void KeptSteps::erase(Entries::iterator entry) {
  std::unique_lock no_run(runtime_.run_lock, std::defer_lock);
  if (runtime_.gpus) no_run.lock();  // runs look at captured segments
  entries_.erase(entry);
}

bool KeptSteps::await_idle() const {
  const auto used = [&] {
    return std::ranges::count_if(
        entries_, [](const auto& entry) { return !is_held(entry.second) && is_run(entry.second); });
  };
  const auto before = used();
  if (before == 0) return false;
  while (used() == before) std::this_thread::sleep_for(std::chrono::microseconds(100));
  return true;
}

}  // namespace belfry
