// Each process but rank 0 learns from rank 0 where the others listen. It connects to lower ranks,
// and waits for higher ones.
#include <algorithm>
#include <optional>
#include <thread>
#include <utility>

#include <poll.h>

#include "belfry/framework/base/log.h"
#include "belfry/framework/base/option_name.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/group/tcp_meeting_impl.h"
#include "belfry/framework/group/tcp_messages_impl.h"
#include "belfry/framework/group/tcp_peer_impl.h"
#include "belfry/framework/group/tcp_reception_impl.h"

namespace belfry::detail {
namespace {

using Clock = std::chrono::steady_clock;

// Waits longer from try to try.
class RetryPause {
 public:
  void wait(Deadline end) {
    std::this_thread::sleep_until(std::min(end, Clock::now() + next_));
    next_ = std::min(2 * next_, kMost);
  }

 private:
  static constexpr std::chrono::milliseconds kMost{500};
  std::chrono::milliseconds next_{10};
};

// A process that this one has met has ended, so they will not all meet.
class MeetingOver : public CommError {
 public:
  using CommError::CommError;
};

// Somebody accepts connections where a process of the run is expected, and does not answer like
// one: another program, or one that forwards connections to a process that has not started. So
// another try may succeed.
class Stranger : public CommError {
 public:
  using CommError::CommError;
};

// Whether another try would end the same way.
bool is_final(const CommError& error) {
  return dynamic_cast<const Refused*>(&error) || dynamic_cast<const OutOfFiles*>(&error) ||
         dynamic_cast<const MeetingOver*>(&error);
}

constexpr std::string_view kFirstRole = "rank 0";

// A listener that has welcomed this process.
struct Welcomed {
  Socket socket;
  Seal seal;
};

class Follower {
 public:
  Follower(const TcpGroupOptions& options, const std::string& host)
      : options_(options),
        own_name_(cat("rank ", options.rank, " on ", host)),
        host_(host),
        key_(options.token, options.round),
        patience_(options.timeout),
        met_(static_cast<std::size_t>(options.size)) {}

  std::vector<Met> run() try {
    meet_lower();
    wait_for_higher();
    return std::move(met_);
  } catch (const CommError& error) {
    // Those that it has met may be ahead, and already read messages.
    make_tcp_group(options_.rank, host_, peers_of(std::move(met_)))->end_others(error.what());
    throw;
  }

 private:
  void meet_lower() {
    Welcomed first =
        reach(0, endpoint(options_.address, options_.port), [this] { return call_first(); });
    const std::vector<Place> places = hear_places(first);
    patience_.extend(kMeshTime);
    const HostAddress own = first.socket.here(), there = first.socket.there();
    met_[0].socket = std::move(first.socket);
    for (std::size_t r = 0; r < met_.size(); ++r) met_[r].host = places[r].host;
    for (std::size_t r = 1; r < static_cast<std::size_t>(options_.rank); ++r) {
      const HostAddress way = way_to(places[r], own, there);
      const std::string where = endpoint(way.str(), way.port());
      met_[r].socket = reach(r, where, [&] { return introduce(connect(way), way); }).socket;
    }
  }

  // Tries until a process welcomes this one.
  Welcomed reach(std::size_t rank, const std::string& where,
                 const std::function<Welcomed()>& call) {
    role_ = cat("rank ", rank);
    whom_ = cat(role_, role_ == kFirstRole ? "" : " on " + met_[rank].host, " at ", where);
    std::string why;       // of the last try that had time
    std::string stranger;  // of the last Stranger
    for (RetryPause pause;; pause.wait(patience_.end())) try {
        return call();
      } catch (const Refused& error) {
        throw CommError(
            cat(own_name_, ": ", whom_, " does not take this process in: ", error.what()));
      } catch (const CommError& error) {
        if (is_final(error)) throw;
        end_with_others();
        const bool strange = dynamic_cast<const Stranger*>(&error) != nullptr;
        if (why.empty() || !patience_.is_over()) why = error.what();
        if (strange) stranger = error.what();
        // If nobody accepts connections, the queue of the listener is full after some tries.
        const auto told = [&] {
          return stranger.empty() || stranger == why ? why : cat(why, "; before, ", stranger);
        };
        require<CommError>(!patience_.is_over(), own_name_, " has not reached ", whom_, " in ",
                           patience_.seconds(), " s: ", told(), " (",
                           the_option("meeting_timeout_s"), " waits longer)");
        patience_.tell(
            [&] { return cat(own_name_, " does not reach ", whom_, " so far: ", told()); },
            strange);
      }
  }

  // Tries each address of rank 0.
  Welcomed call_first() {
    std::string why;
    std::optional<Stranger> stranger;
    for (const HostAddress& address : addresses_of_first()) try {
        Socket socket = connect(address);
        listener_ = listen_beside(socket);
        return introduce(std::move(socket), address);
      } catch (const Stranger& found) {
        stranger = found;
      } catch (const CommError& error) {
        if (is_final(error)) throw;
        why += cat(why.empty() ? "" : ", ", address.str(), ": ", error.what());
      }
    if (stranger) throw *stranger;  // says more than that nobody listens at another address
    throw CommError(why);
  }

  std::vector<HostAddress> addresses_of_first() const try {
    return look_up(options_.address, options_.port);
  } catch (const CommError& error) {
    throw CommError(cat(error.what(), " (MASTER_ADDR)"));
  }

  // The deadline of a try that begins now, or that now waits for its next answer.
  Deadline try_end() const { return std::min(patience_.end(), Clock::now() + options_.one_try); }

  Socket connect(const HostAddress& address) const {
    return Socket::connect_to(address, try_end());
  }

  // Listens on the address by which this process reaches rank 0, so that no other network sees the
  // port. If it is on the machine of rank 0, it does not know by which address others come.
  Socket listen_beside(const Socket& to_first) const {
    const HostAddress here = to_first.here();
    if (here.is_loopback() && !is_loopback(options_.address)) return Socket::listen_everywhere(0);
    Socket listener = Socket::listen_on(here.with_port(0));
    require<CommError>(static_cast<bool>(listener), "this machine has lost the address ",
                       here.str());
    return listener;
  }

  // Says who this process is, and waits for a welcome.
  Welcomed introduce(Socket socket, const HostAddress& there) {
    LetterReader first(kMostBanner), second(kMostAnswer);
    hear(socket, first, there, "it says nothing");
    const Banner banner = Banner::read(first.body());
    require_round(banner.round);
    const std::string nonce = random_nonce();
    const Seal seal(key_, banner.nonce, nonce);
    const Card card{options_.rank, options_.size, listener_.here().port(), host_};
    socket.write_all(letter(Call{nonce, key_.round, seal.close("card", card.str())}.body()),
                     patience_.end());
    hear(socket, second, there, "it gives no answer");
    const std::optional<std::string> answer = seal.open("answer", second.body());
    require<Refused>(answer.has_value(), "it has another token (BELFRY_TOKEN)");
    require<Refused>(*answer == kWelcome, without_end_word(*answer));
    return {std::move(socket), seal};
  }

  // A process of an earlier start ends soon. That of a later one has replaced this one.
  void require_round(int round) const {
    const std::string why = cat("it is of start ", round, " of the run, this process of start ",
                                key_.round, " (TORCHELASTIC_RESTART_COUNT)");
    require<Refused>(round <= key_.round, why);
    require<CommError>(round == key_.round, why);
  }

  static std::string without_end_word(const std::string& text) {
    return text.starts_with(kEndWord) ? text.substr(kEndWord.size())
                                      : "it says what makes no sense";
  }

  // Reads the immediate answer of a listener. Throws Stranger if there is none.
  void hear(const Socket& socket, LetterReader& letter, const HostAddress& there,
            const std::string& silence) {
    const auto told = [&](const std::string& does) {
      return cat("something accepts connections at ", endpoint(there.str(), there.port()),
                 ", but does not answer as ", role_, " of a Belfry run does: ", does,
                 role_ == kFirstRole ? "; see which program listens there (ss -ltnp), and let "
                                       "MASTER_ADDR and MASTER_PORT name rank 0 and a free port"
                                     : "");
    };
    bool whole = false;
    try {
      whole = read(socket, letter, try_end(), told(silence));
    } catch (const CommError& error) {
      if (is_final(error)) throw;
      throw Stranger(told(error.what()));
    }
    require<Stranger>(whole, told(silence));
  }

  // Reads a letter, and logs `silence` if that takes long. Returns false at the deadline.
  bool read(const Socket& socket, LetterReader& letter, Deadline until,
            const std::string& silence) {
    while (!letter.whole()) {
      if (await(socket.file(), POLLIN, std::min(until, patience_.next_look()))) {
        letter.add(socket.read_some(letter.space()));
        continue;
      }
      end_with_others();
      if (Clock::now() >= until) return false;
      patience_.tell([&] { return cat(own_name_, " waits for ", whom_, ": ", silence); });
    }
    return true;
  }

  std::vector<Place> hear_places(const Welcomed& first) {
    patience_.extend(options_.timeout);  // rank 0 has begun to wait before now, and says if it ends
    LetterReader letter(most_in_table(options_.size));
    try {
      const std::string silence = "it has not met all others so far";
      require<CommError>(read(first.socket, letter, patience_.end(), silence), silence);
    } catch (const CommError& error) {
      throw CommError(
          cat(own_name_, ": rank 0 has not brought all processes together: ", error.what()));
    }
    const std::optional<std::string> table = first.seal.open("table", letter.body());
    require<CommError>(table.has_value(), own_name_, ": the words of rank 0 were changed");
    if (table->starts_with(kEndWord)) throw CommError(without_end_word(*table));
    try {
      return read_table(*table, options_.size);
    } catch (const CommError& error) {
      throw CommError(cat(own_name_, " cannot read where the others are: ", error.what()));
    }
  }

  void wait_for_higher() {
    std::vector<Socket> listeners;
    listeners.push_back(std::move(listener_));
    Reception reception(std::move(listeners), key_, own_name_);
    for (std::vector<int> missing = missing_ranks(); !missing.empty(); missing = missing_ranks()) {
      if (std::optional<Caller> caller = reception.next(patience_.next_look())) {
        take(std::move(*caller));
        continue;
      }
      end_with_others();
      const std::string whom = cat(" for a call of rank ", some_of(missing));
      require<CommError>(!patience_.is_over(), own_name_, " has waited ", patience_.seconds(), " s",
                         whom);
      patience_.tell([&] { return cat(own_name_, " waits", whom); });
    }
  }

  std::vector<int> missing_ranks() const {
    std::vector<int> missing;
    for (int r = options_.rank + 1; r < options_.size; ++r)
      if (!met_[static_cast<std::size_t>(r)].socket) missing.push_back(r);
    return missing;
  }

  // Rank 0 has already refused impossible ranks. So whoever has one now is not of the run.
  void take(Caller caller) {
    const auto rank = static_cast<std::size_t>(caller.card.rank);
    const bool is_higher = caller.card.rank > options_.rank && caller.card.rank < options_.size;
    if (!is_higher || caller.card.size != options_.size ||
        (met_[rank].socket && !met_[rank].socket.has_left())) {
      log_warning(own_name_, ": turned away a process on ", caller.card.host,
                  " that says it is rank ", caller.card.rank, " of ", caller.card.size);
      caller.answer(cat(kEndWord, own_name_, " does not wait for rank ", caller.card.rank));
      return;
    }
    met_[rank].socket = Socket();
    if (caller.answer(kWelcome)) met_[rank].socket = std::move(caller.socket);
  }

  // Throws if a process that this one has met has ended. It may have given the reason.
  void end_with_others() {
    for (std::size_t r = 0; r < met_.size(); ++r) {
      if (!met_[r].socket || !met_[r].socket.has_left()) continue;
      EarlyMemory of_reason(1 << 20);
      TcpPeer peer(std::move(met_[r].socket), met_[r].host);
      peer.join(static_cast<int>(r), options_.rank, of_reason);
      try {
        peer.poll();
      } catch (const CommError& reason) {
        throw MeetingOver(reason.what());
      }
      throw MeetingOver(
          cat("rank ", r, ", ", met_[r].host, ": it has ended before all processes had met"));
    }
  }

  const TcpGroupOptions& options_;
  const std::string own_name_;
  const std::string& host_;
  const MeetingKey key_;
  Patience patience_;
  std::vector<Met> met_;     // by rank
  std::string role_, whom_;  // of the process that it calls: "rank 0", "rank 0 at node1:29500"
  Socket listener_;
};

}  // namespace

std::vector<Met> follow(const TcpGroupOptions& options, const std::string& host) {
  return Follower(options, host).run();
}

}  // namespace belfry::detail
