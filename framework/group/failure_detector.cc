#include "belfry/framework/group/failure_detector.h"

#include <algorithm>
#include <utility>

#include "belfry/framework/base/error_origin.h"
#include "belfry/framework/base/keep_memory.h"
#include "belfry/framework/base/log.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/group/seconds_impl.h"
#include "belfry/framework/group/tags.h"

namespace belfry {
namespace {

// When a process has left, and nothing more has come from it for this many beats, no message that
// it sent before can still arrive.
constexpr int kBeatsBehindTheLast = 5;

// How often a process looks for what others have just asked it for, and for what it did not have
// yet after a while.
constexpr std::chrono::milliseconds kAskedBeat{1}, kPostponedBeat{20};

}  // namespace

std::string stalled_run(const std::string& what) { return cat("the run has stalled: ", what); }

FailureDetector::FailureDetector(std::unique_ptr<ProcessGroup> group, WatchOptions options,
                                 PartServer::Find find)
    : group_(std::move(group)),
      options_(options),
      heartbeats_(*group_, options_.beat),
      parts_(*group_, std::move(find)),
      next_beat_(Clock::now()),
      warnings_{options_.stall_warn} {}

FailureDetector::~FailureDetector() {
  try {
    if (!failure_) use([&] { leave(); });
  } catch (const std::exception& error) {
    log_debug("at the end of the processes: ", error.what());
  }
}

void FailureDetector::use(const std::function<void()>& f) {
  require_intact();
  try {
    f();
  } catch (...) {
    fail_and_tell(std::current_exception());
    throw;
  }
}

void FailureDetector::send(GroupMessage& message) {
  use([&] {
    moved_ = Clock::now();
    group_->send(message);
    note_under_way(message.peer, message);
  });
}

void FailureDetector::receive(GroupMessage& message) {
  use([&] {
    moved_ = Clock::now();
    group_->receive(message);
    note_under_way(message.peer, message);
  });
}

void FailureDetector::sum(GroupMessage& message, DType dtype) {
  use([&] {
    moved_ = Clock::now();
    group_->sum(message, dtype);
    for (int peer = 0; peer < size(); ++peer)
      if (peer != rank()) note_under_way(peer, message);
  });
}

bool FailureDetector::poll() {
  bool moved = false;
  note_wait();
  use([&] { moved = turn(); });
  return moved;
}

void FailureDetector::wait(Clock::time_point until, std::chrono::nanoseconds nap) {
  if (!failure_) until = std::min(until, next_beat_);
  if (!failure_ && parts_.asked_lately())
    until = std::min(until, Clock::now() + kAskedBeat);
  else if (!failure_ && parts_.has_postponed())
    until = std::min(until, Clock::now() + kPostponedBeat);
  group_->wait(until, nap);
}

void FailureDetector::beat() noexcept {
  if (failure_) return;
  try {
    turn();
  } catch (...) {
    fail_and_tell(std::current_exception());
  }
}

void FailureDetector::fail(std::exception_ptr error) noexcept {
  if (failure_) return;
  failure_ = std::move(error);
  forget_messages();
}

// Few processes notice that another one is lost. Each that learns of it tells all that it is
// connected to, before it ends itself, so the news goes around whoever else is lost.
void FailureDetector::fail_and_tell(std::exception_ptr error) noexcept {
  if (failure_) return;
  fail(error);
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& known) {
    group_->end_others(reason_of(of_process(fields_of(known), rank(), host(rank()))));
  } catch (...) {
  }
}

bool FailureDetector::forget_messages() noexcept {
  under_way_.clear();
  if (!failure_)
    failure_ = std::make_exception_ptr(CommError("this process has given its messages up"));
  if (!needs_memory_ && !group_->forget_messages()) {
    needs_memory_ = true;
    keep_host_memory();
  }
  return !needs_memory_;
}

void FailureDetector::end_others(const std::string& reason) noexcept {
  group_->end_others(reason);
  fail(std::make_exception_ptr(CommError("this process has ended the others")));
}

void FailureDetector::end_others(ErrorFields error) noexcept {
  error = of_process(std::move(error), rank(), host(rank()));
  group_->end_others(reason_of(error));
  error.why = cat("this process has ended the others: ", error.why);
  fail(error_of_group(std::move(error)));
}

void FailureDetector::waiting(const std::string& what, Clock::time_point began) {
  note_wait();
  moved_ = std::max(moved_, began);
  const Clock::duration waited = Clock::now() - began;
  const auto told = [&] {
    return cat(what, " has waited ", seconds_text(waited),
               "; late: ", heartbeats_.late_processes());
  };
  if (options_.stall_end.count() > 0 && waited >= options_.stall_end &&
      heartbeats_.any_computes_late())
    throw StallError(stalled_run(told()));
  if (warnings_.is_due(began)) log_warning(told());
}

void FailureDetector::require_intact() const {
  if (failure_) std::rethrow_exception(failure_);
}

// Leaves out a message that is done at once: it may be gone the next time this group looks.
void FailureDetector::note_under_way(int peer, GroupMessage& message) {
  if (message.done) return;
  UnderWay& under_way = under_way_[peer];
  if (under_way.messages.empty()) under_way.since = Clock::now();
  under_way.messages.push_back(&message);
}

bool FailureDetector::UnderWay::any_but_parts() const {
  return std::ranges::any_of(messages, [](const GroupMessage* message) {
    return message->tag != kAskTag && message->tag != kAnswerTag;
  });
}

bool FailureDetector::StallWarnings::is_due(Clock::time_point began) {
  if (after.count() == 0 || Clock::now() - began < after) return false;
  return std::exchange(last, began) != began;
}

// Polls the messages, receives and sends heartbeats, and serves parts. Returns whether a message
// moved.
bool FailureDetector::turn() {
  const bool moved = group_->poll();
  if (moved) drop_done();
  heartbeats_.hear();
  if (moved || parts_.has_new_peers() || parts_.has_postponed()) parts_.serve();
  if (const Clock::time_point now = Clock::now(); now >= next_beat_) {
    next_beat_ = now + options_.beat;
    look_at_wait();
    if (!silent_) heartbeats_.send();
    heartbeats_.count_interval();
    look_for_lost();
    if (at_each_beat_) at_each_beat_();
  }
  return moved;
}

void FailureDetector::drop_done() {
  for (auto& [peer, under_way] : under_way_)
    if (std::erase_if(under_way.messages,
                      [](const GroupMessage* message) { return message->done; }) > 0)
      moved_ = Clock::now();
}

// Who waits asks for messages again and again, at every beat.
bool FailureDetector::still_waits(Clock::time_point now) const {
  constexpr std::chrono::milliseconds kLeast{500};
  return waits_ && now - waited_ <= std::max(kLeast, 3 * options_.beat);
}

void FailureDetector::look_for_lost() {
  const int most_silent = std::max(options_.most_silent, heartbeats_.normal_silence());
  for (const int peer : heartbeats_.watched()) {
    const int silent = heartbeats_.silent_intervals(peer);
    if (options_.most_silent > 0 && silent > most_silent && !heartbeats_.is_silent(peer))
      blame_peer(*group_, peer,
                 cat("no heartbeat for ", seconds_text(silent * options_.beat),
                     "; its process or its machine has ended, or the link to it is down"));
  }
  for (auto& [peer, under_way] : under_way_) {
    // The note that it has left may overtake its last message on another link.
    const std::uint64_t received = received_from(peer),
                        before = std::exchange(under_way.received, received);
    const bool arrives = received - before > 2 * heartbeats_.heartbeat_bytes();
    under_way.quiet = arrives ? 0 : under_way.quiet + 1;
    if (under_way.messages.empty()) continue;
    if (arrives) moved_ = Clock::now();
    if (std::min(heartbeats_.intervals_since_left(peer), under_way.quiet) > kBeatsBehindTheLast &&
        under_way.any_but_parts())
      blame_peer(*group_, peer, "it has ended its part of the training before the others");
    // For messages of steps, waiting() warns.
    if (!heartbeats_.in_step() && warnings_.is_due(under_way.since))
      log_warning("a message between two steps has waited ",
                  seconds_text(Clock::now() - under_way.since),
                  "; late: ", heartbeats_.late_processes(peer));
  }
}

// For callers that need a message.
void FailureDetector::note_wait() {
  const Clock::time_point now = Clock::now();
  if (!still_waits(now)) wait_began_ = now;
  waits_ = true;
  waited_ = now;
}

// Processes that wait for each other would do so for ever: one of them has taken another way
// through the program, or a message was lost. A long message moves, and a process that computes,
// reads or saves does not wait.
void FailureDetector::look_at_wait() {
  const Clock::time_point now = Clock::now();
  std::chrono::milliseconds own{0};
  if (still_waits(now))
    own =
        std::chrono::duration_cast<std::chrono::milliseconds>(now - std::max(wait_began_, moved_));
  heartbeats_.note_wait(own, own.count() > 0 ? awaited() : "");
  const std::chrono::milliseconds others = heartbeats_.least_wait();
  mutual_wait_ = std::min(own, others);
  // The others noted theirs at a beat before.
  if (options_.stall_end.count() > 0 && own >= options_.stall_end &&
      others >= options_.stall_end / 2)
    throw StallError(stalled_run(cat(
        "all processes wait for each other, and nothing has moved for ", seconds_text(mutual_wait_),
        ": ", heartbeats_.all_processes(), "; each has to make the same calls in the same order")));
}

// "rank 2, node7 and rank 3, node7".
std::string FailureDetector::awaited() const {
  std::vector<std::string> ranks;
  for (const auto& [peer, under_way] : under_way_)
    if (!under_way.messages.empty()) ranks.push_back(describe_rank(*group_, peer));
  return ranks.empty() ? "others" : join(ranks, " and ");
}

// All processes wait for each other here, so that none ends while others need it. Each sends
// heartbeats until no process needs any. When all have left, nobody asks for parts any more.
void FailureDetector::leave() {
  Backoff backoff;
  const auto look_until = [&](const auto& over) {
    while (!over()) turn() ? backoff.moved() : backoff.wait(*this);
  };
  end_wait();
  heartbeats_.tell({});
  heartbeats_.leave();
  look_until([&] { return heartbeats_.all_left(); });
  silent_ = true;
  look_until([&] { return heartbeats_.all_sent(); });
  heartbeats_.send(true);
  look_until([&] { return heartbeats_.all_sent() && heartbeats_.all_silent(); });
}

}  // namespace belfry
