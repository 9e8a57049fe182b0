#include <algorithm>
#include <utility>

#include "belfry/framework/base/log.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/group/peer_error.h"
#include "belfry/framework/group/tcp_calls_impl.h"

namespace belfry::detail {
namespace {

using Clock = std::chrono::steady_clock;

// How long a process waits to be called before it calls itself.
constexpr std::chrono::milliseconds kCallPatience{1'000};
// How long it tries to reach another one that does not take the call. Where a run ends, the reason
// comes from somebody else meanwhile. One that took a call and dropped it may have many callers,
// and gets Door::one_try.
constexpr std::chrono::milliseconds kCallTries{500}, kCallPause{20};

std::vector<Socket> only(Socket socket) {
  std::vector<Socket> sockets;
  sockets.push_back(std::move(socket));
  return sockets;
}

}  // namespace

TcpCalls::TcpCalls(Door door, const std::vector<Met>& others, SocketWatch& watch)
    : door_(std::move(door)),
      own_name_(cat("rank ", door_.card.rank, " on ", door_.card.host)),
      others_(others),
      watch_(watch),
      reception_(only(std::move(door_.listener)), door_.key, {door_.card.rank, door_.card.meeting},
                 own_name_) {
  for (const Met& other : others) connected_.push_back(static_cast<bool>(other.socket));
  watch_.add(reception_.watch().socket(), kDoor, EPOLLIN);
}

void TcpCalls::need(int rank, bool alone) {
  const bool at_once = alone || rank < door_.card.rank;
  const Deadline now = Clock::now(), when = at_once ? now : now + kCallPatience;
  const auto [call, is_new] = calls_.try_emplace(rank);
  if (is_new || when < call->second.next) call->second.next = when;
}

void TcpCalls::note(std::uint64_t key) {
  if (key == kDoor) rings_ = true;
  if (const auto call = calls_.find(static_cast<int>(key)); call != calls_.end())
    call->second.moves = true;
}

std::vector<TcpCalls::Made> TcpCalls::advance() {
  std::vector<Made> made;
  if (std::exchange(rings_, false) || reception_.visit_end() <= Clock::now())
    while (std::optional<Caller> caller = reception_.next({})) take(std::move(*caller), made);
  for (auto& [rank, call] : calls_)
    if (advance(rank, call)) made.push_back({rank, std::move(call.socket)});
  for (const Made& one : made) {
    connected_[static_cast<std::size_t>(one.rank)] = true;
    calls_.erase(one.rank);
  }
  return made;
}

// A caller that has left has hung up, or its call has crossed this process's own.
void TcpCalls::take(Caller caller, std::vector<Made>& made) {
  if (caller.socket.has_left()) return;
  const int rank = caller.card.rank, size = caller.card.size;
  const bool is_other =
      size == std::ssize(others_) && rank >= 0 && rank < size && rank != door_.card.rank;
  if (!is_other || connected_[static_cast<std::size_t>(rank)]) {
    log_warning(own_name_, ": turned away a process on ", caller.card.host,
                " that says it is rank ", rank, " of ", size);
    caller.answer(cat(kEndWord, own_name_, " expects no call of rank ", rank));
    return;
  }
  const auto own = calls_.find(rank);
  if (own != calls_.end() && own->second.introduction && rank < door_.card.rank) {
    caller.answer(kCalled);
    return;
  }
  if (!caller.answer(kWelcome)) return;
  if (own != calls_.end()) calls_.erase(own);
  connected_[static_cast<std::size_t>(rank)] = true;
  made.push_back({rank, std::move(caller.socket)});
}

bool TcpCalls::advance(int rank, Outgoing& call) {
  try {
    return introduce(rank, call);
  } catch (const OutOfFiles&) {
    throw;
  } catch (const Refused& error) {
    fail(rank, cat("does not take the call of rank ", door_.card.rank, ": ", error.what()));
  } catch (const CommError& error) {
    try_again(rank, call, error.what());
    return false;
  }
}

// Returns whether the other process has taken this one in.
bool TcpCalls::introduce(int rank, Outgoing& call) {
  const Deadline now = Clock::now();
  if (!call.socket) {
    if (now < call.next) return false;
    call.socket = Socket::begin_connect(*others_[static_cast<std::size_t>(rank)].way);
    call.until = now + door_.one_try;
    call.moves = true;
    watch_.add(call.socket, static_cast<std::uint64_t>(rank));
  }
  if (!std::exchange(call.moves, false) && now < call.until) return false;
  if (!call.introduction) {
    if (!call.socket.has_connected()) {
      if (now >= call.until) fail(rank, "cannot be reached: no answer");
      return false;
    }
    Card card = door_.card;
    card.callee = rank;
    call.introduction.emplace(door_.key, std::move(card));
    call.until = now + door_.one_try;
  }
  while (!call.introduction->is_over()) {
    LetterReader& letter = call.introduction->letter();
    const std::size_t count = call.socket.read_some(letter.space());
    if (count == 0) {
      if (now >= call.until) hang_up(rank, call);
      return false;
    }
    letter.add(count);
    if (!letter.whole()) continue;
    call.introduction->heard(call.socket);
    call.until = Clock::now() + door_.one_try;
  }
  if (!call.introduction->is_called()) return true;
  call = {.next = now + kCallPatience};
  return false;
}

// It may be stopped, for example by a debugger, so this ends no run: heartbeats tell who is lost.
void TcpCalls::hang_up(int rank, Outgoing& call) {
  const std::string why = call.introduction->silence();
  call = {.next = Clock::now() + kCallPause};  // closes first, so that no late answer counts
  silent_.tell(cat(own_name_, " calls rank ", rank, place_of(rank), " again: ", why));
}

void TcpCalls::try_again(int rank, Outgoing& call, const std::string& why) const {
  const Deadline now = Clock::now(), first = call.failed.value_or(now);
  const bool was_heard = call.introduction.has_value();
  if (now - first > (was_heard ? door_.one_try : kCallTries))
    fail(rank, cat("cannot be reached: ", why));
  call = {.next = now + kCallPause, .failed = first};
}

// " (at 10.0.0.7:1234)".
std::string TcpCalls::place_of(int rank) const {
  const HostAddress& way = *others_[static_cast<std::size_t>(rank)].way;
  return cat(" (at ", endpoint(way.str(), way.port()), ")");
}

void TcpCalls::fail(int rank, const std::string& why) const {
  blame_peer(rank, others_[static_cast<std::size_t>(rank)].host, cat(why, place_of(rank)));
}

Deadline TcpCalls::next_look() const {
  Deadline next = reception_.visit_end();
  for (const auto& [rank, call] : calls_)
    next = std::min(next, call.socket ? call.until : call.next);
  return next;
}

}  // namespace belfry::detail
