// The door of a process that others connect to: many greetings at once, each with little time.
// Whoever does not prove that it has the token is turned away, and can do nothing else here.
#pragma once
#include <chrono>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "belfry/framework/group/socket_impl.h"
#include "belfry/framework/group/tcp_greeting_impl.h"

namespace belfry::detail {

// A process that has connected, and has the token. It waits for an answer.
struct Caller {
  // Seals and sends without waiting. Returns false if the caller does not take it.
  bool answer(std::string_view text) const;

  Socket socket;
  Seal seal;
  Member listener;  // who answers
  Card card = {};
};

// A warning at most every ten seconds.
class RareWarning {
 public:
  void tell(const std::string& text);

 private:
  Deadline next_ = {};
  int left_out_ = 0;
};

class Reception {
 public:
  // How long a caller may take to identify itself, and how many may be doing so at once.
  static constexpr std::chrono::milliseconds kVisit{2'000};
  static constexpr std::size_t kMostVisitors = 256;

  // `self` is this process, and `who` names it in the log. `key` is borrowed.
  Reception(std::vector<Socket> listeners, const MeetingKey& key, Member self, std::string who,
            std::chrono::milliseconds visit = kVisit);
  // The next caller that has the token and wants to reach this process, which it has met unless
  // this is rank 0; none if no such caller has come by then. Throws OutOfFiles if this process
  // cannot take another connection.
  std::optional<Caller> next(Deadline until);
  // An event of this watch says that next() has something to do.
  const SocketWatch& watch() const { return watch_; }
  // When a visitor's time ends; none is there: never.
  Deadline visit_end() const {
    return visitors_.empty() ? Deadline::max() : visitors_.front().until;
  }

 private:
  struct Visitor {
    Socket socket;
    std::string from, nonce;
    LetterReader call{kMostCall};
    Deadline until;
    bool done = false;
  };

  void watch(const Socket& socket);
  void look(std::chrono::nanoseconds most);
  void accept_all(const Socket& listener);
  void hear(Visitor& visitor);
  void read_call(Visitor& visitor);
  void read_card(Caller caller, const std::string& text, const std::string& from);
  std::string refuse(const Card& card) const;
  void turn_away(Visitor& visitor, const std::string& why);
  void forget_done();

  const std::vector<Socket> listeners_;
  const MeetingKey& key_;
  const Member self_;
  const std::string who_;
  const std::chrono::milliseconds visit_;
  SocketWatch watch_;             // of all sockets here, by their files
  std::deque<Visitor> visitors_;  // the one with the least time is first
  std::deque<Caller> callers_;
  RareWarning strangers_, other_tokens_, unreadable_, others_;
};

}  // namespace belfry::detail
