// Groups of processes over pairs of sockets, in one thread. A test moves the bytes between two
// processes itself, as slowly as it likes.
#pragma once
#include <array>
#include <cstddef>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <sys/socket.h>

#include "belfry/framework/base/check_hash.h"
#include "belfry/framework/group/tags.h"
#include "belfry/framework/group/tcp_messages_impl.h"
#include "belfry/tests/support/sealed_frames.h"

namespace belfry::test {

inline std::pair<detail::Socket, detail::Socket> socket_pair() {
  int files[2];
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, files), 0);
  return {detail::Socket(files[0]), detail::Socket(files[1])};
}

// The group of process `rank` of two, with a socket to the other.
inline std::unique_ptr<ProcessGroup> one_of_two(int rank, detail::Socket socket,
                                                detail::TcpLimits limits = {}) {
  std::vector<detail::Met> met(2);
  for (detail::Met& one : met) one.host = "host";
  met[static_cast<std::size_t>(1 - rank)].socket = std::move(socket);
  return detail::make_tcp_group(rank, std::move(met), limits);
}

// Two processes that are connected.
struct TwoGroups {
  std::array<std::unique_ptr<ProcessGroup>, 2> groups;

  TwoGroups() {
    auto [first, second] = socket_pair();
    groups = {one_of_two(0, std::move(first)), one_of_two(1, std::move(second))};
  }
};

// A link between two processes. Bytes cross it when the test says so.
class SlowLink {
 public:
  std::array<detail::Socket, 2> take_ends() { return {std::move(ends_[0]), std::move(ends_[1])}; }

  // Carries at most so many bytes each way. Returns how many it has carried.
  std::size_t carry(std::size_t most) { return carry(0, most) + carry(1, most); }
  // From one process to the other.
  std::size_t carry(std::size_t from, std::size_t most) {
    std::vector<std::byte>& waits = waiting_[from];
    if (waits.size() < most) {
      const std::size_t had = waits.size();
      waits.resize(most);
      const ssize_t came =
          ::recv(middle_[from].file(), waits.data() + had, most - had, MSG_DONTWAIT);
      waits.resize(had + static_cast<std::size_t>(std::max<ssize_t>(0, came)));
    }
    const ssize_t sent = ::send(middle_[1 - from].file(), waits.data(),
                                std::min(most, waits.size()), MSG_DONTWAIT | MSG_NOSIGNAL);
    const auto moved = static_cast<std::size_t>(std::max<ssize_t>(0, sent));
    waits.erase(waits.begin(), waits.begin() + static_cast<std::ptrdiff_t>(moved));
    return moved;
  }

 private:
  SlowLink(std::pair<detail::Socket, detail::Socket> first,
           std::pair<detail::Socket, detail::Socket> second)
      : ends_{std::move(first.first), std::move(second.first)},
        middle_{std::move(first.second), std::move(second.second)} {}

 public:
  SlowLink() : SlowLink(socket_pair(), socket_pair()) {}

 private:
  std::array<detail::Socket, 2> ends_, middle_;
  std::array<std::vector<std::byte>, 2> waiting_;
};

// A process that sends what it likes.
class Stranger {
 public:
  explicit Stranger(detail::Socket socket) : socket_(std::move(socket)) {}

  void send(std::span<const std::byte> bytes) const {
    EXPECT_EQ(::send(socket_.file(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }
  void send(const detail::FrameHead& head) const { send(std::as_bytes(std::span(&head, 1))); }
  // A head that announces `size` bytes, and then `text`.
  void send(int tag, std::uint64_t size, const std::string& text) const {
    send(head_of(tag, size, text));
    send(std::as_bytes(std::span(text)));
  }
  void send(int tag, const std::string& text) const { send(tag, text.size(), text); }

  const detail::Socket& socket() const { return socket_; }

 private:
  detail::Socket socket_;
};

// The bytes of a heartbeat, and the hash that ends it.
inline std::string with_check_hash(const std::string& heartbeat) {
  const std::uint64_t value = check_hash(heartbeat);
  return heartbeat + std::string(reinterpret_cast<const char*>(&value), sizeof(value));
}

}  // namespace belfry::test
