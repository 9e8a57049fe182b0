#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <utility>

#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "belfry/framework/base/check_hash.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/group/peer_error.h"
#include "belfry/framework/group/tags.h"
#include "belfry/framework/group/tcp_peer_impl.h"

namespace belfry::detail {
namespace {

// Where bits may change.
constexpr char kWay[] = "the memory, the network card and the cable of both machines";
// The most bytes that the system keeps unsent: a message that overtakes must wait for them.
constexpr int kMostUnsent = 1 << 20;

bool may_try_again() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

// A process that ends while it has not read all resets its connections.
bool is_reset() { return errno == ECONNRESET || errno == EPIPE; }

}  // namespace

bool EarlyMemory::take(std::size_t bytes) {
  if (bytes > left_) return false;
  left_ -= bytes;
  return true;
}

std::uint64_t FrameHead::own_check() const {
  return check_hash(std::as_bytes(std::span(this, 1)).first(offsetof(FrameHead, check)));
}

TcpPeer::TcpPeer(int rank, std::string on, int own_rank, EarlyMemory& early, const MemoryPass* pass)
    : host(std::move(on)), rank_(rank), own_rank_(own_rank), early_memory_(early), pass_(pass) {}

void TcpPeer::open(Socket socket) {
  socket_ = std::move(socket);
  readable_ = writable_ = true;
  ::setsockopt(socket_.file(), IPPROTO_TCP, TCP_NOTSENT_LOWAT, &kMostUnsent, sizeof(kMostUnsent));
  if (!pass_) return;
  const PassPlace place = pass_->place();
  post_word(
      {.kind = FrameHead::kPass, .tag = place.pid, .word = place.word, .place = place.address});
}

void TcpPeer::fail(const std::string& what) const { blame_peer(rank_, host, what); }

void TcpPeer::fail_changed(const std::string& what, const std::string& look_at) const {
  fail(cat("the check hash of ", what, " does not fit: bits have changed on its way to rank ",
           own_rank_, "; see to ", look_at));
}

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
    require_size(message, early->size);
    give_back(early->bytes);
    if (early->place) {
      takings_.push_back({&message, early->place, early->word});
    } else {
      std::ranges::copy(early->bytes, message.bytes.begin());
      message.end();
    }
    early_.erase(early);
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
  const bool received = read();
  const bool waits =
      std::ranges::any_of(awaited_, [](auto* message) { return !may_never_come(message->tag); }) ||
      in_[0].into || in_[1].into || !out_[0].messages.empty() || !out_[1].messages.empty() ||
      !offered_.empty() || !takings_.empty();
  if (closed_ && waits)
    fail(cat("the process has ended", was_reset_ ? " (it has reset the connection)" : ""));
  return (!closed_ && write()) || received;
}

bool TcpPeer::can_move() const {
  if (forgotten_ || closed_) return false;
  const bool sends =
      !sent_.is_over() || !words_.empty() || !out_[0].messages.empty() || !out_[1].messages.empty();
  return readable_ || !unread_.empty() || (sends && writable_) ||
         (!takings_.empty() && !withdrawn_);
}

void TcpPeer::note(std::uint32_t events) {
  if (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) ends_ = true;
  if (ends_ || (events & EPOLLIN)) readable_ = true;
  if (ends_ || (events & EPOLLOUT)) writable_ = true;
}

std::size_t TcpPeer::move_out() {
  const std::size_t head_sent = sizeof(FrameHead) - sent_.head_left,
                    left = sent_.head_left + sent_.body.size();
  iovec parts[] = {{reinterpret_cast<std::byte*>(&sent_.head) + head_sent, sent_.head_left},
                   {const_cast<std::byte*>(sent_.body.data()), sent_.body.size()}};
  msghdr message{};
  message.msg_iov = parts;
  message.msg_iovlen = std::size(parts);
  const ssize_t sent = ::sendmsg(socket_.file(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  // What the process sent before its end can still be read.
  if (sent < 0 && is_reset()) was_reset_ = ends_ = readable_ = true;
  if (sent < 0 && !may_try_again() && !is_reset())
    fail(cat("the connection is lost (", std::strerror(errno), ")"));
  const auto moved = static_cast<std::size_t>(std::max<ssize_t>(0, sent));
  writable_ = moved == left;
  const std::size_t of_head = std::min(moved, sent_.head_left);
  sent_.head_left -= of_head;
  sent_.body = sent_.body.subspan(moved - of_head);
  return moved;
}

// Takes what was read ahead, or else reads, and reads a little ahead.
std::size_t TcpPeer::move_in(std::span<std::byte> bytes) {
  if (unread_.empty()) {
    if (!readable_ || closed_) return 0;
    iovec parts[] = {{bytes.data(), bytes.size()}, {ahead_.data(), ahead_.size()}};
    msghdr message{};
    message.msg_iov = parts;
    message.msg_iovlen = std::size(parts);
    const ssize_t came = ::recvmsg(socket_.file(), &message, MSG_DONTWAIT);
    if (came < 0 && is_reset()) was_reset_ = true;
    if (came < 0 && !may_try_again() && !is_reset())
      fail(cat("the connection is lost (", std::strerror(errno), ")"));
    closed_ = came == 0 || (came < 0 && is_reset());
    const auto moved = static_cast<std::size_t>(std::max<ssize_t>(0, came));
    // After a short read there is nothing more, unless the end of the connection.
    readable_ = moved == bytes.size() + ahead_.size() || (ends_ && moved > 0);
    received_ += moved;
    if (moved > bytes.size()) unread_ = std::span(ahead_).first(moved - bytes.size());
    return std::min(moved, bytes.size());
  }
  const std::size_t moved = std::min(bytes.size(), unread_.size());
  std::copy_n(unread_.begin(), moved, bytes.begin());
  unread_ = unread_.subspan(moved);
  return moved;
}

bool TcpPeer::write() {
  bool done = false;
  for (std::size_t all = 0; all < kMostAtOnce && writable_;) {
    if (sent_.is_over() && !begin_out_frame()) break;
    all += move_out();
    if (sent_.is_over()) done = end_out_frame() || done;
  }
  return done;
}

bool TcpPeer::begin_out_frame() {
  if (!words_.empty()) {
    sent_ = {.head = words_.front(), .head_left = sizeof(FrameHead)};
    words_.pop_front();
    return true;
  }
  OutLane& lane = out_[out_[1].messages.empty() ? 0 : 1];
  if (lane.messages.empty()) return false;
  GroupMessage& message = *lane.messages.front();
  if (reads_ours_ && &lane == &out_[0] && lane.framed == 0 && message.bytes.size() >= kLeastOffer &&
      pass_->covers(message.bytes))
    lane.offered.emplace();
  if (lane.offered) return offer(lane);
  FrameHead head{.tag = static_cast<std::uint32_t>(message.tag), .size = message.bytes.size()};
  const std::span<const std::byte> left = message.bytes.subspan(lane.framed);
  const std::span<const std::byte> body = left.first(std::min(left.size(), kFrameBytes));
  head.word = check_hash(body);
  head.check = head.own_check();
  sent_ = {&lane, head, sizeof(FrameHead), body};
  lane.framed += body.size();
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

void TcpPeer::post_word(FrameHead head) {
  head.check = head.own_check();
  words_.push_back(head);
}

bool TcpPeer::read() {
  bool done = false;
  for (std::size_t all = 0; all < kMostAtOnce;) {
    if (!takings_.empty() && !withdrawn_) {
      const std::uint64_t before = received_;
      done = take() || done;
      all += received_ - before;
      continue;
    }
    std::size_t moved = 0;
    if (comes_) {
      moved = move_in(place());
      comes_->have += moved;
      frame_left_ -= moved;
    } else {
      moved = move_in(std::as_writable_bytes(std::span(&head_, 1)).subspan(head_read_));
      head_read_ += moved;
      if (head_read_ == sizeof(FrameHead)) done = begin_in_frame() || done;
    }
    all += moved;
    if (comes_ && frame_left_ == 0)
      done = end_in_frame() || done;
    else if (moved == 0)
      break;
  }
  return done;
}

// Returns whether a message is done.
bool TcpPeer::begin_in_frame() {
  head_read_ = 0;
  if (head_.check != head_.own_check()) fail_changed("the head of a message", kWay);
  switch (head_.kind) {
    case FrameHead::kBytes: break;
    case FrameHead::kOffer: hear_offer(); return false;
    case FrameHead::kPass: hear_pass(); return false;
    case FrameHead::kReads:
      if (!pass_) fail("sends what is no message");
      reads_ours_ = true;
      return false;
    case FrameHead::kTaken: {
      const auto taken =
          std::ranges::find(offered_, static_cast<int>(head_.tag), &GroupMessage::tag);
      if (taken == offered_.end() || (*taken)->bytes.size() != head_.size)
        fail("sends what is no message");
      (*taken)->done = true;
      offered_.erase(taken);
      return true;
    }
    default: fail("sends what is no message");
  }
  if (head_.tag > kEndTag) fail("sends what is no message");
  InLane& lane = in_[overtakes(static_cast<int>(head_.tag))];
  if (!lane.begun) begin_message(lane);
  if (lane.tag != static_cast<int>(head_.tag) || lane.size != head_.size)
    fail("sends what is no message");
  comes_ = &lane;
  frame_left_ = std::min<std::uint64_t>(lane.size - lane.have, kFrameBytes);
  return false;
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
  if (!early_memory_.take(kCostOfEarly)) fail("sends more than this process can keep");
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
    if (!early_memory_.take(size - had))
      fail(cat("sends more messages early than this process can keep; the last one has tag ",
               lane.tag, " and ", lane.size, " bytes"));
    kept.resize(size);
  }
  return std::span(kept).subspan(lane.have).first(std::min(frame_left_, kept.size() - lane.have));
}

bool TcpPeer::end_in_frame() {
  InLane& lane = *std::exchange(comes_, nullptr);
  const std::span<const std::byte> all = lane.into ? lane.into->bytes : std::span(lane.kept);
  const std::size_t frame =
      lane.have == 0 ? 0 : (lane.have - 1) % kFrameBytes + 1;  // all before it are full
  if (check_hash(all.first(lane.have).last(frame)) != head_.word)
    fail_changed(cat("a message of ", lane.size, " bytes (tag ", lane.tag, ", at byte ",
                     lane.have - frame, ")"),
                 kWay);
  if (lane.have < lane.size) return false;
  lane.begun = false;
  std::vector<std::byte> kept = std::exchange(lane.kept, {});
  if (lane.tag == kEndTag)
    throw_reason(rank_, host, {reinterpret_cast<const char*>(kept.data()), kept.size()});
  if (GroupMessage* const into = std::exchange(lane.into, nullptr)) {
    into->end();
    return true;
  }
  early_.push_back({lane.tag, std::move(kept), lane.size});
  return false;
}

void TcpPeer::give_back(const std::vector<std::byte>& kept) {
  early_memory_.give_back(kept.size() + kCostOfEarly);
}

void TcpPeer::forget_messages() noexcept {
  if (std::exchange(forgotten_, true)) return;
  for (OutLane& lane : out_) lane = {};
  for (InLane& lane : in_) lane = {};
  comes_ = nullptr;
  awaited_.clear();
  offered_.clear();
  takings_.clear();
  words_.clear();
  sent_.lane = nullptr;
  try {
    rest_.assign(sent_.body.begin(), sent_.body.end());
    sent_.body = rest_;
  } catch (const std::bad_alloc&) {
    closed_ = true;  // nothing more can be sent after half a frame
  }
}

void TcpPeer::end(const std::string& why) noexcept {
  if (!reason_.empty() || closed_ || !is_open()) return;
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
  if (closed_ || !is_open()) return true;
  static thread_local std::array<std::byte, 64 << 10> dropped;
  readable_ = writable_ = true;
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
