// A TCP socket that closes itself. Calls with a deadline throw CommError when it has passed.
#pragma once
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

namespace belfry::detail {

using Deadline = std::chrono::steady_clock::time_point;

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

  // Listens on all interfaces; port 0: any that is free.
  static Socket listen_on(int port);
  // Tries again until the deadline: the listener may start later.
  static Socket connect_to(const std::string& address, int port, Deadline deadline);
  // Accepts the next connection.
  Socket accept_one(Deadline deadline) const;

  int file() const { return file_; }
  explicit operator bool() const { return file_ >= 0; }
  int port() const;                  // of this end
  std::string peer_address() const;  // in numbers

  void write_all(std::span<const std::byte> bytes, Deadline deadline) const;
  void read_all(std::span<std::byte> bytes, Deadline deadline) const;
  // A text is its length, then its characters. Reading throws for texts above 1 MiB.
  void write_text(const std::string& text, Deadline deadline) const;
  std::string read_text(Deadline deadline) const;

 private:
  int file_ = -1;
};

}  // namespace belfry::detail
