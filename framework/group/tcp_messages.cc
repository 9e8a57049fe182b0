#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

#include "belfry/framework/base/host_memory.h"
#include "belfry/framework/group/tags.h"
#include "belfry/framework/group/tcp_messages_impl.h"
#include "belfry/framework/group/tcp_peer_impl.h"

namespace belfry::detail {
namespace {

class TcpGroup final : public ProcessGroup {
 public:
  TcpGroup(int rank, std::vector<Met> met, TcpLimits limits, std::optional<Door> door)
      : rank_(rank),
        limits_(limits),
        early_(limits.most_early ? limits.most_early : static_cast<std::size_t>(host_memory() / 2)),
        met_(std::move(met)),
        peers_(met_.size()) {
    if (door) calls_.emplace(*std::move(door), met_, watch_);
    for (std::size_t r = 0; r < met_.size(); ++r)
      if (met_[r].socket) open(static_cast<int>(r), std::move(met_[r].socket));
  }

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(met_.size()); }
  const std::string& host(int rank) const override { return met_[at(rank)].host; }
  std::string transport() const override { return "TCP"; }
  const std::vector<int>& connected() const override { return connected_; }

  void send(GroupMessage& message) override {
    message.done = false;
    TcpPeer& to = needed(message);
    to.send(message);
    if (overtakes(message.tag)) to.write();  // so that nobody has to poll for a heartbeat
  }
  void receive(GroupMessage& message) override {
    message.done = false;
    TcpPeer& from = may_never_come(message.tag) ? peer(message.peer) : needed(message);
    from.receive(message);
    arrived_ = arrived_ || message.done;
  }
  bool poll() override {
    if (!std::exchange(looked_, false)) look({});
    if (calls_)
      for (TcpCalls::Made& made : calls_->advance()) open(made.rank, std::move(made.socket));
    bool done = std::exchange(arrived_, false);
    for (const int r : in_turn_) done = peers_[at(r)]->poll() || done;
    return done;
  }
  void wait(std::chrono::steady_clock::time_point until, std::chrono::nanoseconds) override {
    const auto can_move = [&](int r) { return peers_[at(r)]->can_move(); };
    if (arrived_ || std::ranges::any_of(in_turn_, can_move)) return;
    if (calls_) until = std::min(until, calls_->next_look());
    look(until - std::chrono::steady_clock::now());
    looked_ = true;
  }
  void wake() override { watch_.wake(); }
  std::uint64_t received_from(int rank) const override {
    const auto& peer = peers_[at(rank)];
    return peer ? peer->received() : 0;
  }

  bool forget_messages() noexcept override {
    if (pass_) pass_->withdraw();
    calls_.reset();
    for (const int r : in_turn_) peers_[at(r)]->forget_messages();
    return true;
  }
  // Takes its time: the reason must leave this process, after what is half sent.
  void end_others(const std::string& why) noexcept override {
    forget_messages();
    for (const int r : in_turn_) peers_[at(r)]->end(why);
    const auto last = std::chrono::steady_clock::now() + limits_.to_end;
    const auto all_know = [&] {
      bool all = true;
      for (const int r : in_turn_) all &= peers_[at(r)]->has_ended();
      return all;
    };
    for (Backoff backoff; !all_know() && std::chrono::steady_clock::now() < last;) backoff.nap();
  }

 private:
  static std::size_t at(int rank) { return static_cast<std::size_t>(rank); }

  void look(std::chrono::nanoseconds most) {
    for (const epoll_event& event : watch_.look(most)) {
      const std::uint64_t key = event.data.u64;
      TcpPeer* const of = key < peers_.size() ? peers_[key].get() : nullptr;
      if (of && of->is_open())
        of->note(event.events);
      else if (calls_)
        calls_->note(key);
    }
  }
  TcpPeer& peer(int rank) {
    std::unique_ptr<TcpPeer>& peer = peers_[at(rank)];
    if (peer) return *peer;
    const bool near = limits_.by_memory && host(rank) == host(rank_);
    if (near && !pass_) pass_.emplace();
    peer = std::make_unique<TcpPeer>(rank, host(rank), rank_, early_, near ? &*pass_ : nullptr);
    // Each process starts with the next rank, so that not all send to one first.
    const auto turn = [&](int r) { return (r - rank_ + size()) % size(); };
    in_turn_.insert(std::ranges::upper_bound(in_turn_, turn(rank), {}, turn), rank);
    return *peer;
  }
  // The peer of a message, to which there will be a connection.
  TcpPeer& needed(const GroupMessage& message) {
    TcpPeer& other = peer(message.peer);
    if (!other.is_open() && calls_) calls_->need(message.peer, may_never_come(message.tag));
    return other;
  }
  void open(int rank, Socket socket) {
    watch_.add(socket, static_cast<std::uint64_t>(rank));
    peer(rank).open(std::move(socket));
    connected_.push_back(rank);
  }

  const int rank_;
  const TcpLimits limits_;
  EarlyMemory early_;
  std::optional<MemoryPass> pass_;
  std::vector<Met> met_;                         // by rank; their sockets are the peers'
  std::vector<std::unique_ptr<TcpPeer>> peers_;  // by rank; null: nobody has needed it
  std::vector<int> in_turn_;                     // the ranks of those that are not null
  std::vector<int> connected_;
  SocketWatch watch_;
  std::optional<TcpCalls> calls_;
  bool looked_ = false;   // wait() did, for poll()
  bool arrived_ = false;  // before somebody asked for it
};

}  // namespace

std::unique_ptr<ProcessGroup> make_tcp_group(int rank, std::vector<Met> met, TcpLimits limits,
                                             std::optional<Door> door) {
  return std::make_unique<TcpGroup>(rank, std::move(met), limits, std::move(door));
}

}  // namespace belfry::detail
