// Each process but rank 0 connects to it, and learns where the others listen.
#include <algorithm>
#include <optional>
#include <thread>
#include <utility>

#include <poll.h>

#include "belfry/framework/base/log.h"
#include "belfry/framework/base/option_name.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/group/tcp_meeting_impl.h"
#include "belfry/framework/group/tcp_peer_impl.h"

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

// Somebody accepts connections where a process of the run is expected, and does not answer like
// one: another program, or one that forwards connections to a process that has not started. So
// another try may succeed.
class Stranger : public CommError {
 public:
  using CommError::CommError;
};

// Whether another try would end the same way.
bool is_final(const CommError& error) {
  return dynamic_cast<const Refused*>(&error) || dynamic_cast<const OutOfFiles*>(&error);
}

// Rank 0 has welcomed this process.
struct Welcomed {
  Socket socket;
  Seal seal;
  std::string meeting;
};

class Follower {
 public:
  Follower(const TcpGroupOptions& options, const std::string& host)
      : options_(options),
        own_name_(cat("rank ", options.rank, " on ", host)),
        host_(host),
        key_(key_of(options)),
        first_(cat("rank 0 at ", endpoint(options.address, options.port),
                   options.ports == 1 ? "" : cat(" to ", options.port + options.ports - 1))),
        patience_(options.timeout) {}

  Meeting run() {
    Welcomed first = reach_first();
    const std::vector<Place> places = hear_places(first);
    const HostAddress own = first.socket.here(), there = first.socket.there();
    Meeting meeting;
    for (const Place& place : places) meeting.met.push_back({place.host});
    meeting.met[0].socket = std::move(first.socket);
    for (std::size_t r = 1; r < places.size(); ++r)
      if (std::cmp_not_equal(r, options_.rank)) meeting.met[r].way = way_to(places[r], own, there);
    meeting.door = {key_, card(), std::move(listener_), options_.one_try};
    meeting.door->card.meeting = first.meeting;
    return meeting;
  }

 private:
  // Tries until rank 0 welcomes this process.
  Welcomed reach_first() {
    std::string why;       // of the last try that had time
    std::string stranger;  // of the last Stranger
    for (RetryPause pause;; pause.wait(patience_.end())) try {
        return call_first();
      } catch (const Refused& error) {
        throw CommError(
            cat(own_name_, ": ", first_, " does not take this process in: ", error.what()));
      } catch (const CommError& error) {
        if (is_final(error)) throw;
        const bool strange = dynamic_cast<const Stranger*>(&error) != nullptr;
        if (why.empty() || !patience_.is_over()) why = error.what();
        if (strange) stranger = error.what();
        // If nobody accepts connections, the queue of the listener is full after some tries.
        const auto told = [&] {
          return stranger.empty() || stranger == why ? why : cat(why, "; before, ", stranger);
        };
        require<CommError>(!patience_.is_over(), own_name_, " has not reached ", first_, " in ",
                           patience_.seconds(), " s: ", told(), " (",
                           the_option("meeting_timeout_s"), " waits longer)");
        patience_.tell(
            [&] { return cat(own_name_, " does not reach ", first_, " so far: ", told()); },
            strange);
      }
  }

  // Tries each address of rank 0.
  Welcomed call_first() {
    std::string why;
    std::optional<Stranger> stranger;
    for (const HostAddress& address : addresses_of_first()) try {
        return call_ports(address, stranger);
      } catch (const CommError& error) {
        if (is_final(error)) throw;
        why += cat(why.empty() ? "" : ", ", address.str(), ": ", error.what());
      }
    if (stranger) throw *stranger;  // says more than that nobody listens at another address
    throw CommError(why);
  }

  // Tries each port at which rank 0 may listen. They share the time of one try. Another run may
  // listen at one of several.
  Welcomed call_ports(const HostAddress& address, std::optional<Stranger>& stranger) {
    const int last = options_.port + options_.ports - 1;
    for (int port = options_.port;; ++port) try {
        const HostAddress there = address.with_port(port);
        const Deadline until = Clock::now() + options_.one_try / options_.ports;
        Socket socket = Socket::connect_to(there, std::min(patience_.end(), until));
        listener_ = listen_beside(socket);
        return introduce(std::move(socket), there);
      } catch (const Stranger& found) {
        stranger = found;
        if (port == last) throw;
      } catch (const Refused& refused) {
        if (options_.ports == 1 || dynamic_cast<const RefusedByRun*>(&refused)) throw;
        stranger = Stranger(cat("at port ", port, ": ", refused.what()));
        if (port == last) throw *stranger;
      } catch (const CommError& error) {
        if (is_final(error) || port == last) throw;
      }
  }

  std::vector<HostAddress> addresses_of_first() const try {
    return look_up(options_.address, options_.port);
  } catch (const CommError& error) {
    throw CommError(cat(error.what(), " (MASTER_ADDR)"));
  }

  // The deadline of a try that begins now, or that now waits for its next answer.
  Deadline try_end() const { return std::min(patience_.end(), Clock::now() + options_.one_try); }

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

  Card card() const { return {options_.rank, options_.size, listener_.here().port(), host_}; }

  // Says who this process is, and waits for a welcome.
  Welcomed introduce(Socket socket, const HostAddress& there) {
    Introduction introduction(key_, card());
    while (!introduction.is_over()) {
      hear(socket, introduction.letter(), there, introduction.silence());
      introduction.heard(socket);
    }
    return {std::move(socket), introduction.seal(), introduction.listener().meeting};
  }

  // Reads the immediate answer of a listener. Throws Stranger if there is none.
  void hear(const Socket& socket, LetterReader& letter, const HostAddress& there,
            const std::string& silence) {
    const auto told = [&](const std::string& does) {
      return cat("something accepts connections at ", endpoint(there.str(), there.port()),
                 ", but does not answer as rank 0 of a Belfry run does: ", does,
                 "; see which program listens there (ss -ltnp), and let MASTER_ADDR and "
                 "MASTER_PORT name rank 0 and a free port");
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
      if (Clock::now() >= until) return false;
      patience_.tell([&] { return cat(own_name_, " waits for ", first_, ": ", silence); });
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

  const TcpGroupOptions& options_;
  const std::string own_name_;
  const std::string& host_;
  const MeetingKey key_;
  const std::string first_;  // "rank 0 at node1:29500"
  Patience patience_;
  Socket listener_;
};

}  // namespace

Meeting follow(const TcpGroupOptions& options, const std::string& host) {
  return Follower(options, host).run();
}

}  // namespace belfry::detail
