// One end of a connection between two processes. Messages go both ways.
#pragma once
#include <array>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "belfry/framework/base/check_hash.h"
#include "belfry/framework/group/group.h"
#include "belfry/framework/group/peer_memory_impl.h"
#include "belfry/framework/group/socket_impl.h"

namespace belfry::detail {

// The most memory for early messages, which nobody has asked for yet, over all processes.
class EarlyMemory {
 public:
  explicit EarlyMemory(std::size_t most) : left_(most) {}
  // Returns false if there is too little left.
  bool take(std::size_t bytes);
  void give_back(std::size_t bytes) { left_ += bytes; }

 private:
  std::size_t left_;
};

// The head of a frame.
struct FrameHead {
  // kBytes: bytes of a message follow. kOffer: the receiver may read a message from the memory of
  // the sender. kTaken: it has done so. kPass: the place of the sender's pass (peer_memory_impl.h);
  // kReads: the sender has found the pass of the receiver.
  enum Kind : std::uint32_t { kBytes = 0xbe1f2703, kOffer, kTaken, kPass, kReads };
  Kind kind = kBytes;
  std::uint32_t tag = 0;    // of the message; kPass: the number of the process
  std::uint64_t size = 0;   // of the message
  std::uint64_t word = 0;   // the check hash of the bytes; kPass: the word
  std::uint64_t place = 0;  // kOffer: where the bytes are; kPass: where the word is
  std::uint64_t check = 0;

  // The check hash of what is before it.
  std::uint64_t own_check() const;
};

// The process at the other end. A message is sent in frames of at most kFrameBytes: a head, then
// bytes. Between two frames a short message may overtake (tags.h), so a long message delays no
// heartbeat. A message that nobody has asked for yet is kept until somebody does. Its memory grows
// as its bytes arrive, whatever its head says. Heads and bytes have check hashes, so a bit that
// flips on the way is noticed.
//
// If both processes may read each other's memory, a long message is offered instead: the receiver
// copies it when it needs it, and takes its check hash block by block, while these are in cache.
class TcpPeer {
 public:
  static constexpr std::size_t kFrameBytes = 256 << 10;

  // The most bytes to move at once, before it is the others' turn.
  static constexpr std::size_t kMostAtOnce = 4 << 20;

  // Messages from this size on are offered. Shorter ones cost less by copying them twice.
  static constexpr std::size_t kLeastOffer = 128 << 10;

  // The ranks of the peer and of this process. `early` must outlive this. `pass`, if any, is shown
  // to the peer.
  TcpPeer(int rank, std::string host, int own_rank, EarlyMemory& early,
          const MemoryPass* pass = nullptr);
  // They are connected. Until then, messages wait.
  void open(Socket socket);
  bool is_open() const { return static_cast<bool>(socket_); }

  // Messages are borrowed until they are done. receive() throws CommError if the message has
  // already arrived with another number of bytes.
  void send(GroupMessage& message);
  void receive(GroupMessage& message);
  // Moves what it can, and returns whether a message is done. If the peer has ended, or sends
  // something unexpected, it throws CommError naming the peer.
  bool poll();
  // The same for what this process sends.
  bool write();
  // All bytes received.
  std::uint64_t received() const { return received_; }

  const Socket& socket() const { return socket_; }
  // Whether poll() can move something. Once it is open, it may; later note() says so.
  bool can_move() const;
  void note(std::uint32_t epoll_events);

  // Gives up all messages, and keeps the rest of a half-sent frame.
  void forget_messages() noexcept;
  // After that: tells the peer to end, and why.
  void end(const std::string& why) noexcept;
  // Keeps telling. Returns whether the peer's system has the reason, or is out of reach.
  bool has_ended() noexcept;

  const std::string host;

 private:
  // What an early message costs in addition to its bytes: a rough lower bound.
  static constexpr std::size_t kCostOfEarly = 4096;

  // Messages in one order. Those that overtake have their own lane.
  struct OutLane {
    std::deque<GroupMessage*> messages;
    std::size_t framed = 0;            // bytes of the first one, in frames so far
    std::optional<CheckHash> offered;  // of these bytes, if the message will be offered
  };
  struct OutFrame {
    OutLane* lane = nullptr;  // null: of a message that was given up, or of none
    FrameHead head = {};
    std::size_t head_left = 0;
    std::span<const std::byte> body = {};
    bool is_over() const { return head_left == 0 && body.empty(); }
  };
  // An incoming message.
  struct InLane {
    bool begun = false;
    int tag = 0;
    std::uint64_t size = 0, have = 0;
    GroupMessage* into = nullptr;
    std::vector<std::byte> kept;  // instead of `into`; it grows as bytes come
  };
  // A message that arrived before somebody asked for it.
  struct Early {
    int tag;
    std::vector<std::byte> bytes;
    std::uint64_t size = 0, place = 0, word = 0;  // as in the head of an offer; place 0: it is none
  };
  // A message that this process copies from the memory of the peer.
  struct Taking {
    GroupMessage* into;
    std::uint64_t place, word;  // as in the head of the offer
    std::size_t have = 0;
    CheckHash hash{};
  };

  [[noreturn]] void fail(const std::string& what) const;
  [[noreturn]] void fail_changed(const std::string& what, const std::string& look_at) const;
  void require_size(const GroupMessage& message, std::uint64_t size) const;
  bool read();
  // Returns how many bytes moved; 0 if none can now.
  std::size_t move_out();
  std::size_t move_in(std::span<std::byte> bytes);
  bool begin_out_frame();
  bool end_out_frame();
  // Returns false if its hash will take another call.
  bool offer(OutLane& lane);
  // Returns whether a message is done.
  bool take();
  bool begin_in_frame();
  void hear_offer();
  void hear_pass();
  void post_word(FrameHead head);
  void begin_message(InLane& lane);
  std::span<std::byte> place();
  // Returns whether a message is done.
  bool end_in_frame();
  void give_back(const std::vector<std::byte>& kept);

  Socket socket_;
  const int rank_, own_rank_;
  EarlyMemory& early_memory_;
  bool closed_ = false;     // by the other process
  bool was_reset_ = false;  // likewise, before it had read all
  bool forgotten_ = false;  // forget_messages()
  std::uint64_t received_ = 0;
  // What the socket allows, as far as is known, and whether no more than what has arrived can come.
  bool readable_ = false, writable_ = false, ends_ = false;

  const MemoryPass* const pass_;  // shown to the peer
  bool reads_ours_ = false;       // the peer has found it
  std::optional<PeerMemory> theirs_;
  std::deque<GroupMessage*> offered_;  // sent, but not taken yet
  std::deque<Taking> takings_;
  bool withdrawn_ = false;  // offers of the peer: it ends

  std::deque<FrameHead> words_;  // frames without bytes, to be sent
  std::array<OutLane, 2> out_;   // the second one overtakes
  OutFrame sent_;
  std::vector<std::byte> rest_;  // of a frame whose message was given up
  std::string reason_;           // end()
  GroupMessage ending_;

  std::vector<GroupMessage*> awaited_;
  std::array<InLane, 2> in_;
  // Read ahead from the socket: heads, and short messages.
  std::array<std::byte, 4096> ahead_;
  std::span<const std::byte> unread_;  // of it
  FrameHead head_ = {};
  std::size_t head_read_ = 0;
  InLane* comes_ = nullptr;     // the lane of the incoming frame
  std::size_t frame_left_ = 0;  // bytes of it
  std::deque<Early> early_;
};

}  // namespace belfry::detail
