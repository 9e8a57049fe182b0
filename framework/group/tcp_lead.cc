// Rank 0 waits for all other processes, then informs all where the others listen.
#include <optional>
#include <utility>

#include "belfry/framework/base/log.h"
#include "belfry/framework/base/option_name.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/group/tcp_meeting_impl.h"
#include "belfry/framework/group/tcp_reception_impl.h"

namespace belfry::detail {
namespace {

// Once all have connected, they have at least this long to take the table.
constexpr std::chrono::milliseconds kTableTime{60'000};
// How long rank 0 still answers when it ends all, for processes that are about to connect.
constexpr std::chrono::milliseconds kLastCalls{1'000};

class Leader {
 public:
  Leader(const TcpGroupOptions& options, const std::string& host)
      : options_(options),
        host_(host),
        key_(key_of(options)),
        patience_(options.timeout),
        guests_(static_cast<std::size_t>(options.size)),
        port_(options.port),
        reception_(listeners(), key_, {0, random_meeting()}, cat("rank 0 on ", host)) {}

  Meeting run() {
    if (!unknown_.empty())
      log_warning("rank 0 on ", host_, ": ", unknown_,
                  " (MASTER_ADDR); it listens at all addresses of this machine");
    if (port_ != options_.port)
      log_info("rank 0 on ", host_, " listens at port ", port_, ", because port ", options_.port,
               " is taken");
    for (std::vector<int> missing = missing_ranks(); !missing.empty(); missing = missing_ranks()) {
      std::optional<Caller> caller = reception_.next(patience_.next_look());
      const bool is_last = caller && missing.size() == 1;
      if (caller) admit(std::move(*caller));
      if (!caller || is_last) forget_who_left();
      if (!caller) wait_on(missing);
    }
    tell_places();
    return met();
  }

 private:
  // A process that has connected, and where others can connect to it.
  struct Guest {
    std::optional<Caller> caller;
    Place place;
  };

  // At the first port that is free.
  std::vector<Socket> listeners() {
    for (;; ++port_) try {
        return listen_at(options_.address, port_, &unknown_);
      } catch (const OutOfFiles&) {
        throw;
      } catch (const CommError& error) {
        if (port_ + 1 < options_.port + options_.ports) continue;
        throw CommError(
            cat("rank 0 ", error.what(),
                "; let all processes meet at another port (MASTER_PORT or BELFRY_PORT)"));
      }
  }

  std::vector<int> missing_ranks() const {
    std::vector<int> missing;
    for (int r = 1; r < options_.size; ++r)
      if (!guests_[static_cast<std::size_t>(r)].caller) missing.push_back(r);
    return missing;
  }

  void wait_on(const std::vector<int>& missing) {
    const std::string whom =
        cat(" at port ", port_, " for rank ", some_of(missing), " of ", options_.size);
    if (patience_.is_over())
      end_all(cat("rank 0 has waited ", patience_.seconds(), " s", whom,
                  "; start all processes, and let them reach ", options_.address,
                  unknown_.empty() ? "" : cat(" (MASTER_ADDR), but rank 0 itself ", unknown_), " (",
                  the_option("meeting_timeout_s"), " waits longer)"));
    patience_.tell([&] { return cat("rank 0 on ", host_, " waits", whom); });
  }

  void admit(Caller caller) {
    const std::string refusal = refuse(caller.card);
    if (!refusal.empty()) {
      caller.answer(cat(kEndWord, refusal));
      end_all(refusal);
    }
    Guest& guest = guests_[static_cast<std::size_t>(caller.card.rank)];
    guest.place = {caller.socket.there().str(), caller.card.port, caller.card.host};
    guest.caller.reset();
    if (caller.answer(kWelcome)) guest.caller.emplace(std::move(caller));
  }

  std::string refuse(const Card& card) const {
    if (card.size != options_.size)
      return cat("rank ", card.rank, " on ", card.host, " was started for ", card.size,
                 " processes, rank 0 for ", options_.size);
    if (card.rank < 1 || card.rank >= options_.size)
      return cat("a process on ", card.host, " says that it is rank ", card.rank, " of ",
                 options_.size);
    const Guest& known = guests_[static_cast<std::size_t>(card.rank)];
    if (known.caller && !known.caller->socket.has_left())
      return cat("two processes say that they are rank ", card.rank, ", on ", known.place.host,
                 " and on ", card.host);
    return "";
  }

  // A restarted process may still come.
  void forget_who_left() {
    for (std::size_t r = 1; r < guests_.size(); ++r) {
      if (!guests_[r].caller || !guests_[r].caller->socket.has_left()) continue;
      guests_[r].caller.reset();
      log_warning("rank ", r, " on ", guests_[r].place.host,
                  " has ended before all processes had met; rank 0 waits for it again");
    }
  }

  void tell_places() {
    std::vector<Place> places{{"-", 0, host_}};
    for (std::size_t r = 1; r < guests_.size(); ++r) places.push_back(guests_[r].place);
    const std::string table = table_of(places);
    patience_.extend(kTableTime);
    for (std::size_t r = 1; r < guests_.size(); ++r) try {
        const Caller& caller = *guests_[r].caller;
        caller.socket.write_all(letter(caller.seal.close("table", table)), patience_.end());
      } catch (const CommError& error) {
        end_all(cat("rank ", r, " on ", places[r].host, ": ", error.what()));
      }
  }

  Meeting met() {
    Meeting meeting;
    meeting.met.push_back({host_});
    for (std::size_t r = 1; r < guests_.size(); ++r)
      meeting.met.push_back({guests_[r].place.host, std::move(guests_[r].caller->socket)});
    return meeting;
  }

  [[noreturn]] void end_all(const std::string& why) {
    for (const Guest& guest : guests_)
      if (guest.caller)
        guest.caller->socket.write_now(
            letter(guest.caller->seal.close("table", cat(kEndWord, why))));
    const Deadline last = Deadline::clock::now() + kLastCalls;
    while (const std::optional<Caller> caller = reception_.next(last))
      caller->answer(cat(kEndWord, why));
    throw CommError(why);
  }

  const TcpGroupOptions& options_;
  const std::string& host_;
  const MeetingKey key_;
  Patience patience_;
  std::vector<Guest> guests_;  // by rank
  int port_;                   // where it listens
  std::string unknown_;        // why this machine does not know its own address; empty: it does
  Reception reception_;
};

}  // namespace

Meeting lead(const TcpGroupOptions& options, const std::string& host) {
  return Leader(options, host).run();
}

}  // namespace belfry::detail
