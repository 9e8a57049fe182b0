#include "belfry/framework/group/heartbeats.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <string_view>
#include <tuple>
#include <utility>

#include <sys/stat.h>
#include <unistd.h>

#include "belfry/framework/base/check_hash.h"
#include "belfry/framework/base/error.h"
#include "belfry/framework/base/file_system.h"
#include "belfry/framework/base/sha256.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/group/peer_error.h"
#include "belfry/framework/group/seconds_impl.h"
#include "belfry/framework/group/tags.h"

namespace belfry {
namespace {

// The beginning of a file of /proc; "" if it cannot be read.
std::string read_proc(const std::string& path) try {
  const auto file = local_file_system().open(path);
  std::string text(512, '\0');
  text.resize(file->read(std::as_writable_bytes(std::span(text.data(), text.size()))));
  return text;
} catch (const Error&) {
  return "";
}

// Identifies the machine, since its start, and the container in which process numbers are valid. 0
// if unknown.
std::uint64_t machine_of_numbers() {
  const std::string boot = read_proc("/proc/sys/kernel/random/boot_id");
  struct stat numbers {};
  if (boot.empty() || ::stat("/proc/self/ns/pid", &numbers) != 0) return 0;
  std::uint64_t machine = 0;
  std::memcpy(&machine, sha256(cat(boot, numbers.st_ino)).data(), sizeof(machine));
  return machine;
}

constexpr auto kNoWait = std::numeric_limits<std::uint32_t>::max();

std::uint32_t number_of(std::chrono::steady_clock::duration length) {
  const auto number = std::chrono::duration_cast<std::chrono::milliseconds>(length).count();
  return static_cast<std::uint32_t>(std::clamp<std::int64_t>(number, 0, kNoWait - 1));
}

std::size_t bytes_of_bits(int bits) { return static_cast<std::size_t>(bits + 7) / 8; }

constexpr std::size_t kHashBytes = sizeof(std::uint64_t);

// Ranks are numbered in a circle. Calls f() with the distances of processes that hear of each
// other. With a larger factor a process hears more often from fewer others, and news takes more
// steps to reach all.
template <class F>
void for_distances(int size, const F& f) {
  constexpr int kFactor = 4;
  for (int distance = 1; distance < size; distance *= kFactor) f(distance);
}

// The state of a process on this machine, as the letter in /proc; 0 if unknown.
char state_of(std::uint32_t pid) {
  const std::string text = read_proc(cat("/proc/", pid, "/stat"));
  const std::size_t end = text.rfind(')');
  return end != text.npos && end + 2 < text.size() ? text[end + 2] : '\0';
}

}  // namespace

PeerHeartbeats::PeerHeartbeats(ProcessGroup& group, std::chrono::milliseconds interval)
    : group_(group),
      interval_(interval),
      machine_(machine_of_numbers()),
      tree_(group),
      left_(static_cast<std::size_t>(group.size())),
      from_children_(tree_.children.size()),
      to_children_(tree_.children.size()),
      since_(Clock::now()) {
  const int rank = group.rank(), size = group.size();
  const std::size_t bytes = sizeof(Heartbeat) + bytes_of_bits(size) + kHashBytes;
  for_distances(size, [&](int distance) {
    listeners_.push_back({std::vector<std::byte>(bytes), {(rank + distance) % size}});
    watched_.push_back({.rank = (rank + size - distance) % size,
                        .in = std::vector<std::byte>(bytes),
                        .heard = Clock::now()});
  });
  for (Listener& to : listeners_) to.sent = {to.sent.peer, kHeartbeatTag, std::span(to.out), true};
  for (Watched& from : watched_) {
    from.received = {from.rank, kHeartbeatTag, std::span(from.in)};
    group.receive(from.received);
  }
  const auto prepare = [](Leaving& leaving, int peer, bool done) {
    leaving.message = {peer, kLeaveTag, {&leaving.byte, 1}, done};
  };
  for (std::size_t i = 0; i < tree_.children.size(); ++i) {
    prepare(from_children_[i], tree_.children[i], false);
    prepare(to_children_[i], tree_.children[i], true);
    group.receive(from_children_[i].message);
  }
  prepare(to_parent_, tree_.parent, true);
  prepare(from_parent_, tree_.parent, true);
  if (tree_.parent >= 0) group.receive(from_parent_.message);
  send();  // so all are connected with their listeners, who will learn why this process ends
}

void PeerHeartbeats::hear() {
  for (Watched& from : watched_) {
    const std::uint64_t bytes = group_.received_from(from.rank);
    if (std::exchange(from.bytes, bytes) != bytes) from.silent = 0;
    if (from.is_last || !from.received.done) continue;
    from.silent = 0;
    const auto said = std::span(from.in).first(from.in.size() - kHashBytes);
    std::uint64_t hash = 0;
    std::memcpy(&hash, said.data() + said.size(), sizeof(hash));
    if (hash != check_hash(said)) blame_peer(group_, from.rank, "sends a damaged heartbeat");
    Heartbeat heartbeat;
    std::memcpy(&heartbeat, from.in.data(), sizeof(heartbeat));
    take(heartbeat, from);
    if (!from.is_last) group_.receive(from.received);
  }
  look_at_leaving();
}

void PeerHeartbeats::take(const Heartbeat& heartbeat, Watched& from) {
  const Clock::time_point now = Clock::now();
  from.is_last = heartbeat.is_last != 0;
  from.wait = heartbeat.wait;
  from.least = heartbeat.least;
  from.heard = now;
  from.unheard = 0;
  Status status = heartbeat.own;
  status.rank = from.rank;
  status.age = status.silence = status.unheard = 0;
  known_.erase(from.rank);  // nobody knows it better
  learn(status, now);
  for (const Status& other : heartbeat.others)
    if (other.pid != 0) learn(other, now);
  for (std::size_t rank = 0; rank < left_.size(); ++rank) {
    const std::byte bits = from.in[sizeof(Heartbeat) + rank / 8];
    if (left_[rank] == 0 && (bits >> (rank % 8) & std::byte{1}) != std::byte{0}) left_[rank] = 1;
  }
}

// What has arrived may be anything.
void PeerHeartbeats::learn(Status status, Clock::time_point now) {
  if (status.rank < 0 || status.rank >= group_.size() || status.rank == group_.rank()) return;
  status.doing[sizeof(status.doing) - 1] = '\0';
  const auto order = [](const Status& of) { return std::tuple(of.number, of.unheard); };
  const auto [known, is_new] = known_.try_emplace(status.rank);
  if (!is_new && order(status) <= order(known->second.status)) return;
  known->second = {status, now - std::chrono::milliseconds(status.age),
                   now - std::chrono::milliseconds(status.length)};
}

// Others may hear of a silent process only by those who watch it.
void PeerHeartbeats::vouch(const Watched& peer) {
  if (peer.is_last || !is_overdue(peer)) return;
  if (peer.silent <= normal_silence() && !is_stopped(peer.rank)) return;
  Known& known = known_[peer.rank];
  known.said = Clock::now();
  known.status.rank = peer.rank;
  known.status.unheard = peer.unheard;
  known.status.waits = 0;  // it may have, but now others wait for it
  if (peer.silent > normal_silence()) known.status.silence = number_of(peer.silent * interval_);
}

// A process has left with all that are below it in the tree.
void PeerHeartbeats::look_at_leaving() {
  const bool left_below =
      leaves_ && std::ranges::all_of(from_children_, [](auto& l) { return l.message.done; });
  if (!left_below || all_left_) return;
  if (tree_.parent >= 0 && std::exchange(to_parent_.byte, std::byte{1}) == std::byte{0})
    group_.send(to_parent_.message);
  if (!from_parent_.message.done) return;
  all_left_ = true;
  for (Leaving& child : to_children_) group_.send(child.message);
}

PeerHeartbeats::Status PeerHeartbeats::own_status() {
  const std::string doing = own_doing();
  Status status{.pid = said_.pid != 0 ? said_.pid : static_cast<std::uint32_t>(::getpid()),
                .rank = group_.rank(),
                .launches = launches_,
                .machine = machine_,
                .number = said_.number + 1,
                .in_step = in_step(),
                .waits = wait_.count() > 0};
  std::memcpy(status.doing, doing.data(), std::min(doing.size(), sizeof(status.doing) - 1));
  const bool goes_on =
      status.launches == said_.launches && std::string_view(status.doing) == said_.doing;
  if (!goes_on) since_ = Clock::now();
  status.length = number_of(Clock::now() - since_);
  return said_ = status;
}

void PeerHeartbeats::send(bool last) {
  Heartbeat heartbeat{.own = own_status(),
                      .is_last = last,
                      .wait = leaves_ ? kNoWait : number_of(wait_),
                      .least = shortest_wait()};
  const Clock::time_point now = Clock::now();
  for (const Watched& peer : watched_) vouch(peer);
  std::erase_if(known_, [&](const auto& entry) {
    return !is_recent(entry.second) && !find_watched(entry.first);
  });
  std::vector<const Known*> others;
  for (const auto& [rank, known] : known_)
    if (is_recent(known) && intervals_since_left(rank) == 0) others.push_back(&known);
  const std::size_t passed_on = std::min(kPassedOn, others.size());
  std::ranges::partial_sort(
      others, others.begin() + static_cast<std::ptrdiff_t>(passed_on), {}, [](const Known* known) {
        return std::tuple(known->status.waits, known->status.launches, known->status.rank);
      });
  for (std::size_t i = 0; i < passed_on; ++i) {
    Status& other = heartbeat.others[i];
    other = others[i]->status;
    other.age = number_of(now - others[i]->said);
    other.length = number_of(now - others[i]->since);
  }
  std::vector<std::byte> bytes(sizeof(Heartbeat) + bytes_of_bits(group_.size()) + kHashBytes);
  std::memcpy(bytes.data(), &heartbeat, sizeof(heartbeat));
  for (std::size_t rank = 0; rank < left_.size(); ++rank)
    if (left_[rank] > 0) bytes[sizeof(Heartbeat) + rank / 8] |= std::byte{1} << (rank % 8);
  const auto said = std::span(bytes).first(bytes.size() - kHashBytes);
  const std::uint64_t hash = check_hash(said);
  std::memcpy(said.data() + said.size(), &hash, sizeof(hash));
  const bool to_all = last || said_.number == 1;
  const std::size_t due = said_.number % std::max<std::size_t>(1, listeners_.size());
  for (std::size_t i = 0; i < listeners_.size(); ++i) {
    Listener& to = listeners_[i];
    if (!to.sent.done || (i != due && !to_all)) continue;
    std::ranges::copy(bytes, to.out.begin());
    group_.send(to.sent);
  }
}

void PeerHeartbeats::leave() {
  leaves_ = true;
  left_[static_cast<std::size_t>(group_.rank())] = 1;
  look_at_leaving();
}

bool PeerHeartbeats::all_sent() const {
  return std::ranges::all_of(listeners_, [](auto& to) { return to.sent.done; }) &&
         std::ranges::all_of(to_children_, [](auto& to) { return to.message.done; }) &&
         to_parent_.message.done;
}

bool PeerHeartbeats::all_silent() const { return std::ranges::all_of(watched_, &Watched::is_last); }

void PeerHeartbeats::count_interval() {
  for (Watched& peer : watched_) {
    ++peer.unheard;
    if (!is_overdue(peer) || !is_stopped(peer.rank)) ++peer.silent;
  }
  for (int& left : left_)
    if (left > 0) ++left;
}

// A heartbeat may be late. And one that was stopped while it was overdue has a whole round to
// speak.
int PeerHeartbeats::normal_silence() const { return std::max(5, 2 * round() + 2); }

std::vector<int> PeerHeartbeats::watched() const {
  std::vector<int> ranks;
  for (const Watched& peer : watched_) ranks.push_back(peer.rank);
  return ranks;
}

const PeerHeartbeats::Watched* PeerHeartbeats::find_watched(int rank) const {
  const auto found = std::ranges::find(watched_, rank, &Watched::rank);
  return found == watched_.end() ? nullptr : &*found;
}

int PeerHeartbeats::silent_intervals(int rank) const {
  const Watched* const peer = find_watched(rank);
  return peer ? peer->silent : 0;
}

bool PeerHeartbeats::is_silent(int rank) const {
  const Watched* const peer = find_watched(rank);
  return peer && peer->is_last;
}

bool PeerHeartbeats::is_stopped(int rank) const {
  const auto known = known_.find(rank);
  if (known == known_.end()) return false;
  const Status& last = known->second.status;
  const bool is_seen = last.machine != 0 && last.machine == machine_ &&
                       group_.host(rank) == group_.host(group_.rank());
  if (last.pid == 0 || !is_seen) return false;
  const char state = state_of(last.pid);
  return state == 'T' || state == 't';
}

std::string PeerHeartbeats::describe(int rank) const {
  if (const auto known = known_.find(rank); known != known_.end()) return describe(known->second);
  return cat(describe_rank(group_, rank), ": nobody says what it does");
}

std::string PeerHeartbeats::describe(const Known& known) const {
  const int rank = known.status.rank;
  const int silent = silent_intervals(rank);
  const auto silence = silent > normal_silence() ? silent * interval_
                                                 : std::chrono::milliseconds(known.status.silence);
  const std::string doing = known.status.doing[0]
                                ? cat(shown(known.status.doing, sizeof(known.status.doing)),
                                      " for ", seconds_text(Clock::now() - known.since))
                                : "is between two steps";
  return cat(describe_rank(group_, rank), ": ",
             is_stopped(rank)
                 ? cat("is stopped (SIGCONT lets it go on), and said last that it ", doing)
             : silence.count() > 0 ? cat("no heartbeat for ", seconds_text(silence))
                                   : doing);
}

std::string PeerHeartbeats::own_doing() const {
  if (std::string doing = doing_ ? doing_() : ""; !doing.empty()) return doing;
  return wait_.count() > 0 ? cat("waits for ", awaited_, " between two steps") : "";
}

// One that waits may be late because of a process between two steps.
bool PeerHeartbeats::any_computes_late() const {
  const bool all_wait =
      std::ranges::none_of(known_, [&](const auto& entry) { return goes_on(entry.second); });
  return std::ranges::any_of(known_, [&](const auto& entry) {
    const Status& status = entry.second.status;
    return is_late(entry.second) && status.in_step != 0 && (status.waits == 0 || all_wait);
  });
}

bool PeerHeartbeats::any_late() const {
  return std::ranges::any_of(known_, [&](const auto& entry) { return is_late(entry.second); });
}

template <class F>
std::string PeerHeartbeats::describe_if(const F& f) const {
  constexpr int kMost = 8;
  std::string all;
  int count = 0;
  for (const auto& [rank, known] : known_)
    if (f(known) && ++count <= kMost) all += cat(all.empty() ? "" : "; ", describe(known));
  return count <= kMost ? all : cat(all, "; and ", count - kMost, " others");
}

std::string PeerHeartbeats::late_processes() const {
  std::string late =
      describe_if([&](const Known& known) { return is_late(known) && known.status.waits == 0; });
  if (late.empty()) late = describe_if([&](const Known& known) { return is_late(known); });
  return late.empty() ? "no process; the message itself is slow" : late;
}

std::string PeerHeartbeats::late_processes(int awaited) const {
  const auto known = known_.find(awaited);
  if (known != known_.end() && known->second.status.waits == 0) return describe(awaited);
  const std::string late = describe_if(
      [&](const Known& other) { return goes_on(other) && other.status.launches <= launches_; });
  return late.empty() ? describe(awaited) : late;
}

// The shortest wait of the watched processes, and of those that they know of. It grows with time,
// but no longer while one of them is silent: it may be stopped, and wait for nobody.
std::uint32_t PeerHeartbeats::shortest_wait() const {
  std::uint32_t shortest = kNoWait;
  for (const Watched& peer : watched_) {
    const std::uint32_t wait = std::min(peer.wait, peer.least);
    if (wait == kNoWait) continue;
    const auto since = std::min<Clock::duration>(Clock::now() - peer.heard, round() * interval_);
    shortest =
        std::min(shortest, peer.wait == 0 ? 0 : number_of(std::chrono::milliseconds(wait) + since));
  }
  return shortest;
}

std::chrono::milliseconds PeerHeartbeats::least_wait() const {
  const std::uint32_t least = shortest_wait();
  return std::chrono::milliseconds(least == kNoWait ? 0 : least);
}

std::string PeerHeartbeats::all_processes() const {
  const std::string doing = own_doing();
  const std::string others =
      describe_if([&](const Known& known) { return intervals_since_left(known.status.rank) == 0; });
  return cat(describe_rank(group_, group_.rank()), ": ",
             in_step() ? cat(doing, " and waits for ", awaited_) : doing,
             others.empty() ? "" : "; ", others);
}

std::uint64_t PeerHeartbeats::heartbeat_bytes() const {
  constexpr std::uint64_t kHead = 64;
  return watched_.empty() ? 0 : watched_.front().in.size() + kHead;
}

// Long enough to come from any process, from listener to listener: each one that has heard of it
// tells another one per interval.
bool PeerHeartbeats::is_recent(const Known& known) const {
  const int doublings = std::bit_width(static_cast<unsigned>(group_.size()));
  return Clock::now() - known.said <= (normal_silence() + 2 * doublings) * interval_;
}

bool PeerHeartbeats::goes_on(const Known& known) const {
  return known.status.waits == 0 && intervals_since_left(known.status.rank) == 0 &&
         is_recent(known);
}

bool PeerHeartbeats::is_late(const Known& known) const {
  return intervals_since_left(known.status.rank) == 0 && known.status.launches < launches_ &&
         is_recent(known);
}

}  // namespace belfry
