// Long messages of TcpPeer to a process of the same host, which reads them from this one's memory.
#include <algorithm>
#include <atomic>
#include <cstddef>

#include "belfry/framework/base/check_hash.h"
#include "belfry/framework/base/log.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/group/tags.h"
#include "belfry/framework/group/tcp_peer_impl.h"

namespace belfry::detail {
namespace {

// Says once that processes of one host cannot read each other's memory.
void warn_of_copies(const std::string& whom, const std::string& why) {
  static std::atomic<bool> told{false};
  if (!told.exchange(true))
    log_warning("cannot read the memory of ", whom, " (", why,
                "); messages between processes of this host go through TCP, which is slower");
}

}  // namespace

bool TcpPeer::offer(OutLane& lane) {
  GroupMessage& message = *lane.messages.front();
  const std::span<const std::byte> left = message.bytes.subspan(lane.framed);
  const std::span<const std::byte> next = left.first(std::min(left.size(), kMostAtOnce));
  lane.offered->add(next);
  lane.framed += next.size();
  if (next.size() < left.size()) return false;
  FrameHead head{.kind = FrameHead::kOffer,
                 .tag = static_cast<std::uint32_t>(message.tag),
                 .size = message.bytes.size(),
                 .word = lane.offered->value(),
                 .place = reinterpret_cast<std::uintptr_t>(message.bytes.data())};
  head.check = head.own_check();
  sent_ = {.head = head, .head_left = sizeof(FrameHead)};
  offered_.push_back(&message);
  lane.messages.pop_front();
  lane.framed = 0;
  lane.offered.reset();
  return true;
}

// Copies some of the oldest message that was offered, and hashes it while it is in cache. If the
// peer has withdrawn it, the connection soon says why.
bool TcpPeer::take() {
  Taking& taking = takings_.front();
  GroupMessage& message = *taking.into;
  const std::size_t left = message.bytes.size() - taking.have;
  const std::span<std::byte> next =
      message.bytes.subspan(message.use ? 0 : taking.have, std::min(kFrameBytes, left));
  try {
    const bool copied = theirs_->read(taking.place + taking.have, next);
    if (copied) {
      taking.hash.add(next);
      if (message.use) message.use(taking.have, next);
      taking.have += next.size();
      received_ += next.size();
      if (next.size() < left) return false;
    }
    withdrawn_ = !theirs_->has_pass();
    require<CommError>(copied || withdrawn_, "offers memory that cannot be read");
  } catch (const CommError& error) {
    fail(error.what());
  }
  if (withdrawn_) return false;
  const std::uint64_t size = message.bytes.size();
  if (taking.hash.value() != taking.word)
    fail_changed(cat("a message of ", size, " bytes (tag ", message.tag, ")"),
                 "the memory of this machine");
  message.done = true;
  takings_.pop_front();
  post_word(
      {.kind = FrameHead::kTaken, .tag = static_cast<std::uint32_t>(message.tag), .size = size});
  return true;
}

void TcpPeer::hear_offer() {
  if (!theirs_ || head_.tag > kEndTag || overtakes(static_cast<int>(head_.tag)) || !head_.place)
    fail("sends what is no message");
  const auto found = std::ranges::find(awaited_, static_cast<int>(head_.tag), &GroupMessage::tag);
  if (found == awaited_.end()) {
    if (!early_memory_.take(kCostOfEarly)) fail("sends more than this process can keep");
    early_.push_back({static_cast<int>(head_.tag), {}, head_.size, head_.place, head_.word});
    return;
  }
  require_size(**found, head_.size);
  takings_.push_back({*found, head_.place, head_.word});
  awaited_.erase(found);
}

void TcpPeer::hear_pass() {
  if (theirs_) fail("sends what is no message");
  if (!pass_) return;  // as far as this process knows, they are on two hosts
  std::string why;
  theirs_ = PeerMemory::open({head_.tag, head_.place, head_.word}, &why);
  if (theirs_) return post_word({.kind = FrameHead::kReads});
  warn_of_copies(cat("rank ", rank_, ", ", host), why);
}

}  // namespace belfry::detail
