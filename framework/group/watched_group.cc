#include "belfry/framework/group/watched_group.h"

#include <utility>

#include "belfry/framework/base/log.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/group/seconds_impl.h"

namespace belfry {
namespace {

// After so many beats, no message of a process that has left can still come.
constexpr int kBeatsBehindTheLast = 5;

// Begins the reason with which a process ends the others because a message waits too long.
constexpr std::string_view kStalled = "the run has stalled: ";

// A stall that another process has found is a StallError here, too.
bool poll(ProcessGroup& group) {
  try {
    return group.poll();
  } catch (const CommError& error) {
    if (std::string_view(error.what()).find(kStalled) == std::string_view::npos) throw;
    throw StallError(error.what());
  }
}

}  // namespace

std::string stalled_run(const std::string& what) { return cat(kStalled, what); }

WatchedGroup::WatchedGroup(std::unique_ptr<ProcessGroup> group, WatchOptions options,
                           PartServer::Find find)
    : group_(std::move(group)),
      options_(options),
      signs_(*group_, options_.beat),
      parts_(*group_, std::move(find)),
      under_way_(static_cast<std::size_t>(group_->size())),
      next_beat_(Clock::now()),
      warnings_{options_.stall_warn} {}

WatchedGroup::~WatchedGroup() {
  try {
    if (!failure_) leave();
  } catch (const std::exception& error) {
    log_debug("at the end of the processes: ", error.what());
  }
}

void WatchedGroup::send(GroupMessage& message) {
  require_intact();
  group_->send(message);
  under_way_[static_cast<std::size_t>(message.peer)].add(message);
}

void WatchedGroup::receive(GroupMessage& message) {
  require_intact();
  group_->receive(message);
  under_way_[static_cast<std::size_t>(message.peer)].add(message);
}

void WatchedGroup::sum(GroupMessage& message, DType dtype) {
  require_intact();
  group_->sum(message, dtype);
  for (int peer = 0; peer < size(); ++peer)
    if (peer != rank()) under_way_[static_cast<std::size_t>(peer)].add(message);
}

bool WatchedGroup::poll() {
  require_intact();
  try {
    return turn();
  } catch (...) {
    failure_ = std::current_exception();
    throw;
  }
}

void WatchedGroup::beat() noexcept {
  if (failure_) return;
  try {
    turn();
  } catch (...) {
    failure_ = std::current_exception();
  }
}

void WatchedGroup::end_others(const std::string& why) noexcept {
  group_->end_others(why);
  if (!failure_)
    failure_ = std::make_exception_ptr(CommError(cat("this process has ended the others: ", why)));
}

void WatchedGroup::waiting(const std::string& what, Clock::time_point began) {
  const Clock::duration waited = Clock::now() - began;
  const auto told = [&] {
    return cat(what, " has waited ", seconds_text(waited), "; late: ", signs_.late_processes());
  };
  if (options_.stall_end.count() > 0 && waited >= options_.stall_end && signs_.any_computes_late())
    throw StallError(stalled_run(told()));
  if (warnings_.is_due(began)) log_warning(told());
}

void WatchedGroup::require_intact() const {
  if (failure_) std::rethrow_exception(failure_);
}

void WatchedGroup::UnderWay::add(GroupMessage& message) {
  if (message.done) return;
  if (messages.empty()) since = Clock::now();
  messages.push_back(&message);
}

bool WatchedGroup::StallWarnings::is_due(Clock::time_point began) {
  if (after.count() == 0 || Clock::now() - began < after) return false;
  return std::exchange(last, began) != began;
}

// Polls the messages, hears and sends signs of life, and serves parts. Returns whether a message
// moved.
bool WatchedGroup::turn() {
  const bool moved = belfry::poll(*group_);
  for (UnderWay& under_way : under_way_)
    std::erase_if(under_way.messages, [](const GroupMessage* message) { return message->done; });
  signs_.hear();
  parts_.serve();
  if (const Clock::time_point now = Clock::now(); now >= next_beat_) {
    next_beat_ = now + options_.beat;
    if (!leaving_) signs_.send();
    signs_.count_interval();
    look_for_lost();
  }
  return moved;
}

void WatchedGroup::look_for_lost() {
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == rank()) continue;
    const UnderWay& under_way = under_way_[static_cast<std::size_t>(peer)];
    const bool idle = under_way.messages.empty();
    const int silent = signs_.silent_intervals(peer);
    if (signs_.has_left(peer))
      require<CommError>(idle || silent <= kBeatsBehindTheLast, describe_rank(*group_, peer),
                         ": it has ended its part of the training before the others");
    else
      require<CommError>(silent <= options_.most_silent, describe_rank(*group_, peer),
                         ": no sign of life for ", seconds_text(silent * options_.beat),
                         "; its process or its machine has ended, or the link to it is down");
    // waiting() warns of messages of steps.
    if (!idle && !signs_.in_step() && warnings_.is_due(under_way.since))
      log_warning("a message between two steps has waited ",
                  seconds_text(Clock::now() - under_way.since), "; late: ", signs_.describe(peer));
  }
}

// All processes wait for each other here, so that none ends while others need it.
void WatchedGroup::leave() {
  Backoff backoff;
  const auto look = [&] { turn() ? backoff.moved() : backoff.nap(); };
  leaving_ = true;
  signs_.tell({});
  while (!signs_.all_sent()) look();
  signs_.send(true);
  parts_.end();
  while (!signs_.all_sent() || !signs_.all_left() || !parts_.all_ended()) look();
}

}  // namespace belfry
