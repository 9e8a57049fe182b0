#include "belfry/framework/group/watched_group.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include <unistd.h>

#include "belfry/framework/base/file_system.h"
#include "belfry/framework/base/log.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"

namespace belfry {
namespace {

constexpr int kBeatTag = (1 << 20) + 2;  // which no step and no gather() uses
// Beats after which a message of a process that has left cannot come any more.
constexpr int kBeatsBehindTheLast = 5;

// Begins the reason of a process that ends the others because a message waits too long.
constexpr std::string_view kStalled = "the run has stalled: ";

template <class T>
std::span<std::byte> bytes_of(T& value) {
  return std::as_writable_bytes(std::span(&value, 1));
}

double seconds(std::chrono::steady_clock::duration time) {
  return std::chrono::duration<double>(time).count();
}

// The letter of the system for what a process of this machine does; 0 if it is not known.
char state_of(std::uint32_t pid) {
  try {
    const auto file = local_file_system().open(cat("/proc/", pid, "/stat"));
    std::string text(512, '\0');
    text.resize(file->read(std::as_writable_bytes(std::span(text.data(), text.size()))));
    const std::size_t end = text.rfind(')');
    return end != text.npos && end + 2 < text.size() ? text[end + 2] : '\0';
  } catch (const Error&) {
    return '\0';
  }
}

}  // namespace

WatchedGroup::WatchedGroup(std::unique_ptr<ProcessGroup> group, WatchOptions options)
    : group_(std::move(group)),
      options_(options),
      peers_(static_cast<std::size_t>(group_->size())),
      next_beat_(Clock::now()) {
  for (Peer& peer : peers_) {
    peer.rank = static_cast<int>(&peer - peers_.data());
    peer.received = {peer.rank, kBeatTag, bytes_of(peer.in)};
    peer.sent = {peer.rank, kBeatTag, bytes_of(peer.out), true};
    peer.left = peer.rank == rank();
    if (!peer.left) group_->receive(peer.received);
  }
}

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
  note(message);
}

void WatchedGroup::receive(GroupMessage& message) {
  require_intact();
  group_->receive(message);
  note(message);
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
  const bool warns = options_.stall_warn.count() > 0 && waited >= options_.stall_warn;
  if (!warns && (options_.stall_end.count() == 0 || waited < options_.stall_end)) return;
  if (options_.stall_end.count() > 0 && waited >= options_.stall_end) {
    const bool computes = std::ranges::any_of(
        peers_, [&](const Peer& peer) { return is_late(peer) && peer.last.doing[0] != '\0'; });
    if (computes)
      throw StallError(
          cat(kStalled, what, " has waited ", seconds(waited), " s; late: ", late_processes()));
  }
  if (!warns || std::exchange(warned_, began) == began) return;
  log_warning(what, " has waited ", seconds(waited), " s; late: ", late_processes());
}

void WatchedGroup::require_intact() const {
  if (failure_) std::rethrow_exception(failure_);
}

// One that is done at once may be gone at the next turn().
void WatchedGroup::note(GroupMessage& message) {
  if (message.done) return;
  Peer& peer = peers_[static_cast<std::size_t>(message.peer)];
  if (peer.messages.empty()) peer.waits_since = Clock::now();
  peer.messages.push_back(&message);
}

// One look at everything. Whether something moved.
bool WatchedGroup::turn() {
  const bool moved = poll_group();
  for (Peer& peer : peers_) {
    std::erase_if(peer.messages, [](const GroupMessage* message) { return message->done; });
    if (!peer.left && peer.received.done) hear(peer);
  }
  if (const Clock::time_point now = Clock::now(); now >= next_beat_) {
    next_beat_ = now + options_.beat;
    if (!leaving_) send_beats(false);
    look_for_lost();
  }
  return moved;
}

// A stall that another process has found is one here.
bool WatchedGroup::poll_group() {
  try {
    return group_->poll();
  } catch (const CommError& error) {
    if (std::string_view(error.what()).find(kStalled) == std::string_view::npos) throw;
    throw StallError(error.what());
  }
}

void WatchedGroup::hear(Peer& peer) {
  peer.silent = 0;
  peer.last = peer.in;
  peer.left = peer.in.leaves != 0;
  if (!peer.left) group_->receive(peer.received);
}

// To those that have taken the one before.
void WatchedGroup::send_beats(bool leaving) {
  Beat beat{
      .pid = static_cast<std::uint32_t>(::getpid()), .leaves = leaving, .launches = launches_};
  const std::string doing = doing_ ? doing_() : "";
  std::memcpy(beat.doing, doing.data(), std::min(doing.size(), sizeof(beat.doing) - 1));
  for (Peer& peer : peers_) {
    if (peer.rank == rank() || !peer.sent.done || (peer.left && !leaving)) continue;
    peer.out = beat;
    group_->send(peer.sent);
  }
}

void WatchedGroup::look_for_lost() {
  for (Peer& peer : peers_) {
    if (peer.rank == rank()) continue;
    ++peer.silent;
    const std::string name = describe_rank(*group_, peer.rank);
    require<CommError>(!peer.left || peer.messages.empty() || peer.silent <= kBeatsBehindTheLast,
                       name, ": it has ended its part of the training before the others");
    require<CommError>(peer.left || peer.silent <= options_.most_silent || is_stopped(peer), name,
                       ": no sign of life for ", seconds(peer.silent * options_.beat),
                       " s; its process or its machine has ended, or the link to it is down");
    if (!peer.messages.empty() && !(doing_ && !doing_().empty())) warn_between_steps(peer);
  }
}

// As the debugger, a terminal or SIGSTOP does: it may go on.
bool WatchedGroup::is_stopped(const Peer& peer) const {
  if (peer.last.pid == 0 || group_->host(peer.rank) != group_->host(rank())) return false;
  const char state = state_of(peer.last.pid);
  return state == 'T' || state == 't';
}

bool WatchedGroup::is_late(const Peer& peer) const {
  return peer.rank != rank() && !peer.left && peer.last.launches < launches_;
}

// waiting() tells of messages of steps.
void WatchedGroup::warn_between_steps(const Peer& peer) {
  const Clock::duration waited = Clock::now() - peer.waits_since;
  if (options_.stall_warn.count() == 0 || waited < options_.stall_warn) return;
  if (std::exchange(warned_, peer.waits_since) == peer.waits_since) return;
  log_warning("a message between two steps has waited ", seconds(waited),
              " s; late: ", describe(peer));
}

// "rank 3, node7: is stopped".
std::string WatchedGroup::describe(const Peer& peer) const {
  const double silent = seconds(peer.silent * options_.beat);
  return cat(describe_rank(*group_, peer.rank), ": ",
             is_stopped(peer)     ? "is stopped (SIGCONT lets it go on)"
             : peer.silent > 5    ? cat("no sign of life for ", silent, " s")
             : peer.last.doing[0] ? std::string(peer.last.doing)
                                  : "is between two steps");
}

// "rank 2, node7: computes 'fc0/MatMul' (built at mnist.cc:30); rank 3, node7: is stopped".
std::string WatchedGroup::late_processes() const {
  std::string all;
  for (const Peer& peer : peers_) {
    if (is_late(peer)) all += cat(all.empty() ? "" : "; ", describe(peer));
  }
  return all.empty() ? "no process; the message itself is slow" : all;
}

// All processes wait for each other here, so that none ends while others need it.
void WatchedGroup::leave() {
  Backoff backoff;
  const auto until = [&](const auto& over) {
    while (!std::ranges::all_of(peers_, over)) turn() ? backoff.moved() : backoff.nap();
  };
  leaving_ = true;
  doing_ = nullptr;
  until([](const Peer& peer) { return peer.sent.done; });
  send_beats(true);
  until([](const Peer& peer) { return peer.sent.done && peer.left; });
}

}  // namespace belfry
