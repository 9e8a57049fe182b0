#include <utility>

#include "belfry/framework/base/require.h"
#include "belfry/framework/group/tcp_introduction_impl.h"

namespace belfry::detail {

Introduction::Introduction(const MeetingKey& key, Card card) : key_(&key), card_(std::move(card)) {}

void Introduction::heard(const Socket& socket) {
  if (!seal_) {
    const Banner banner = Banner::read(banner_.body());
    require_round(banner.round);
    const std::string nonce = random_nonce();
    seal_.emplace(*key_, banner.nonce, nonce);
    const bool sent = socket.write_now(
        detail::letter(Call{nonce, key_->round, seal_->close("card", card_.str())}.body()));
    require<CommError>(sent, "it takes no message");
    return;
  }
  const std::optional<std::string> opened = seal_->open("answer", answer_.body());
  require<Refused>(opened.has_value(), "it has another token (BELFRY_TOKEN)");
  const Answer answer = Answer::read(*opened);
  listener_ = answer.from;
  require_callee();
  over_ = true;
  called_ = answer.text == kCalled;
  require<RefusedByRun>(called_ || answer.text == kWelcome, without_end_word(answer.text));
}

// At the address of the callee there may now be a process of another run with the same token. Rank
// 0 tells which meeting this is.
void Introduction::require_callee() const {
  require<Refused>(card_.callee == 0 || listener_.meeting == card_.meeting, kOtherMeeting);
  require<Refused>(listener_.rank == card_.callee, "it is rank ", listener_.rank);
}

// A process of an earlier start ends soon. That of a later one has replaced this one.
void Introduction::require_round(int round) const {
  const std::string why = cat("it is of start ", round, " of the run, this process of start ",
                              key_->round, " (TORCHELASTIC_RESTART_COUNT, SLURM_RESTART_COUNT)");
  require<Refused>(round <= key_->round, why);
  require<CommError>(round == key_->round, why);
}

std::string without_end_word(const std::string& text) {
  return text.starts_with(kEndWord) ? text.substr(kEndWord.size()) : "it says what makes no sense";
}

}  // namespace belfry::detail
