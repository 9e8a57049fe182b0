// One connection per pair of processes. Rank 0 listens at the address that all know; each other
// process listens wherever it can, and tells rank 0, which tells all. A message is a head of tag
// and size, then its bytes. A message that nobody has asked for yet is kept until somebody does.
#include "belfry/framework/group/tcp_group.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <deque>
#include <random>
#include <sstream>

#include <sys/socket.h>
#include <unistd.h>

#include "belfry/framework/base/require.h"
#include "belfry/framework/group/socket_impl.h"

namespace belfry {
namespace {

using detail::Deadline;
using detail::Socket;

struct Head {
  std::uint32_t tag;
  std::uint32_t magic;
  std::uint64_t size;
};
constexpr std::uint32_t kMagic = 0xbe1f2701;
// The tag of the last message of a process that ends all: its bytes say why.
constexpr std::uint32_t kEnd = 0xffffffff;
// What a process that ends the others says is no longer.
constexpr std::uint64_t kLongestReason = 1 << 16;
// A message that nobody has asked for yet takes memory of its own.
constexpr std::uint64_t kLongestEarly = std::uint64_t{1} << 32;

std::string own_host() {
  char name[256] = {};
  return ::gethostname(name, sizeof(name) - 1) == 0 ? name : "unknown";
}

[[noreturn]] void fail(const std::string& name, const std::string& what) {
  throw CommError(cat(name, ": ", what));
}

// One end of the connection to a process.
class Peer {
 public:
  Peer(Socket socket, std::string on) : host(std::move(on)), socket_(std::move(socket)) {}

  void send(GroupMessage& message) { sending_.push_back(&message); }
  void receive(GroupMessage& message) {
    const auto early = std::ranges::find(early_, message.tag, &Early::tag);
    if (early == early_.end()) return awaited_.push_back(&message);
    take(message, early->bytes);
    early_.erase(early);
  }
  // Each returns whether a message is done. `self` names this process in errors.
  bool poll(const std::string& name) {
    // First: what ends this process may have come, when no more can be sent.
    const bool received = !closed_ && read(name);
    if (closed_ && (!sending_.empty() || !awaited_.empty() || into_))
      fail(name, "the process has ended");
    return (!closed_ && write(name)) || received;
  }
  void end_others(const std::string& why) noexcept;

  std::string host;

 private:
  // That came before it was asked for.
  struct Early {
    int tag;
    std::vector<std::byte> bytes;
  };

  bool write(const std::string& name);
  bool read(const std::string& name);
  // How many bytes moved; 0 if none can now.
  std::size_t move_out(std::span<const std::byte> bytes, const std::string& name);
  std::size_t move_in(std::span<std::byte> bytes, const std::string& name);
  void begin_message(const std::string& name);
  bool end_message(const std::string& name);
  static void take(GroupMessage& message, std::span<const std::byte> bytes) {
    std::ranges::copy(bytes, message.bytes.begin());
    message.done = true;
  }

  Socket socket_;
  bool closed_ = false;  // by the other process
  std::deque<GroupMessage*> sending_;
  Head sent_head_ = {};
  std::size_t sent_ = 0;  // of the first of sending_, its head among it
  std::vector<GroupMessage*> awaited_;
  Head head_ = {};
  std::size_t read_ = 0;  // of the message that comes in, its head among it
  GroupMessage* into_ = nullptr;
  std::vector<std::byte> kept_;  // instead of `into_`
  std::vector<Early> early_;
};

std::size_t Peer::move_out(std::span<const std::byte> bytes, const std::string& name) {
  const ssize_t moved =
      ::send(socket_.file(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  if (moved >= 0) return static_cast<std::size_t>(moved);
  if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)
    fail(name, cat("the connection is lost (", std::strerror(errno), ")"));
  return 0;
}

std::size_t Peer::move_in(std::span<std::byte> bytes, const std::string& name) {
  const ssize_t moved = ::recv(socket_.file(), bytes.data(), bytes.size(), MSG_DONTWAIT);
  if (moved > 0) return static_cast<std::size_t>(moved);
  closed_ = moved == 0;
  if (closed_) return 0;
  if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)
    fail(name, cat("the connection is lost (", std::strerror(errno), ")"));
  return 0;
}

bool Peer::write(const std::string& name) {
  bool done = false;
  while (!sending_.empty()) {
    GroupMessage& message = *sending_.front();
    if (sent_ == 0)
      sent_head_ = {static_cast<std::uint32_t>(message.tag), kMagic, message.bytes.size()};
    const auto head = std::as_bytes(std::span(&sent_head_, 1));
    const std::size_t moved = sent_ < sizeof(Head)
                                  ? move_out(head.subspan(sent_), name)
                                  : move_out(message.bytes.subspan(sent_ - sizeof(Head)), name);
    sent_ += moved;
    if (sent_ == sizeof(Head) + message.bytes.size()) {
      message.done = done = true;
      sending_.pop_front();
      sent_ = 0;
    } else if (moved == 0) {
      break;
    }
  }
  return done;
}

bool Peer::read(const std::string& name) {
  bool done = false;
  for (;;) {
    std::size_t moved = 0;
    if (read_ < sizeof(Head)) {
      moved = move_in(std::as_writable_bytes(std::span(&head_, 1)).subspan(read_), name);
      read_ += moved;
      if (read_ == sizeof(Head)) begin_message(name);
    } else {
      const std::span<std::byte> bytes = into_ ? into_->bytes : std::span(kept_);
      moved = move_in(bytes.subspan(read_ - sizeof(Head)), name);
      read_ += moved;
    }
    if (read_ >= sizeof(Head) && read_ == sizeof(Head) + head_.size)
      done = end_message(name) || done;
    else if (moved == 0)
      return done;
  }
}

void Peer::begin_message(const std::string& name) {
  if (head_.magic != kMagic) fail(name, "sends what is no message");
  if (head_.tag == kEnd) {
    kept_.resize(std::min(head_.size, kLongestReason));
    return;
  }
  const auto found = std::ranges::find(awaited_, static_cast<int>(head_.tag), &GroupMessage::tag);
  if (found == awaited_.end()) {
    if (head_.size > kLongestEarly) fail(name, "sends what is no message");
    return kept_.resize(head_.size);
  }
  into_ = *found;
  awaited_.erase(found);
  if (into_->bytes.size() != head_.size)
    fail(name, cat("sends ", head_.size, " bytes where ", into_->bytes.size(),
                   " are expected (tag ", head_.tag, "): the processes do not run the same plan"));
}

// True if somebody has asked for it.
bool Peer::end_message(const std::string& name) {
  read_ = 0;
  if (head_.tag == kEnd)
    fail(name, std::string(reinterpret_cast<const char*>(kept_.data()), kept_.size()));
  if (GroupMessage* const into = std::exchange(into_, nullptr)) return into->done = true;
  // It may have been asked for since it began.
  const auto found = std::ranges::find(awaited_, static_cast<int>(head_.tag), &GroupMessage::tag);
  if (found == awaited_.end()) {
    early_.push_back({static_cast<int>(head_.tag), std::exchange(kept_, {})});
    return false;
  }
  take(**found, kept_);
  awaited_.erase(found);
  return true;
}

void Peer::end_others(const std::string& why) noexcept {
  // What is on its way cannot be ended in the middle; the closed connection then says enough.
  if (sent_ > 0) return;
  const Head head{kEnd, kMagic, std::min<std::uint64_t>(why.size(), kLongestReason)};
  std::ignore = ::send(socket_.file(), &head, sizeof(head), MSG_NOSIGNAL | MSG_DONTWAIT);
  std::ignore = ::send(socket_.file(), why.data(), head.size, MSG_NOSIGNAL | MSG_DONTWAIT);
}

class TcpGroup final : public ProcessGroup {
 public:
  // peers[rank] is empty.
  TcpGroup(int rank, std::string host, std::vector<std::unique_ptr<Peer>> peers)
      : rank_(rank), host_(std::move(host)), peers_(std::move(peers)) {}

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(peers_.size()); }
  const std::string& host(int rank) const override {
    return rank == rank_ ? host_ : peer(rank).host;
  }
  std::string carrier() const override { return "TCP"; }

  void send(GroupMessage& message) override {
    message.done = false;
    peer(message.peer).send(message);
  }
  void receive(GroupMessage& message) override {
    message.done = false;
    peer(message.peer).receive(message);
    arrived_ = arrived_ || message.done;
  }
  bool poll() override {
    bool done = std::exchange(arrived_, false);
    for (int r = 0; r < size(); ++r)
      if (r != rank_) done = peer(r).poll(describe_rank(*this, r)) || done;
    return done;
  }
  void end_others(const std::string& why) noexcept override {
    for (const std::unique_ptr<Peer>& peer : peers_)
      if (peer) peer->end_others(why);
  }

 private:
  Peer& peer(int rank) const { return *peers_[static_cast<std::size_t>(rank)]; }

  const int rank_;
  const std::string host_;
  const std::vector<std::unique_ptr<Peer>> peers_;
  bool arrived_ = false;  // before it was asked for
};

// What a process says when it calls another.
struct Hello {
  std::string token;
  int rank = -1, size = 0, port = 0;
  std::string host;

  std::string str() const { return cat(token, "\n", rank, "\n", size, "\n", port, "\n", host); }
  static Hello parse(const std::string& text) {
    std::istringstream lines(text);
    Hello hello;
    std::getline(lines, hello.token);
    lines >> hello.rank >> hello.size >> hello.port >> hello.host;
    return hello;
  }
};

// Brings the processes of a run together.
class Meeting {
 public:
  explicit Meeting(const TcpGroupOptions& options)
      : options_(options),
        host_(options.host.empty() ? own_host() : options.host),
        deadline_(std::chrono::steady_clock::now() + options.timeout),
        peers_(static_cast<std::size_t>(options.size)) {}

  std::unique_ptr<ProcessGroup> run() {
    if (options_.size > 1) options_.rank == 0 ? lead() : follow();
    return std::make_unique<TcpGroup>(options_.rank, host_, std::move(peers_));
  }

 private:
  Hello own(int port) const { return {options_.token, options_.rank, options_.size, port, host_}; }
  void add(int rank, Socket socket, const std::string& host) {
    peers_[static_cast<std::size_t>(rank)] = std::make_unique<Peer>(std::move(socket), host);
  }

  // Rank 0: waits for all, then tells all where the others listen.
  void lead() {
    const Socket listener = Socket::listen_on(options_.port);
    std::vector<Socket> sockets(peers_.size());
    std::vector<Hello> hellos(peers_.size());
    std::vector<std::string> addresses(peers_.size());
    for (std::size_t missing = peers_.size() - 1; missing > 0;) {
      Socket socket = accept_next(listener, sockets);
      const Hello hello = Hello::parse(socket.read_text(deadline_));
      const std::string refusal = refuse(hello, sockets);
      if (hello.token != options_.token) continue;  // no process of ours
      if (!refusal.empty()) end_all(refusal, socket, sockets);
      const auto r = static_cast<std::size_t>(hello.rank);
      addresses[r] = socket.peer_address();
      hellos[r] = hello;
      sockets[r] = std::move(socket);
      --missing;
    }
    std::ostringstream table;
    for (std::size_t r = 1; r < sockets.size(); ++r)
      table << addresses[r] << ' ' << hellos[r].port << ' ' << hellos[r].host << '\n';
    for (std::size_t r = 1; r < sockets.size(); ++r) {
      sockets[r].write_text(cat("welcome ", host_, "\n", table.str()), deadline_);
      add(static_cast<int>(r), std::move(sockets[r]), hellos[r].host);
    }
  }

  Socket accept_next(const Socket& listener, const std::vector<Socket>& sockets) const {
    try {
      return listener.accept_one(deadline_);
    } catch (const CommError&) {
      std::string missing;
      for (std::size_t r = 1; r < sockets.size(); ++r)
        if (!sockets[r]) missing += cat(missing.empty() ? "" : ", ", r);
      throw CommError(cat("rank 0 has waited ", options_.timeout.count(), " s at port ",
                          options_.port, " for rank ", missing, " of ", options_.size,
                          "; start all processes, and let them reach ", options_.address));
    }
  }

  std::string refuse(const Hello& hello, const std::vector<Socket>& sockets) const {
    if (hello.size != options_.size)
      return cat("rank ", hello.rank, " on ", hello.host, " was started for ", hello.size,
                 " processes, rank 0 for ", options_.size);
    if (hello.rank < 1 || hello.rank >= options_.size)
      return cat("a process on ", hello.host, " says that it is rank ", hello.rank, " of ",
                 options_.size);
    if (sockets[static_cast<std::size_t>(hello.rank)])
      return cat("two processes say that they are rank ", hello.rank, "; one is on ", hello.host);
    return "";
  }

  [[noreturn]] void end_all(const std::string& why, const Socket& last,
                            const std::vector<Socket>& others) const {
    last.write_text(why, deadline_);
    for (const Socket& socket : others)
      if (socket) socket.write_text(why, deadline_);
    throw CommError(why);
  }

  // Others: hear from rank 0 where the rest listen; call those before, wait for those behind.
  void follow() {
    const Socket listener = Socket::listen_on(0);
    Socket to_first = call(options_.address, options_.port, listener.port());
    std::istringstream table(hear(to_first));
    std::string welcome, first_host;
    table >> welcome >> first_host;
    add(0, std::move(to_first), first_host);
    std::vector<std::string> hosts(peers_.size());
    for (int r = 1; r < options_.size; ++r) {
      std::string address;
      int port = 0;
      table >> address >> port >> hosts[static_cast<std::size_t>(r)];
      if (r < options_.rank)
        add(r, call(address, port, listener.port()), hosts[static_cast<std::size_t>(r)]);
    }
    for (int missing = options_.size - 1 - options_.rank; missing > 0;) {
      Socket socket = listener.accept_one(deadline_);
      const Hello hello = Hello::parse(socket.read_text(deadline_));
      if (hello.token != options_.token || hello.rank <= options_.rank) continue;
      add(hello.rank, std::move(socket), hello.host);
      --missing;
    }
  }

  Socket call(const std::string& address, int port, int own_port) const {
    Socket socket = Socket::connect_to(address, port, deadline_);
    socket.write_text(own(own_port).str(), deadline_);
    return socket;
  }

  std::string hear(const Socket& first) const {
    std::string text;
    try {
      text = first.read_text(deadline_);
    } catch (const CommError& error) {
      throw CommError(cat("rank ", options_.rank, ": rank 0 at ", options_.address, ":",
                          options_.port, " does not take this process in (", error.what(),
                          "); it may have another token, or wait for others"));
    }
    require<CommError>(text.starts_with("welcome "), text);
    return text;
  }

  const TcpGroupOptions& options_;
  const std::string host_;
  const Deadline deadline_;
  std::vector<std::unique_ptr<Peer>> peers_;
};

}  // namespace

int free_port() {
  // Below the ports that the system gives to sockets which ask for any port: one of those could
  // take the port before rank 0 listens.
  constexpr int kFirst = 10'000, kLast = 32'767, kTries = 100;
  std::random_device random;
  std::uniform_int_distribution<int> ports(kFirst, kLast);
  for (int i = 0; i < kTries; ++i) {
    const int port = ports(random);
    try {
      return Socket::listen_on(port).port();
    } catch (const CommError&) {  // somebody listens there
    }
  }
  throw CommError(cat("of ", kTries, " ports between ", kFirst, " and ", kLast, " none is free"));
}

std::unique_ptr<ProcessGroup> connect_tcp(const TcpGroupOptions& options) {
  require(options.size >= 1 && options.rank >= 0 && options.rank < options.size, "rank ",
          options.rank, " of ", options.size, " processes is not possible");
  require(options.token.find('\n') == std::string::npos, "a token has no line break");
  return Meeting(options).run();
}

}  // namespace belfry
