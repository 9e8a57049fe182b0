#include <cerrno>
#include <cstring>
#include <memory>
#include <thread>

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "belfry/framework/base/require.h"
#include "belfry/framework/group/socket_impl.h"

namespace belfry::detail {
namespace {

using Clock = std::chrono::steady_clock;

[[noreturn]] void fail(const std::string& what) {
  throw CommError(cat(what, ": ", std::strerror(errno)));
}

// Waits until the socket can be read or written. Throws when the deadline has passed.
void await(int file, short event, Deadline deadline) {
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
    require<CommError>(left > 0, "no answer in time");
    pollfd waits{file, event, 0};
    const int ready = ::poll(&waits, 1, static_cast<int>(left));
    if (ready > 0) return;
    if (ready < 0 && errno != EINTR) fail("poll");
  }
}

bool would_block() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

// Sends small messages at once, and makes calls return at once.
Socket tuned(int file) {
  Socket socket(file);
  const int on = 1;
  ::setsockopt(file, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  return socket;
}

using Addresses = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

Addresses look_up(const std::string& address, int port) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = ::getaddrinfo(address.c_str(), std::to_string(port).c_str(), &hints, &found);
  require<CommError>(error == 0, "cannot find the host '", address, "': ", ::gai_strerror(error));
  return {found, &::freeaddrinfo};
}

Socket try_connect(const addrinfo& to) {
  const int file = ::socket(to.ai_family, to.ai_socktype | SOCK_CLOEXEC, to.ai_protocol);
  if (file < 0) return {};
  Socket socket = tuned(file);
  if (::connect(file, to.ai_addr, to.ai_addrlen) != 0) return {};
  return socket;
}

}  // namespace

Socket::~Socket() {
  if (file_ >= 0) ::close(file_);
}

Socket Socket::listen_on(int port) {
  Socket socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) fail("cannot open a socket");
  const int on = 1;
  ::setsockopt(socket.file(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  sockaddr_in here{};
  here.sin_family = AF_INET;
  here.sin_addr.s_addr = htonl(INADDR_ANY);
  here.sin_port = htons(static_cast<std::uint16_t>(port));
  if (::bind(socket.file(), reinterpret_cast<const sockaddr*>(&here), sizeof(here)) != 0)
    fail(cat("cannot listen on port ", port));
  if (::listen(socket.file(), 1024) != 0) fail(cat("cannot listen on port ", port));
  return socket;
}

Socket Socket::connect_to(const std::string& address, int port, Deadline deadline) {
  constexpr auto kPause = std::chrono::milliseconds(20);
  for (;;) {
    const Addresses found = look_up(address, port);
    for (const addrinfo* to = found.get(); to; to = to->ai_next)
      if (Socket socket = try_connect(*to)) return socket;
    if (Clock::now() + kPause > deadline) fail(cat("cannot reach ", address, ":", port));
    std::this_thread::sleep_for(kPause);
  }
}

Socket Socket::accept_one(Deadline deadline) const {
  for (;;) {
    await(file_, POLLIN, deadline);
    const int file = ::accept4(file_, nullptr, nullptr, SOCK_CLOEXEC);
    if (file >= 0) return tuned(file);
    if (!would_block() && errno != ECONNABORTED) fail("accept");
  }
}

int Socket::port() const {
  sockaddr_in here{};
  socklen_t size = sizeof(here);
  if (::getsockname(file_, reinterpret_cast<sockaddr*>(&here), &size) != 0) fail("getsockname");
  return ntohs(here.sin_port);
}

std::string Socket::peer_address() const {
  sockaddr_storage there{};
  socklen_t size = sizeof(there);
  if (::getpeername(file_, reinterpret_cast<sockaddr*>(&there), &size) != 0) fail("getpeername");
  char text[NI_MAXHOST];
  if (::getnameinfo(reinterpret_cast<const sockaddr*>(&there), size, text, sizeof(text), nullptr, 0,
                    NI_NUMERICHOST) != 0)
    fail("getnameinfo");
  return text;
}

void Socket::write_all(std::span<const std::byte> bytes, Deadline deadline) const {
  while (!bytes.empty()) {
    await(file_, POLLOUT, deadline);
    const ssize_t moved = ::send(file_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (moved < 0 && !would_block()) fail("send");
    if (moved > 0) bytes = bytes.subspan(static_cast<std::size_t>(moved));
  }
}

void Socket::read_all(std::span<std::byte> bytes, Deadline deadline) const {
  while (!bytes.empty()) {
    await(file_, POLLIN, deadline);
    const ssize_t moved = ::recv(file_, bytes.data(), bytes.size(), MSG_DONTWAIT);
    require<CommError>(moved != 0, "the connection was closed");
    if (moved < 0 && !would_block()) fail("recv");
    if (moved > 0) bytes = bytes.subspan(static_cast<std::size_t>(moved));
  }
}

void Socket::write_text(const std::string& text, Deadline deadline) const {
  const auto size = static_cast<std::uint32_t>(text.size());
  write_all(std::as_bytes(std::span(&size, 1)), deadline);
  write_all(std::as_bytes(std::span(text)), deadline);
}

std::string Socket::read_text(Deadline deadline) const {
  constexpr std::uint32_t kMost = 1 << 20;
  std::uint32_t size = 0;
  read_all(std::as_writable_bytes(std::span(&size, 1)), deadline);
  require<CommError>(size <= kMost, "what called is no process of Belfry");
  std::string text(size, '\0');
  read_all(std::as_writable_bytes(std::span(text)), deadline);
  return text;
}

}  // namespace belfry::detail
