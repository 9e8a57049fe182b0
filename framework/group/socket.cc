#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "belfry/framework/base/require.h"
#include "belfry/framework/group/socket_impl.h"

namespace belfry::detail {
namespace {

using Clock = std::chrono::steady_clock;

rlim_t limit_of_files() {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  return limit.rlim_cur;
}

[[noreturn]] void fail(const std::string& what) {
  const int error = errno;
  const std::string why = cat(what, ": ", std::strerror(error));
  if (error == EMFILE)
    throw OutOfFiles(cat(why, "; raise the limit of ", limit_of_files(), " (ulimit -n)"));
  if (error == ENFILE) throw OutOfFiles(why);
  throw CommError(why);
}

bool would_block() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

// Empty if the system lacks this family of addresses.
Socket open_socket(int family) {
  Socket socket(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket && errno != EAFNOSUPPORT) fail("cannot open a socket");
  return socket;
}

void turn_on(const Socket& socket, int level, int option, int value = 1) {
  ::setsockopt(socket.file(), level, option, &value, sizeof(value));
}

std::vector<HostAddress> addresses_of(const std::string& host, int port, int flags, int* error) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags;
  addrinfo* list = nullptr;
  *error = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &list);
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(*error == 0 ? list : nullptr,
                                                                   &::freeaddrinfo);
  std::vector<HostAddress> found;
  for (const addrinfo* entry = owner.get(); entry; entry = entry->ai_next) {
    if (entry->ai_family != AF_INET && entry->ai_family != AF_INET6) continue;
    sockaddr_storage address{};
    std::memcpy(&address, entry->ai_addr, entry->ai_addrlen);
    found.emplace_back(address);
  }
  return found;
}

using NameCall = int (*)(int, sockaddr*, socklen_t*);

HostAddress address_by(NameCall call, const Socket& socket) {
  sockaddr_storage address{};
  socklen_t size = sizeof(address);
  if (call(socket.file(), reinterpret_cast<sockaddr*>(&address), &size) != 0)
    fail("a socket has no address");
  return HostAddress(address);
}

// Empty if this machine lacks the address.
Socket bound(Socket socket, const sockaddr* here, socklen_t bytes, const std::string& where) {
  constexpr int kBacklog = 1024;
  turn_on(socket, SOL_SOCKET, SO_REUSEADDR);
  const bool listens =
      ::bind(socket.file(), here, bytes) == 0 && ::listen(socket.file(), kBacklog) == 0;
  if (!listens && errno == EADDRNOTAVAIL) return {};
  if (!listens && errno == EADDRINUSE)
    throw CommError(cat("cannot listen at ", where, ": another program does"));
  if (!listens) fail(cat("cannot listen at ", where));
  return socket;
}

}  // namespace

HostAddress::HostAddress(const sockaddr_storage& address) : address_(address) {
  sockaddr_in6 long_form{};
  std::memcpy(&long_form, &address_, sizeof(long_form));
  if (address.ss_family != AF_INET6 || !IN6_IS_ADDR_V4MAPPED(&long_form.sin6_addr)) return;
  constexpr int kPrefix = 12;
  sockaddr_in short_form{};
  short_form.sin_family = AF_INET;
  short_form.sin_port = long_form.sin6_port;
  std::memcpy(&short_form.sin_addr, long_form.sin6_addr.s6_addr + kPrefix,
              sizeof(short_form.sin_addr));
  address_ = {};
  std::memcpy(&address_, &short_form, sizeof(short_form));
}

HostAddress HostAddress::with_port(int port) const {
  HostAddress result = *this;
  // Both families have the port at the same offset.
  const std::uint16_t value = htons(static_cast<std::uint16_t>(port));
  std::memcpy(reinterpret_cast<char*>(&result.address_) + offsetof(sockaddr_in, sin_port), &value,
              sizeof(value));
  return result;
}

socklen_t HostAddress::bytes() const {
  return address_.ss_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
}

int HostAddress::port() const {
  std::uint16_t value = 0;
  std::memcpy(&value, reinterpret_cast<const char*>(&address_) + offsetof(sockaddr_in, sin_port),
              sizeof(value));
  return ntohs(value);
}

std::string HostAddress::str() const {
  char text[NI_MAXHOST];
  if (::getnameinfo(get(), bytes(), text, sizeof(text), nullptr, 0, NI_NUMERICHOST) != 0)
    return "an unknown address";
  return text;
}

bool HostAddress::is_loopback() const {
  if (address_.ss_family == AF_INET6) {
    sockaddr_in6 address{};
    std::memcpy(&address, &address_, sizeof(address));
    return IN6_IS_ADDR_LOOPBACK(&address.sin6_addr);
  }
  constexpr std::uint32_t kLoopbackNet = 127;
  sockaddr_in address{};
  std::memcpy(&address, &address_, sizeof(address));
  return ntohl(address.sin_addr.s_addr) >> 24 == kLoopbackNet;
}

bool HostAddress::operator==(const HostAddress& other) const {
  return str() == other.str() && port() == other.port();
}

std::string endpoint(const std::string& address, int port) {
  const bool is_long = address.find(':') != std::string::npos;
  return is_long ? cat("[", address, "]:", port) : cat(address, ":", port);
}

std::vector<HostAddress> look_up(const std::string& host, int port) {
  int error = 0;
  std::vector<HostAddress> found = addresses_of(host, port, 0, &error);
  require<CommError>(error == 0, "cannot find the host '", host, "': ", ::gai_strerror(error));
  require<CommError>(!found.empty(), "the host '", host, "' has no address of IPv4 or IPv6");
  return found;
}

std::vector<HostAddress> read_address(const std::string& text, int port) {
  int error = 0;
  return addresses_of(text, port, AI_NUMERICHOST, &error);
}

bool await(int file, short event, Deadline deadline) {
  for (;;) {
    constexpr std::int64_t kLongest = 60'000;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (left <= 0) return false;
    pollfd waits{file, event, 0};
    const int ready = ::poll(&waits, 1, static_cast<int>(std::min(left, kLongest)));
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) fail("poll");
  }
}

void allow_connections(std::size_t count) {
  constexpr std::size_t kOthers = 512;  // files of the program, and connections of strangers
  const Socket probe = open_socket(AF_INET);
  // A new file gets the lowest free number, so about that many are open.
  const std::size_t open = static_cast<std::size_t>(std::max(probe.file(), 0));
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  if (limit.rlim_cur < open + count + kOthers && limit.rlim_cur < limit.rlim_max) {
    limit.rlim_cur = limit.rlim_max;
    ::setrlimit(RLIMIT_NOFILE, &limit);
  }
  constexpr std::size_t kLeast = 8;  // that the meeting needs in addition to the connections
  require<OutOfFiles>(limit_of_files() >= open + count + kLeast, "this process needs ", count,
                      " connections and has ", open, " open files, and may have ", limit_of_files(),
                      " in all; raise the limit (ulimit -n)");
}

Socket::~Socket() {
  if (file_ >= 0) ::close(file_);
}

Socket Socket::listen_on(const HostAddress& here) {
  Socket socket = open_socket(here.get()->sa_family);
  if (!socket) return {};
  if (here.get()->sa_family == AF_INET6) turn_on(socket, IPPROTO_IPV6, IPV6_V6ONLY);
  return bound(std::move(socket), here.get(), here.bytes(), endpoint(here.str(), here.port()));
}

Socket Socket::listen_everywhere(int port) {
  const std::string where = cat("port ", port);
  if (Socket both = open_socket(AF_INET6)) {
    turn_on(both, IPPROTO_IPV6, IPV6_V6ONLY, 0);  // IPv4, too
    sockaddr_in6 any{};
    any.sin6_family = AF_INET6;
    any.sin6_port = htons(static_cast<std::uint16_t>(port));
    both = bound(std::move(both), reinterpret_cast<const sockaddr*>(&any), sizeof(any), where);
    if (both) return both;
  }
  sockaddr_in any{};
  any.sin_family = AF_INET;
  any.sin_port = htons(static_cast<std::uint16_t>(port));
  Socket socket = open_socket(AF_INET);
  if (socket)
    socket = bound(std::move(socket), reinterpret_cast<const sockaddr*>(&any), sizeof(any), where);
  require<CommError>(static_cast<bool>(socket), "this machine has no address to listen at");
  return socket;
}

Socket Socket::connect_to(const HostAddress& there, Deadline deadline) {
  Socket socket = begin_connect(there);
  while (!socket.has_connected())
    require<CommError>(await(socket.file(), POLLOUT, deadline), "no answer");
  return socket;
}

Socket Socket::begin_connect(const HostAddress& there) {
  Socket socket = open_socket(there.get()->sa_family);
  require<CommError>(static_cast<bool>(socket), "this machine has no such addresses");
  turn_on(socket, IPPROTO_TCP, TCP_NODELAY);
  if (::connect(socket.file(), there.get(), there.bytes()) != 0 && errno != EINPROGRESS)
    fail("cannot connect");
  return socket;
}

bool Socket::has_connected() const {
  int error = 0;
  socklen_t size = sizeof(error);
  ::getsockopt(file_, SOL_SOCKET, SO_ERROR, &error, &size);
  errno = error;
  if (error != 0) fail("cannot connect");
  sockaddr_storage address{};
  size = sizeof(address);
  if (::getpeername(file_, reinterpret_cast<sockaddr*>(&address), &size) != 0) return false;
  // A socket that connects to a port of the range from which it got its own may connect to itself.
  require<CommError>(here() != there(), "nobody listens there");
  return true;
}

Socket Socket::accept_one(std::string* from) const {
  sockaddr_storage address{};
  socklen_t size = sizeof(address);
  Socket socket(
      ::accept4(file_, reinterpret_cast<sockaddr*>(&address), &size, SOCK_CLOEXEC | SOCK_NONBLOCK));
  // Other errors are those of the incoming connection, which is then lost.
  if (!socket && (errno == EMFILE || errno == ENFILE || errno == EBADF || errno == EINVAL))
    fail("cannot accept a connection");
  if (socket) turn_on(socket, IPPROTO_TCP, TCP_NODELAY);
  if (socket && from) *from = HostAddress(address).str();
  return socket;
}

HostAddress Socket::here() const { return address_by(&::getsockname, *this); }

HostAddress Socket::there() const { return address_by(&::getpeername, *this); }

bool Socket::has_left() const {
  pollfd waits{file_, POLLRDHUP, 0};
  return ::poll(&waits, 1, 0) > 0;
}

void Socket::write_all(std::string_view bytes, Deadline deadline) const {
  while (!bytes.empty()) {
    require<CommError>(await(file_, POLLOUT, deadline), "it takes no message");
    const ssize_t moved = ::send(file_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (moved < 0 && !would_block()) fail("the connection is lost");
    if (moved > 0) bytes.remove_prefix(static_cast<std::size_t>(moved));
  }
}

bool Socket::write_now(std::string_view bytes) const {
  const ssize_t moved = ::send(file_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  return moved >= 0 && static_cast<std::size_t>(moved) == bytes.size();
}

std::size_t Socket::read_some(std::span<std::byte> bytes) const {
  const ssize_t moved = ::recv(file_, bytes.data(), bytes.size(), MSG_DONTWAIT);
  require<CommError>(moved != 0 || bytes.empty(), "the connection was closed");
  if (moved < 0 && !would_block()) fail("the connection is lost");
  return moved < 0 ? 0 : static_cast<std::size_t>(moved);
}

SocketWatch::SocketWatch()
    : poll_(::epoll_create1(EPOLL_CLOEXEC)), bell_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!poll_ || !bell_) fail("cannot watch connections");
  add(bell_, kBell);
}

void SocketWatch::add(const Socket& socket, std::uint64_t key, std::uint32_t events) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = key;
  if (::epoll_ctl(poll_.file(), EPOLL_CTL_ADD, socket.file(), &event) != 0 && errno != EEXIST)
    fail("cannot watch a connection");
}

void SocketWatch::remove(const Socket& socket) {
  epoll_event none{};
  ::epoll_ctl(poll_.file(), EPOLL_CTL_DEL, socket.file(), &none);
}

std::span<const epoll_event> SocketWatch::look(std::chrono::nanoseconds most) {
  constexpr std::chrono::nanoseconds kTick = std::chrono::milliseconds(1), kMost = 60'000 * kTick;
  const bool waits = most.count() > 0;
  int ticks = 0;
  if (waits) {
    sleeps_.store(true);
    if (woken_.load()) {
      // Events that have come may still be reported.
    } else if (most < kTick) {
      const timespec time{0, most.count()};
      pollfd any{poll_.file(), POLLIN, 0};
      ::ppoll(&any, 1, &time, nullptr);
    } else {
      ticks =
          static_cast<int>((std::min(most, kMost) + kTick - std::chrono::nanoseconds(1)) / kTick);
    }
  }
  const int count = ::epoll_wait(poll_.file(), events_.data(), std::ssize(events_), ticks);
  if (waits) {
    sleeps_.store(false);
    woken_.store(false);
  }
  if (count < 0 && errno != EINTR) fail("epoll_wait");
  std::size_t kept = 0;
  for (int i = 0; i < count; ++i)
    if (const epoll_event& event = events_[static_cast<std::size_t>(i)]; event.data.u64 != kBell)
      events_[kept++] = event;
  return std::span(events_).first(kept);
}

void SocketWatch::wake() {
  woken_.store(true);
  if (!sleeps_.load()) return;
  // Each write is an event, so nobody needs to read.
  const std::uint64_t one = 1;
  static_cast<void>(::write(bell_.file(), &one, sizeof(one)) == sizeof(one));
}

}  // namespace belfry::detail
