// TCP sockets that close themselves. Every call that may wait has a deadline.
#pragma once
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <sys/epoll.h>
#include <sys/socket.h>

#include "belfry/framework/base/error.h"

namespace belfry::detail {

using Deadline = std::chrono::steady_clock::time_point;

// This process, or the machine, can open no more files.
class OutOfFiles : public CommError {
 public:
  using CommError::CommError;
};

// An address of IPv4 or IPv6, and a port.
class HostAddress {
 public:
  // An IPv4 address where an IPv6 address stands for one ("::ffff:10.0.0.7").
  explicit HostAddress(const sockaddr_storage& address);
  HostAddress with_port(int port) const;

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&address_); }
  socklen_t bytes() const;
  int port() const;
  std::string str() const;  // numeric, without the port
  bool is_loopback() const;
  bool operator==(const HostAddress& other) const;

 private:
  sockaddr_storage address_ = {};
};

// "10.0.0.7:29500", "[::1]:29500".
std::string endpoint(const std::string& address, int port);

// The addresses of a host. Throws CommError if it has none, or is not known yet.
std::vector<HostAddress> look_up(const std::string& host, int port);
// The same for numeric addresses; none if `text` is not one.
std::vector<HostAddress> read_address(const std::string& text, int port);

// Waits until a socket can be read (POLLIN) or written (POLLOUT). Returns false at the deadline.
bool await(int file, short event, Deadline deadline);

// Makes the system allow this process that many connections. Throws OutOfFiles if it does not.
void allow_connections(std::size_t count);

class Socket {
 public:
  Socket() = default;
  explicit Socket(int file) : file_(file) {}
  Socket(Socket&& other) noexcept : file_(std::exchange(other.file_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(file_, other.file_);
    return *this;
  }
  ~Socket();

  // Listens on an address of this machine; port 0: any that is free. Empty if this machine does not
  // have the address.
  static Socket listen_on(const HostAddress& here);
  // Listens on all addresses of this machine.
  static Socket listen_everywhere(int port);
  // Tries once. Throws CommError if nobody listens there, or answers before the deadline.
  static Socket connect_to(const HostAddress& there, Deadline deadline);
  // The same without waiting: has_connected() says later whether somebody has answered. Both throw
  // CommError if nobody listens there.
  static Socket begin_connect(const HostAddress& there);
  bool has_connected() const;
  // The next waiting connection, and the address that it comes from; empty if there is none.
  Socket accept_one(std::string* from = nullptr) const;

  int file() const { return file_; }
  explicit operator bool() const { return file_ >= 0; }
  HostAddress here() const;
  HostAddress there() const;
  // Whether the other process has closed the connection, even if it sent something before.
  bool has_left() const;

  void write_all(std::string_view bytes, Deadline deadline) const;
  // Writes without waiting. Returns false if not all could be written.
  bool write_now(std::string_view bytes) const;
  // Returns how many bytes it has read; 0 if there are none. Throws CommError if the connection was
  // closed.
  std::size_t read_some(std::span<std::byte> bytes) const;

 private:
  int file_ = -1;
};

// Says which of many sockets have changed, and lets a thread sleep until one does (epoll). A change
// is reported once: until nothing more can be read, or written.
class SocketWatch {
 public:
  SocketWatch();
  // Events of the socket have this key in data.u64. It may be there already, with the same key.
  void add(const Socket& socket, std::uint64_t key,
           std::uint32_t events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET);
  void remove(const Socket& socket);
  // Another watch may watch this one.
  const Socket& socket() const { return poll_; }
  // Waits for events, at most that long, or until wake(). There may be more.
  std::span<const epoll_event> look(std::chrono::nanoseconds most);
  // Ends the look() that waits, or else the next one. Any thread may call it.
  void wake();

 private:
  static constexpr std::uint64_t kBell = ~std::uint64_t{0};

  Socket poll_, bell_;
  // A thread that is about to sleep stores the one and reads the other; a waker does the reverse.
  // So one of the two sees the other, and wake() costs no system call while nobody sleeps.
  std::atomic<bool> sleeps_{false}, woken_{false};
  std::array<epoll_event, 64> events_;
};

}  // namespace belfry::detail
