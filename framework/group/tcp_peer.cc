#include <algorithm>
#include <cerrno>
#include <cstring>
#include <tuple>
#include <utility>

#include <sys/socket.h>

#include "belfry/framework/base/text.h"
#include "belfry/framework/group/tcp_peer_impl.h"

namespace belfry::detail {
namespace {

constexpr std::uint32_t kTcpMagic = 0xbe1f2701;
// The tag of a last message that ends the receiver: its bytes say why.
constexpr std::uint32_t kTcpEndTag = 0xffffffff;
// The most bytes of such a reason.
constexpr std::uint64_t kLongestTcpReason = 1 << 16;
// The most bytes of a message that nobody has asked for yet, which takes memory of its own.
constexpr std::uint64_t kLongestEarlyMessage = std::uint64_t{1} << 32;

[[noreturn]] void fail_at(const std::string& name, const std::string& what) {
  throw CommError(cat(name, ": ", what));
}

}  // namespace

void TcpPeer::receive(GroupMessage& message) {
  const auto early = std::ranges::find(early_, message.tag, &Early::tag);
  if (early == early_.end()) return awaited_.push_back(&message);
  take(message, early->bytes);
  early_.erase(early);
}

bool TcpPeer::poll(const std::string& name) {
  // Read first: when no more can be sent, the reason that ends this process may have come.
  const bool received = !closed_ && read(name);
  if (closed_ && (!sending_.empty() || !awaited_.empty() || into_))
    fail_at(name, "the process has ended");
  return (!closed_ && write(name)) || received;
}

void TcpPeer::take(GroupMessage& message, std::span<const std::byte> bytes) {
  std::ranges::copy(bytes, message.bytes.begin());
  message.done = true;
}

std::size_t TcpPeer::move_out(std::span<const std::byte> bytes, const std::string& name) {
  const ssize_t moved =
      ::send(socket_.file(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  if (moved >= 0) return static_cast<std::size_t>(moved);
  if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)
    fail_at(name, cat("the connection is lost (", std::strerror(errno), ")"));
  return 0;
}

std::size_t TcpPeer::move_in(std::span<std::byte> bytes, const std::string& name) {
  const ssize_t moved = ::recv(socket_.file(), bytes.data(), bytes.size(), MSG_DONTWAIT);
  if (moved > 0) return static_cast<std::size_t>(moved);
  closed_ = moved == 0;
  if (closed_) return 0;
  if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)
    fail_at(name, cat("the connection is lost (", std::strerror(errno), ")"));
  return 0;
}

bool TcpPeer::write(const std::string& name) {
  bool done = false;
  while (!sending_.empty()) {
    GroupMessage& message = *sending_.front();
    if (sent_ == 0)
      sent_head_ = {static_cast<std::uint32_t>(message.tag), kTcpMagic, message.bytes.size()};
    const auto head = std::as_bytes(std::span(&sent_head_, 1));
    const std::size_t moved = sent_ < sizeof(Head)
                                  ? move_out(head.subspan(sent_), name)
                                  : move_out(message.bytes.subspan(sent_ - sizeof(Head)), name);
    sent_ += moved;
    if (sent_ == sizeof(Head) + message.bytes.size()) {
      message.done = done = true;
      sending_.pop_front();
      sent_ = 0;
    } else if (moved == 0) {
      break;
    }
  }
  return done;
}

bool TcpPeer::read(const std::string& name) {
  bool done = false;
  for (;;) {
    std::size_t moved = 0;
    if (read_ < sizeof(Head)) {
      moved = move_in(std::as_writable_bytes(std::span(&head_, 1)).subspan(read_), name);
      read_ += moved;
      if (read_ == sizeof(Head)) begin_message(name);
    } else {
      const std::span<std::byte> bytes = into_ ? into_->bytes : std::span(kept_);
      moved = move_in(bytes.subspan(read_ - sizeof(Head)), name);
      read_ += moved;
    }
    if (read_ >= sizeof(Head) && read_ == sizeof(Head) + head_.size)
      done = end_message(name) || done;
    else if (moved == 0)
      return done;
  }
}

void TcpPeer::begin_message(const std::string& name) {
  if (head_.magic != kTcpMagic) fail_at(name, "sends what is no message");
  if (head_.tag == kTcpEndTag) {
    kept_.resize(std::min(head_.size, kLongestTcpReason));
    return;
  }
  const auto found = std::ranges::find(awaited_, static_cast<int>(head_.tag), &GroupMessage::tag);
  if (found == awaited_.end()) {
    if (head_.size > kLongestEarlyMessage) fail_at(name, "sends what is no message");
    return kept_.resize(head_.size);
  }
  into_ = *found;
  awaited_.erase(found);
  if (into_->bytes.size() != head_.size)
    fail_at(name,
            cat("sends ", head_.size, " bytes where ", into_->bytes.size(), " are expected (tag ",
                head_.tag, "): the processes do not run the same plan"));
}

bool TcpPeer::end_message(const std::string& name) {
  read_ = 0;
  if (head_.tag == kTcpEndTag)
    fail_at(name, std::string(reinterpret_cast<const char*>(kept_.data()), kept_.size()));
  if (GroupMessage* const into = std::exchange(into_, nullptr)) return into->done = true;
  // Somebody may have asked for the message since it began to come in.
  const auto found = std::ranges::find(awaited_, static_cast<int>(head_.tag), &GroupMessage::tag);
  if (found == awaited_.end()) {
    early_.push_back({static_cast<int>(head_.tag), std::exchange(kept_, {})});
    return false;
  }
  take(**found, kept_);
  awaited_.erase(found);
  return true;
}

void TcpPeer::end_others(const std::string& why) noexcept {
  // A message that is half sent cannot be cut; the closed connection then says enough.
  if (sent_ > 0) return;
  const Head head{kTcpEndTag, kTcpMagic, std::min<std::uint64_t>(why.size(), kLongestTcpReason)};
  std::ignore = ::send(socket_.file(), &head, sizeof(head), MSG_NOSIGNAL | MSG_DONTWAIT);
  std::ignore = ::send(socket_.file(), why.data(), head.size, MSG_NOSIGNAL | MSG_DONTWAIT);
}

}  // namespace belfry::detail
