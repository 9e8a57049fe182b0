// How the processes of a run find each other. Rank 0 listens where all know; each other process
// connects to it, listens on any free port, and says which. Rank 0 tells all where the others are.
// These connect to each other when they need it (tcp_calls_impl.h).
#pragma once
#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "belfry/framework/group/socket_impl.h"
#include "belfry/framework/group/tcp_greeting_impl.h"
#include "belfry/framework/group/tcp_group.h"
#include "belfry/framework/group/tcp_messages_impl.h"

namespace belfry::detail {

// What a process has after the meeting.
struct Meeting {
  std::vector<Met> met;      // by rank; its own place has its host alone
  std::optional<Door> door;  // of rank 0: none, because all are connected to it
};

// Meets all other processes. `host` is the name of this machine. Throws as connect_tcp() does.
Meeting meet(const TcpGroupOptions& options, const std::string& host);

// By which the processes of this run know each other.
inline MeetingKey key_of(const TcpGroupOptions& options) {
  return {options.token + options.run, options.round};
}

// Its two sides: of rank 0, and of all other ranks.
Meeting lead(const TcpGroupOptions& options, const std::string& host);
Meeting follow(const TcpGroupOptions& options, const std::string& host);

// How long a process waits for others, and when it says so.
class Patience {
 public:
  explicit Patience(std::chrono::milliseconds most);

  Deadline end() const { return end_; }
  bool is_over() const;
  // When to check meanwhile whether all is well: in a second, or at the end.
  Deadline next_look() const;
  // Leaves at least that much time from now.
  void extend(std::chrono::milliseconds least);
  // Warns of what() after 5 s, and then every minute. `soon`: the first time at once.
  void tell(const std::function<std::string()>& what, bool soon = false);
  // The whole time in seconds: "300".
  std::string seconds() const;

 private:
  Deadline began_, end_, next_word_;
  bool has_told_ = false;
};

// "1, 2, 5 and 3 more".
std::string some_of(const std::vector<int>& ranks);

// Whether an address can be reached only from this machine, whatever names mean here: localhost,
// 127.0.0.1, ::1. Debian gives a machine's own name the address 127.0.1.1, so no other name counts.
bool is_loopback(const std::string& address);

// Where rank 0 listens: on the addresses of this machine that `address` means, or on all of them if
// others may know it by other addresses. `unknown` gets the reason if the name cannot be looked up
// here. Throws CommError.
std::vector<Socket> listen_at(const std::string& address, int port, std::string* unknown = nullptr);

// Where to connect to a process, for one that has reached rank 0 at `first`, from `own`.
HostAddress way_to(const Place& place, const HostAddress& own, const HostAddress& first);

}  // namespace belfry::detail
