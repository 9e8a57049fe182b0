#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/group/peer_error.h"
#include "belfry/framework/group/tags.h"
#include "belfry/framework/group/tcp_peer_impl.h"

namespace belfry::detail {
namespace {

constexpr std::uint32_t kTcpMagic = 0xbe1f2702;
// What an early message costs in addition to its bytes: a rough lower bound.
constexpr std::size_t kCostOfEarly = 4096;
// The most bytes to move at once, before it is the others' turn.
constexpr std::size_t kMostTcpBytesAtOnce = 4 << 20;
// The most bytes that the system keeps unsent: a message that overtakes must wait for them.
constexpr int kMostUnsent = 1 << 20;

bool may_try_again() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

}  // namespace

bool EarlyMemory::take(std::size_t bytes) {
  if (bytes > left_) return false;
  left_ -= bytes;
  return true;
}

TcpPeer::TcpPeer(Socket socket, std::string on) : host(std::move(on)), socket_(std::move(socket)) {
  ::setsockopt(socket_.file(), IPPROTO_TCP, TCP_NOTSENT_LOWAT, &kMostUnsent, sizeof(kMostUnsent));
}

void TcpPeer::join(int rank, EarlyMemory& early) {
  rank_ = rank;
  early_memory_ = &early;
}

void TcpPeer::fail(const std::string& what) const { blame_peer(rank_, host, what); }

void TcpPeer::require_size(const GroupMessage& message, std::uint64_t size) const {
  if (message.bytes.size() == size) return;
  fail(cat("sends ", size, " bytes where ", message.bytes.size(), " are expected (tag ",
           message.tag, "): the processes do not run the same plan"));
}

void TcpPeer::send(GroupMessage& message) {
  out_[overtakes(message.tag)].messages.push_back(&message);
}

void TcpPeer::receive(GroupMessage& message) {
  const auto early = std::ranges::find(early_, message.tag, &Early::tag);
  if (early != early_.end()) {
    require_size(message, early->bytes.size());
    std::ranges::copy(early->bytes, message.bytes.begin());
    give_back(early->bytes);
    early_.erase(early);
    message.done = true;
    return;
  }
  InLane& lane = in_[overtakes(message.tag)];
  if (!lane.begun || lane.into || lane.tag != message.tag) return awaited_.push_back(&message);
  // The rest of the message goes straight to its destination.
  require_size(message, lane.size);
  std::copy_n(lane.kept.begin(), lane.have, message.bytes.begin());
  give_back(lane.kept);
  lane.kept = {};
  lane.into = &message;
}

bool TcpPeer::poll() {
  if (forgotten_) return false;
  // Read first: when nothing more can be sent, the reason that ends this process may have arrived.
  const bool received = !closed_ && read();
  const bool waits =
      std::ranges::any_of(awaited_, [](auto* message) { return !may_never_come(message->tag); }) ||
      in_[0].into || in_[1].into || !out_[0].messages.empty() || !out_[1].messages.empty();
  if (closed_ && waits) fail("the process has ended");
  return (!closed_ && write()) || received;
}

std::size_t TcpPeer::move_out() {
  const std::size_t head_sent = sizeof(Head) - sent_.head_left;
  iovec parts[] = {{reinterpret_cast<std::byte*>(&sent_.head) + head_sent, sent_.head_left},
                   {const_cast<std::byte*>(sent_.body.data()), sent_.body.size()}};
  msghdr message{};
  message.msg_iov = parts;
  message.msg_iovlen = std::size(parts);
  const ssize_t sent = ::sendmsg(socket_.file(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent < 0 && !may_try_again())
    fail(cat("the connection is lost (", std::strerror(errno), ")"));
  const auto moved = static_cast<std::size_t>(std::max<ssize_t>(0, sent));
  const std::size_t of_head = std::min(moved, sent_.head_left);
  sent_.head_left -= of_head;
  sent_.body = sent_.body.subspan(moved - of_head);
  return moved;
}

std::size_t TcpPeer::move_in(std::span<std::byte> bytes) {
  const ssize_t moved = ::recv(socket_.file(), bytes.data(), bytes.size(), MSG_DONTWAIT);
  if (moved < 0 && !may_try_again())
    fail(cat("the connection is lost (", std::strerror(errno), ")"));
  closed_ = moved == 0;
  if (moved <= 0) return 0;
  received_ += static_cast<std::uint64_t>(moved);
  return static_cast<std::size_t>(moved);
}

bool TcpPeer::write() {
  bool done = false;
  for (std::size_t all = 0; all < kMostTcpBytesAtOnce;) {
    if (sent_.is_over() && !begin_out_frame()) break;
    const std::size_t moved = move_out();
    all += moved;
    if (sent_.is_over())
      done = end_out_frame() || done;
    else if (moved == 0)
      break;
  }
  return done;
}

bool TcpPeer::begin_out_frame() {
  OutLane& lane = out_[out_[1].messages.empty() ? 0 : 1];
  if (lane.messages.empty()) return false;
  const GroupMessage& message = *lane.messages.front();
  const std::span<const std::byte> left = message.bytes.subspan(lane.framed);
  sent_ = {&lane,
           {static_cast<std::uint32_t>(message.tag), kTcpMagic, message.bytes.size()},
           sizeof(Head),
           left.first(std::min(left.size(), kFrameBytes))};
  lane.framed += sent_.body.size();
  return true;
}

bool TcpPeer::end_out_frame() {
  OutLane* const lane = std::exchange(sent_.lane, nullptr);
  if (!lane || lane->framed < lane->messages.front()->bytes.size()) return false;
  lane->messages.front()->done = true;
  lane->messages.pop_front();
  lane->framed = 0;
  return true;
}

bool TcpPeer::read() {
  bool done = false;
  for (std::size_t all = 0; all < kMostTcpBytesAtOnce;) {
    std::size_t moved = 0;
    if (comes_) {
      moved = move_in(place());
      comes_->have += moved;
      frame_left_ -= moved;
    } else {
      moved = move_in(std::as_writable_bytes(std::span(&head_, 1)).subspan(head_read_));
      head_read_ += moved;
      if (head_read_ == sizeof(Head)) begin_in_frame();
    }
    all += moved;
    if (comes_ && frame_left_ == 0)
      done = end_in_frame() || done;
    else if (moved == 0)
      break;
  }
  return done;
}

void TcpPeer::begin_in_frame() {
  head_read_ = 0;
  if (head_.magic != kTcpMagic || head_.tag > kEndTag) fail("sends what is no message");
  InLane& lane = in_[overtakes(static_cast<int>(head_.tag))];
  if (!lane.begun) begin_message(lane);
  if (lane.tag != static_cast<int>(head_.tag) || lane.size != head_.size)
    fail("sends what is no message");
  comes_ = &lane;
  frame_left_ = std::min<std::uint64_t>(lane.size - lane.have, kFrameBytes);
}

void TcpPeer::begin_message(InLane& lane) {
  lane.begun = true;
  lane.tag = static_cast<int>(head_.tag);
  lane.size = head_.size;
  lane.have = 0;
  const auto found = std::ranges::find(awaited_, lane.tag, &GroupMessage::tag);
  if (found != awaited_.end()) {
    require_size(**found, lane.size);
    lane.into = *found;
    awaited_.erase(found);
    return;
  }
  if (lane.tag == kEndTag && lane.size > kLongestReason) fail("sends what is no message");
  if (!early_memory_->take(kCostOfEarly)) fail("sends more than this process can keep");
}

// Where the next bytes of the frame go.
std::span<std::byte> TcpPeer::place() {
  constexpr std::size_t kFirst = 16 << 10;
  InLane& lane = *comes_;
  if (lane.into) return lane.into->bytes.subspan(lane.have, frame_left_);
  std::vector<std::byte>& kept = lane.kept;
  if (kept.size() == lane.have) {
    const std::size_t had = kept.size();
    const std::size_t size = std::min<std::uint64_t>(lane.size, std::max(kFirst, 2 * had));
    if (!early_memory_->take(size - had))
      fail(cat("sends more messages early than this process can keep; the last one has tag ",
               lane.tag, " and ", lane.size, " bytes"));
    kept.resize(size);
  }
  return std::span(kept).subspan(lane.have).first(std::min(frame_left_, kept.size() - lane.have));
}

bool TcpPeer::end_in_frame() {
  InLane& lane = *std::exchange(comes_, nullptr);
  if (lane.have < lane.size) return false;
  lane.begun = false;
  std::vector<std::byte> kept = std::exchange(lane.kept, {});
  if (lane.tag == kEndTag)
    throw_reason(rank_, host, {reinterpret_cast<const char*>(kept.data()), kept.size()});
  if (GroupMessage* const into = std::exchange(lane.into, nullptr)) return into->done = true;
  early_.push_back({lane.tag, std::move(kept)});
  return false;
}

void TcpPeer::give_back(const std::vector<std::byte>& kept) {
  early_memory_->give_back(kept.size() + kCostOfEarly);
}

void TcpPeer::forget_messages() noexcept {
  if (std::exchange(forgotten_, true)) return;
  for (OutLane& lane : out_) lane = {};
  for (InLane& lane : in_) lane = {};
  comes_ = nullptr;
  awaited_.clear();
  sent_.lane = nullptr;
  try {
    rest_.assign(sent_.body.begin(), sent_.body.end());
    sent_.body = rest_;
  } catch (const std::bad_alloc&) {
    closed_ = true;  // nothing more can be sent after half a frame
  }
}

void TcpPeer::end(const std::string& why) noexcept {
  if (!reason_.empty() || closed_) return;
  try {
    reason_ = why.empty() ? "it gives no reason" : why.substr(0, kLongestReason);
    ending_ = {rank_, kEndTag, std::as_writable_bytes(std::span(reason_.data(), reason_.size()))};
    send(ending_);
  } catch (const std::bad_alloc&) {
    closed_ = true;
  }
}

// Bytes that arrive meanwhile are dropped. If any were left when the socket closes, the system
// would reset the connection, and the reason might be lost.
bool TcpPeer::has_ended() noexcept try {
  if (closed_) return true;
  static thread_local std::array<std::byte, 64 << 10> dropped;
  for (int i = 0; i < 16 && move_in(dropped) > 0; ++i) {
  }
  if (closed_) return true;
  write();
  int unsent = 0;
  return ending_.done && (::ioctl(socket_.file(), SIOCOUTQ, &unsent) != 0 || unsent == 0);
} catch (const std::exception&) {
  return true;
}

}  // namespace belfry::detail
