// One end of a connection between two processes. Messages go both ways.
#pragma once
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <vector>

#include "belfry/framework/group/group.h"
#include "belfry/framework/group/socket_impl.h"

namespace belfry::detail {

// The process at the other end. A message is a head of tag and size, then its bytes. A message that
// nobody has asked for yet is kept until somebody does.
class TcpPeer {
 public:
  TcpPeer(Socket socket, std::string on) : host(std::move(on)), socket_(std::move(socket)) {}

  // Messages are borrowed until they are done.
  void send(GroupMessage& message) { sending_.push_back(&message); }
  void receive(GroupMessage& message);
  // Moves what it can, and returns whether a message is done. If the peer has ended, or sends what
  // nobody expects, it throws CommError that begins with `name`, the name of the peer.
  bool poll(const std::string& name);
  // Tells the peer to end, and why, unless a message is half sent.
  void end_others(const std::string& why) noexcept;

  std::string host;

 private:
  struct Head {
    std::uint32_t tag;
    std::uint32_t magic;
    std::uint64_t size;
  };
  // A message that came before somebody asked for it.
  struct Early {
    int tag;
    std::vector<std::byte> bytes;
  };

  bool write(const std::string& name);
  bool read(const std::string& name);
  // Returns how many bytes moved; 0 if none can now.
  std::size_t move_out(std::span<const std::byte> bytes, const std::string& name);
  std::size_t move_in(std::span<std::byte> bytes, const std::string& name);
  void begin_message(const std::string& name);
  // Returns whether somebody has asked for the message.
  bool end_message(const std::string& name);
  static void take(GroupMessage& message, std::span<const std::byte> bytes);

  Socket socket_;
  bool closed_ = false;  // by the other process
  std::deque<GroupMessage*> sending_;
  Head sent_head_ = {};
  std::size_t sent_ = 0;  // bytes of the first of sending_, with its head
  std::vector<GroupMessage*> awaited_;
  Head head_ = {};
  std::size_t read_ = 0;  // bytes of the message that comes in, with its head
  GroupMessage* into_ = nullptr;
  std::vector<std::byte> kept_;  // instead of `into_`
  std::vector<Early> early_;
};

}  // namespace belfry::detail
