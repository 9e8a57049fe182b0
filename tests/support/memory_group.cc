#include "belfry/tests/support/memory_group.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <exception>
#include <map>
#include <stdexcept>
#include <thread>
#include <utility>

#include "belfry/framework/base/text.h"
#include "belfry/framework/group/peer_error.h"
#include "belfry/framework/group/tags.h"

namespace belfry::test {

// Of a process that no longer exists.
struct KilledHere : std::runtime_error {
  KilledHere() : std::runtime_error("this process was killed") {}
};

class MemoryGroup final : public ProcessGroup {
 public:
  MemoryGroup(MemoryNetwork& network, int rank) : network_(network), rank_(rank) {}
  ~MemoryGroup() override {
    own().closed = true;
    ++network_.closings_;
    network_.wake_all();
  }
  MemoryGroup(const MemoryGroup&) = delete;
  MemoryGroup& operator=(const MemoryGroup&) = delete;

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(network_.boxes_.size()); }
  const std::string& host(int rank) const override {
    return network_.hosts_[static_cast<std::size_t>(rank)];
  }
  std::string transport() const override { return "memory"; }
  const std::vector<int>& connected() const override { return connected_; }

  void send(GroupMessage& message) override {
    require_alive();
    connect(message.peer);
    network_.deliver(rank_, message.peer, message.tag, message.bytes);
    message.done = moved_ = true;
  }
  void receive(GroupMessage& message) override {
    require_alive();
    message.done = false;
    if (!may_never_come(message.tag)) {
      connect(message.peer);
      network_.connect(rank_, message.peer);
    }
    const auto early = early_.find({message.peer, message.tag});
    if (early == early_.end()) {
      awaited_[{message.peer, message.tag}].push_back(&message);
      return;
    }
    put(early->second.front(), message);
    early->second.pop_front();
    if (early->second.empty()) early_.erase(early);
  }

  bool poll() override {
    require_alive();
    if (forgotten_) return false;
    const int closings = network_.closings_;
    std::vector<MemoryNetwork::Message> inbox;
    {
      const std::lock_guard lock(own().mutex);
      inbox.swap(own().inbox);
    }
    for (MemoryNetwork::Message& message : inbox) take(std::move(message));
    if (closings > 0) look_for_closed();
    return std::exchange(moved_, false);
  }
  void wait(std::chrono::steady_clock::time_point until, std::chrono::nanoseconds) override {
    if (moved_) return;
    MemoryNetwork::Box& box = own();
    std::unique_lock lock(box.mutex);
    box.changed.wait_until(lock, until, [&] { return box.woken || !box.inbox.empty(); });
    box.woken = false;
  }
  void wake() override { network_.wake(rank_); }
  std::uint64_t received_from(int rank) const override {
    const auto found = received_.find(rank);
    return found == received_.end() ? 0 : found->second;
  }

  bool forget_messages() noexcept override {
    forgotten_ = true;
    awaited_.clear();
    return true;
  }
  void end_others(const std::string& reason) noexcept override {
    forget_messages();
    if (own().killed || std::exchange(has_ended_others_, true)) return;
    const std::vector<char> peers = [&] {
      const std::lock_guard lock(own().mutex);
      return own().peers;
    }();
    for (std::size_t r = 0; r < peers.size(); ++r)
      if (peers[r])
        network_.deliver(rank_, static_cast<int>(r), kEndTag, std::as_bytes(std::span(reason)));
  }

 private:
  using Place = std::pair<int, int>;  // rank and tag

  MemoryNetwork::Box& own() const { return network_.box(rank_); }
  void require_alive() const {
    if (own().killed) throw KilledHere();
  }
  void connect(int rank) {
    if (received_.try_emplace(rank).second) connected_.push_back(rank);
  }
  void take(MemoryNetwork::Message message) {
    if (message.tag == kEndTag)
      throw_reason(message.from, host(message.from),
                   {reinterpret_cast<const char*>(message.bytes.data()), message.bytes.size()});
    connect(message.from);
    received_[message.from] += message.bytes.size();
    const auto awaited = awaited_.find({message.from, message.tag});
    if (awaited == awaited_.end()) {
      early_[{message.from, message.tag}].push_back(std::move(message.bytes));
      return;
    }
    put(message.bytes, *awaited->second.front());
    awaited->second.pop_front();
    if (awaited->second.empty()) awaited_.erase(awaited);
  }
  void put(const std::vector<std::byte>& bytes, GroupMessage& message) {
    if (bytes.size() != message.bytes.size())
      blame_peer(*this, message.peer,
                 cat("sends ", bytes.size(), " bytes where ", message.bytes.size(),
                     " are expected (tag ", message.tag, ")"));
    std::ranges::copy(bytes, message.bytes.begin());
    message.end();
    moved_ = true;
  }
  // All messages that it sent before have been taken.
  void look_for_closed() const {
    for (const auto& [place, messages] : awaited_)
      if (network_.box(place.first).closed && !network_.box(place.first).is_cut &&
          !may_never_come(place.second)) {
        const std::lock_guard lock(own().mutex);
        if (own().inbox.empty()) blame_peer(*this, place.first, "the process has ended");
      }
  }

  MemoryNetwork& network_;
  const int rank_;
  std::map<Place, std::deque<GroupMessage*>> awaited_;
  std::map<Place, std::deque<std::vector<std::byte>>> early_;
  std::map<int, std::uint64_t> received_;  // by rank: bytes of those in connected_
  std::vector<int> connected_;
  bool moved_ = false, forgotten_ = false, has_ended_others_ = false;
};

MemoryNetwork::MemoryNetwork(int size, int per_host, bool cyclic) {
  const auto host_of = [&](int r) {
    if (per_host == 0) return 0;
    return cyclic ? r % (size / per_host) : r / per_host;
  };
  for (int r = 0; r < size; ++r) {
    boxes_.push_back(std::make_unique<Box>());
    boxes_.back()->peers.resize(static_cast<std::size_t>(size));
    hosts_.push_back(cat("host", host_of(r)));
  }
}

std::unique_ptr<ProcessGroup> MemoryNetwork::group(int rank) {
  return std::make_unique<MemoryGroup>(*this, rank);
}

void MemoryNetwork::deliver(int from, int to, int tag, std::span<const std::byte> bytes) {
  if (box(from).is_cut || box(to).is_cut) return;
  {
    Box& sender = box(from);
    const std::lock_guard lock(sender.mutex);
    Traffic& traffic = tag == kHeartbeatTag ? sender.heartbeats : sender.traffic;
    ++traffic.messages;
    traffic.bytes += std::ssize(bytes);
  }
  connect(from, to);
  Box& receiver = box(to);
  const std::lock_guard lock(receiver.mutex);
  receiver.inbox.push_back({from, tag, {bytes.begin(), bytes.end()}});
  receiver.changed.notify_one();
}

void MemoryNetwork::connect(int from, int to) {
  for (const auto& [one, other] : {std::pair(from, to), std::pair(to, from)}) {
    const std::lock_guard lock(box(one).mutex);
    box(one).peers[static_cast<std::size_t>(other)] = 1;
  }
}

void MemoryNetwork::wake(int rank) {
  const std::lock_guard lock(box(rank).mutex);
  box(rank).woken = true;
  box(rank).changed.notify_one();
}

void MemoryNetwork::wake_all() {
  for (int rank = 0; rank < std::ssize(boxes_); ++rank) wake(rank);
}

void MemoryNetwork::kill(int rank) {
  box(rank).killed = box(rank).closed = true;
  ++closings_;
  wake_all();
}

void MemoryNetwork::cut(int rank) { box(rank).is_cut = true; }

Traffic MemoryNetwork::traffic(int rank, bool heartbeats) const {
  const Box& of = box(rank);
  const std::lock_guard lock(of.mutex);
  Traffic traffic = heartbeats ? of.heartbeats : of.traffic;
  traffic.peers = static_cast<int>(std::ranges::count(of.peers, 1));
  return traffic;
}

void run_in_memory(MemoryNetwork& network, int size,
                   const std::function<void(std::shared_ptr<Processes>)>& body,
                   const WatchOptions& watch) {
  std::vector<std::exception_ptr> errors(static_cast<std::size_t>(size));
  {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < size; ++rank)
      threads.emplace_back([&, rank] {
        try {
          body(std::make_shared<Processes>([&, rank] { return network.group(rank); }, watch));
        } catch (const KilledHere&) {
        } catch (...) {
          errors[static_cast<std::size_t>(rank)] = std::current_exception();
        }
      });
  }
  for (const std::exception_ptr& error : errors)
    if (error) std::rethrow_exception(error);
}

}  // namespace belfry::test
