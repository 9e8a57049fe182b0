#include <algorithm>
#include <utility>

#include "belfry/framework/base/log.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/group/tcp_reception_impl.h"

namespace belfry::detail {

using Clock = std::chrono::steady_clock;

bool Caller::answer(std::string_view text) const {
  return socket.write_now(letter(seal.close("answer", Answer{listener, std::string(text)}.str())));
}

void RareWarning::tell(const std::string& text) {
  constexpr std::chrono::seconds kPause{10};
  const auto now = Clock::now();
  if (now < next_) {
    ++left_out_;
    return;
  }
  log_warning(text, left_out_ > 0 ? cat(" (and ", left_out_, " more before)") : "");
  next_ = now + kPause;
  left_out_ = 0;
}

Reception::Reception(std::vector<Socket> listeners, const MeetingKey& key, Member self,
                     std::string who, std::chrono::milliseconds visit)
    : listeners_(std::move(listeners)),
      key_(key),
      self_(std::move(self)),
      who_(std::move(who)),
      visit_(visit) {
  for (const Socket& listener : listeners_) watch(listener);
}

// As long as there is something to read, or to accept.
void Reception::watch(const Socket& socket) {
  watch_.add(socket, static_cast<std::uint64_t>(socket.file()), EPOLLIN);
}

std::optional<Caller> Reception::next(Deadline until) {
  for (bool last = false;;) {
    if (!callers_.empty()) {
      Caller caller = std::move(callers_.front());
      callers_.pop_front();
      return caller;
    }
    const auto now = Clock::now();
    for (Visitor& visitor : visitors_)
      if (visitor.until <= now) turn_away(visitor, "it has not said who it is in time");
    forget_done();
    if (last) return std::nullopt;
    last = now >= until;
    look(std::min(until, visit_end()) - now);
  }
}

// Waits for an event, at most that long, and handles those that are ready.
void Reception::look(std::chrono::nanoseconds most) {
  for (const epoll_event& event : watch_.look(most)) {
    const auto is_of = [&](const auto& socket) {
      return static_cast<std::uint64_t>(socket.file()) == event.data.u64;
    };
    const auto visitor =
        std::ranges::find_if(visitors_, [&](const Visitor& v) { return is_of(v.socket); });
    if (visitor != visitors_.end())
      hear(*visitor);
    else if (const auto listener = std::ranges::find_if(listeners_, is_of);
             listener != listeners_.end())
      accept_all(*listener);
  }
  forget_done();
}

// No more at a time than the present ones can wait for.
void Reception::accept_all(const Socket& listener) {
  constexpr int kMostAtOnce = 64;
  for (int i = 0; i < kMostAtOnce; ++i) {
    if (visitors_.size() == kMostVisitors) {
      turn_away(visitors_.front(), "too many call at once");
      forget_done();
    }
    Socket socket;
    std::string from;
    try {
      socket = listener.accept_one(&from);
    } catch (const OutOfFiles&) {
      if (visitors_.empty()) throw;
      turn_away(visitors_.front(), "this process has too many open files");
      forget_done();
      continue;
    }
    if (!socket) return;
    Visitor visitor{.socket = std::move(socket),
                    .from = std::move(from),
                    .nonce = random_nonce(),
                    .until = Clock::now() + visit_};
    if (!visitor.socket.write_now(letter(Banner{visitor.nonce, key_.round}.body()))) continue;
    watch(visitor.socket);
    visitors_.push_back(std::move(visitor));
  }
}

void Reception::hear(Visitor& visitor) {
  try {
    for (;;) {
      const std::size_t count = visitor.socket.read_some(visitor.call.space());
      if (count == 0) return;
      visitor.call.add(count);
      if (visitor.call.whole()) return read_call(visitor);
    }
  } catch (const CommError& error) {
    turn_away(visitor, error.what());
  }
}

void Reception::read_call(Visitor& visitor) {
  const Call call = Call::read(visitor.call.body());
  watch_.remove(visitor.socket);
  Caller caller{std::move(visitor.socket), Seal(key_, visitor.nonce, call.nonce), self_};
  visitor.done = true;
  if (const std::optional<std::string> card = caller.seal.open("card", call.sealed))
    return read_card(std::move(caller), *card, visitor.from);
  // The caller finds out itself that this seal is of another token.
  caller.answer("end");
  other_tokens_.tell(
      cat(who_, ": turned away a process from ", visitor.from, ": ",
          call.round == key_.round
              ? "it has another token (BELFRY_TOKEN)"
              : cat("it is of start ", call.round, " of the run, this one of start ", key_.round,
                    " (TORCHELASTIC_RESTART_COUNT, SLURM_RESTART_COUNT)")));
}

// The seal is right, so the caller is of this run, but perhaps of another version. Both sides
// report that.
void Reception::read_card(Caller caller, const std::string& text, const std::string& from) {
  try {
    caller.card = Card::read(text);
    const std::string refusal = refuse(caller.card);
    if (refusal.empty()) return callers_.push_back(std::move(caller));
    caller.answer(cat(kEndWord, refusal));
    others_.tell(cat(who_, ": turned away rank ", caller.card.rank, " on ", caller.card.host, ": ",
                     refusal));
  } catch (const CommError& error) {
    const std::string why =
        cat(error.what(), "; start all processes with the same version of Belfry");
    caller.answer(cat(kEndWord, who_, " cannot read who calls: ", why));
    unreadable_.tell(cat(who_, ": turned away a process from ", from,
                         ", which has the token, but does not say who it is: ", why));
  }
}

// A process left over from another run with this token may still call where it has met somebody.
std::string Reception::refuse(const Card& card) const {
  const std::string_view own = self_.rank == 0 ? kNoMeeting : std::string_view(self_.meeting);
  if (card.meeting != own && card.meeting != kNoMeeting) return std::string(kOtherMeeting);
  if (card.callee != self_.rank) return cat("it wants to reach rank ", card.callee);
  return card.meeting == own ? "" : "it has not met this run yet";
}

// Connections closed without a word, such as port probes, are not worth a line.
void Reception::turn_away(Visitor& visitor, const std::string& why) {
  if (visitor.done) return;
  visitor.done = true;
  const std::string text = cat(who_, ": turned away a connection from ", visitor.from, ": ", why);
  if (visitor.call.empty())
    log_debug(text);
  else
    strangers_.tell(text);
}

void Reception::forget_done() { std::erase_if(visitors_, &Visitor::done); }

}  // namespace belfry::detail
