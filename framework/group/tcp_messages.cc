#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

#include "belfry/framework/base/host_memory.h"
#include "belfry/framework/group/tcp_messages_impl.h"

namespace belfry::detail {
namespace {

class TcpGroup final : public ProcessGroup {
 public:
  TcpGroup(int rank, std::string host, std::vector<std::unique_ptr<TcpPeer>> peers,
           TcpLimits limits)
      : rank_(rank),
        host_(std::move(host)),
        limits_(limits),
        early_(limits.most_early ? limits.most_early : static_cast<std::size_t>(host_memory() / 2)),
        peers_(std::move(peers)) {
    for (int r = 0; r < size(); ++r) {
      TcpPeer* const other = peers_[static_cast<std::size_t>(r)].get();
      if (!other) continue;
      const bool near = limits_.by_memory && other->host == host_;
      if (near && !pass_) pass_.emplace();
      other->join(r, rank_, early_, near ? &*pass_ : nullptr);
      watch_.add(other->socket(), static_cast<std::uint64_t>(r));
    }
  }

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(peers_.size()); }
  const std::string& host(int rank) const override {
    return rank == rank_ ? host_ : peer(rank).host;
  }
  std::string transport() const override { return "TCP"; }

  void send(GroupMessage& message) override {
    message.done = false;
    peer(message.peer).send(message);
  }
  void receive(GroupMessage& message) override {
    message.done = false;
    peer(message.peer).receive(message);
    arrived_ = arrived_ || message.done;
  }
  // Each process starts with the next rank, so that not all send to one first.
  bool poll() override {
    if (!std::exchange(looked_, false)) look({});
    bool done = std::exchange(arrived_, false);
    for (int i = 1; i < size(); ++i) done = peer((rank_ + i) % size()).poll() || done;
    return done;
  }
  void wait(std::chrono::steady_clock::time_point until, std::chrono::nanoseconds) override {
    const auto can_move = [](const auto& peer) { return peer && peer->can_move(); };
    if (arrived_ || std::ranges::any_of(peers_, can_move)) return;
    look(until - std::chrono::steady_clock::now());
    looked_ = true;
  }
  void wake() override { watch_.wake(); }
  std::uint64_t received_from(int rank) const override { return peer(rank).received(); }

  bool forget_messages() noexcept override {
    if (pass_) pass_->withdraw();
    for (const std::unique_ptr<TcpPeer>& peer : peers_)
      if (peer) peer->forget_messages();
    return true;
  }
  // Takes its time: the reason must leave this process, after what is half sent.
  void end_others(const std::string& why) noexcept override {
    forget_messages();
    for (const std::unique_ptr<TcpPeer>& peer : peers_)
      if (peer) peer->end(why);
    const auto last = std::chrono::steady_clock::now() + limits_.to_end;
    const auto all_know = [&] {
      bool all = true;
      for (const std::unique_ptr<TcpPeer>& peer : peers_) all &= !peer || peer->has_ended();
      return all;
    };
    for (Backoff backoff; !all_know() && std::chrono::steady_clock::now() < last;) backoff.nap();
  }

 private:
  void look(std::chrono::nanoseconds most) {
    for (const epoll_event& event : watch_.look(most))
      peer(static_cast<int>(event.data.u64)).note(event.events);
  }
  TcpPeer& peer(int rank) const { return *peers_[static_cast<std::size_t>(rank)]; }

  const int rank_;
  const std::string host_;
  const TcpLimits limits_;
  EarlyMemory early_;
  std::optional<MemoryPass> pass_;
  const std::vector<std::unique_ptr<TcpPeer>> peers_;
  SocketWatch watch_;
  bool looked_ = false;   // wait() did, for poll()
  bool arrived_ = false;  // before somebody asked for it
};

}  // namespace

std::unique_ptr<ProcessGroup> make_tcp_group(int rank, std::string host,
                                             std::vector<std::unique_ptr<TcpPeer>> peers,
                                             TcpLimits limits) {
  return std::make_unique<TcpGroup>(rank, std::move(host), std::move(peers), limits);
}

}  // namespace belfry::detail
