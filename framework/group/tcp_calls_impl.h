// Connections between processes that have met, made when they are needed. Each process listens
// during the run, and knows where all others do. Of two that need each other, the one of the higher
// rank calls. The other one calls if that takes long, or if only itself knows of the need. If both
// call at once, the call of the higher rank counts.
#pragma once
#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "belfry/framework/group/socket_impl.h"
#include "belfry/framework/group/tcp_introduction_impl.h"
#include "belfry/framework/group/tcp_reception_impl.h"

namespace belfry::detail {

// A process that this one knows from the meeting.
struct Met {
  std::string host;
  Socket socket = {};                   // empty: they are not connected so far
  std::optional<HostAddress> way = {};  // where it can be called
};

// How a process calls others, and is called.
struct Door {
  MeetingKey key;
  Card card;  // of this process
  Socket listener;
  // How long a call waits for an answer of the address, and then for each answer of the process
  // there.
  std::chrono::milliseconds one_try;
};

class TcpCalls {
 public:
  struct Made {
    int rank;
    Socket socket;
  };

  // `others`, by rank, are borrowed, and so is `watch`: it sees the sockets of calls, which have
  // their ranks as keys, and the door, which has kDoor.
  TcpCalls(Door door, const std::vector<Met>& others, SocketWatch& watch);
  static constexpr std::uint64_t kDoor = ~std::uint64_t{0} - 1;

  // This process needs a connection that it does not have. `alone`: the other one does not know.
  void need(int rank, bool alone);
  // There was an event with this key.
  void note(std::uint64_t key);
  // Does what can be done without waiting, and returns the new connections. Throws CommError that
  // names a process which cannot be reached.
  std::vector<Made> advance();
  // When advance() has something to do even without an event.
  Deadline next_look() const;

 private:
  struct Outgoing {
    Deadline next = {};  // when to call; while there is no socket
    Socket socket = {};
    bool moves = false;   // there may be something to read
    Deadline until = {};  // by then somebody must have answered at that address, or said all
    std::optional<Introduction> introduction = {};  // once somebody has answered
    std::optional<Deadline> failed = {};            // the first time
  };

  void take(Caller caller, std::vector<Made>& made);
  bool advance(int rank, Outgoing& call);
  bool introduce(int rank, Outgoing& call);
  void hang_up(int rank, Outgoing& call);
  void try_again(int rank, Outgoing& call, const std::string& why) const;
  std::string place_of(int rank) const;
  [[noreturn]] void fail(int rank, const std::string& why) const;

  Door door_;
  const std::string own_name_;
  const std::vector<Met>& others_;
  SocketWatch& watch_;
  Reception reception_;
  RareWarning silent_;
  bool rings_ = false;
  std::vector<char> connected_;  // by rank
  std::map<int, Outgoing> calls_;
};

}  // namespace belfry::detail
