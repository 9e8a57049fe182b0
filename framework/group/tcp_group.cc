// Each pair of processes has one connection. Rank 0 listens at an address that all know. Each other
// process listens at any free port and tells rank 0, which tells all.
#include "belfry/framework/group/tcp_group.h"

#include <algorithm>
#include <random>
#include <sstream>

#include <unistd.h>

#include "belfry/framework/base/require.h"
#include "belfry/framework/group/tcp_peer_impl.h"

namespace belfry {
namespace {

using detail::Deadline;
using detail::Socket;
using detail::TcpPeer;

std::string own_host() {
  char name[256] = {};
  return ::gethostname(name, sizeof(name) - 1) == 0 ? name : "unknown";
}

class TcpGroup final : public ProcessGroup {
 public:
  // peers[rank] is empty.
  TcpGroup(int rank, std::string host, std::vector<std::unique_ptr<TcpPeer>> peers)
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
    for (const std::unique_ptr<TcpPeer>& peer : peers_)
      if (peer) peer->end_others(why);
  }

 private:
  TcpPeer& peer(int rank) const { return *peers_[static_cast<std::size_t>(rank)]; }

  const int rank_;
  const std::string host_;
  const std::vector<std::unique_ptr<TcpPeer>> peers_;
  bool arrived_ = false;  // before somebody asked for it
};

// The first words of a process that connects to another.
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
    peers_[static_cast<std::size_t>(rank)] = std::make_unique<TcpPeer>(std::move(socket), host);
  }

  // Rank 0 waits for all, then tells all where the others listen.
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

  // The others hear from rank 0 where the rest listen. They call lower ranks, and wait for higher
  // ones.
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
  std::vector<std::unique_ptr<TcpPeer>> peers_;
};

}  // namespace

int free_port() {
  // These are below the ports that the system gives to sockets which ask for any port. Such a
  // socket could take the port before rank 0 listens.
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
