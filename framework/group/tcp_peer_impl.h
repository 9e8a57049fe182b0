// One end of a connection between two processes. Messages go both ways.
#pragma once
#include <array>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <vector>

#include "belfry/framework/group/group.h"
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

// The process at the other end. A message is sent in frames of at most kFrameBytes: a head with tag
// and size of the message, then bytes. Between two frames a short message may overtake (tags.h), so
// a long message delays no heartbeat. A message that nobody has asked for yet is kept until
// somebody does. Its memory grows as its bytes arrive, whatever its head says.
class TcpPeer {
 public:
  static constexpr std::size_t kFrameBytes = 256 << 10;

  TcpPeer(Socket socket, std::string on);
  // Call it first. `early` must outlive this.
  void join(int rank, EarlyMemory& early);

  // Messages are borrowed until they are done. receive() throws CommError if the message has
  // already arrived with another number of bytes.
  void send(GroupMessage& message);
  void receive(GroupMessage& message);
  // Moves what it can, and returns whether a message is done. If the peer has ended, or sends
  // something unexpected, it throws CommError naming the peer.
  bool poll();
  // All bytes received.
  std::uint64_t received() const { return received_; }

  // Gives up all messages, and keeps the rest of a half-sent frame.
  void forget_messages() noexcept;
  // After that: tells the peer to end, and why.
  void end(const std::string& why) noexcept;
  // Keeps telling. Returns whether the peer's system has the reason, or is out of reach.
  bool has_ended() noexcept;

  std::string host;

 private:
  struct Head {
    std::uint32_t tag;
    std::uint32_t magic;
    std::uint64_t size;  // of the message
  };
  // Messages in one order. Those that overtake have their own lane.
  struct OutLane {
    std::deque<GroupMessage*> messages;
    std::size_t framed = 0;  // bytes of the first one, in frames so far
  };
  struct OutFrame {
    OutLane* lane = nullptr;  // null: of a message that was given up
    Head head = {};
    std::size_t head_left = 0;
    std::span<const std::byte> body;
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
  };

  [[noreturn]] void fail(const std::string& what) const;
  void require_size(const GroupMessage& message, std::uint64_t size) const;
  bool read();
  bool write();
  // Returns how many bytes moved; 0 if none can now.
  std::size_t move_out();
  std::size_t move_in(std::span<std::byte> bytes);
  bool begin_out_frame();
  bool end_out_frame();
  void begin_in_frame();
  void begin_message(InLane& lane);
  std::span<std::byte> place();
  // Returns whether a message is done.
  bool end_in_frame();
  void give_back(const std::vector<std::byte>& kept);

  Socket socket_;
  int rank_ = -1;
  EarlyMemory* early_memory_ = nullptr;
  bool closed_ = false;     // by the other process
  bool forgotten_ = false;  // forget_messages()
  std::uint64_t received_ = 0;

  std::array<OutLane, 2> out_;  // the second one overtakes
  OutFrame sent_;
  std::vector<std::byte> rest_;  // of a frame whose message was given up
  std::string reason_;           // end()
  GroupMessage ending_;

  std::vector<GroupMessage*> awaited_;
  std::array<InLane, 2> in_;
  Head head_ = {};
  std::size_t head_read_ = 0;
  InLane* comes_ = nullptr;     // the lane of the incoming frame
  std::size_t frame_left_ = 0;  // bytes of it
  std::deque<Early> early_;
};

}  // namespace belfry::detail
