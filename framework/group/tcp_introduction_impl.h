// What a process says to a listener of its run, letter by letter (tcp_greeting_impl.h). The caller
// of this moves the bytes, and decides how long to wait for them.
#pragma once
#include <optional>
#include <string>

#include "belfry/framework/group/socket_impl.h"
#include "belfry/framework/group/tcp_greeting_impl.h"

namespace belfry::detail {

// A process of this run does not take the caller in.
class RefusedByRun : public Refused {
 public:
  using Refused::Refused;
};

class Introduction {
 public:
  // `key` is borrowed. `card` is of this process, and says whom it calls.
  Introduction(const MeetingKey& key, Card card);
  // The letter of the listener that comes next, and what to say if it does not come.
  LetterReader& letter() { return seal_ ? answer_ : banner_; }
  const char* silence() const { return seal_ ? "it gives no answer" : "it says nothing"; }
  // That letter is whole. Answers it. Throws CommError if another try may succeed, else Refused.
  void heard(const Socket& socket);

  // Whether all has been said. Then the listener takes this process in, unless it calls it, too.
  bool is_over() const { return over_; }
  bool is_called() const { return called_; }
  // Once the listener has said something.
  const Seal& seal() const { return *seal_; }
  // Which process of which meeting the listener has proven to be, once all has been said.
  const Member& listener() const { return listener_; }

 private:
  void require_round(int round) const;
  void require_callee() const;

  const MeetingKey* key_;
  Card card_;
  LetterReader banner_{kMostBanner}, answer_{kMostAnswer};
  std::optional<Seal> seal_;
  Member listener_;
  bool over_ = false, called_ = false;
};

// What follows kEndWord.
std::string without_end_word(const std::string& text);

}  // namespace belfry::detail
