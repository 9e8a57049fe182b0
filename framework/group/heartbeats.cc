#include "belfry/framework/group/heartbeats.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <string_view>
#include <utility>

#include <sys/stat.h>
#include <unistd.h>

#include "belfry/framework/base/error.h"
#include "belfry/framework/base/file_system.h"
#include "belfry/framework/base/sha256.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/group/seconds_impl.h"
#include "belfry/framework/group/tags.h"

namespace belfry {
namespace {

template <class T>
std::span<std::byte> bytes_of(T& value) {
  return std::as_writable_bytes(std::span(&value, 1));
}

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
      peers_(static_cast<std::size_t>(group.size())) {
  for (Peer& peer : peers_) {
    peer.rank = static_cast<int>(&peer - peers_.data());
    peer.received = {peer.rank, kHeartbeatTag, bytes_of(peer.in)};
    peer.sent = {peer.rank, kHeartbeatTag, bytes_of(peer.out), true};
    peer.leaving = {peer.rank, kLeaveTag, bytes_of(peer.leaves_in)};
    peer.told = {peer.rank, kLeaveTag, bytes_of(peer.leaves_out), true};
    if (is_own(peer)) continue;
    group.receive(peer.received);
    group.receive(peer.leaving);
  }
}

void PeerHeartbeats::hear() {
  for (Peer& peer : peers_) {
    if (is_own(peer)) continue;
    if (peer.leaving.done && peer.left == 0) peer.left = 1;
    const std::uint64_t bytes = group_.received_from(peer.rank);
    if (std::exchange(peer.bytes, bytes) != bytes) peer.silent = 0;
    if (is_silent(peer.rank) || !peer.received.done) continue;
    peer.silent = 0;
    peer.in.doing[sizeof(peer.in.doing) - 1] = '\0';  // whatever has arrived
    const bool goes_on = peer.in.launches == peer.last.launches &&
                         std::string_view(peer.in.doing) == peer.last.doing;
    if (!goes_on) peer.since = std::chrono::steady_clock::now();
    peer.last = peer.in;
    if (!is_silent(peer.rank)) group_.receive(peer.received);
  }
}

void PeerHeartbeats::send(bool last) {
  Heartbeat heartbeat{.pid = static_cast<std::uint32_t>(::getpid()),
                      .is_last = last,
                      .launches = launches_,
                      .machine = machine_,
                      .wait = static_cast<std::uint32_t>(std::min<std::int64_t>(
                          wait_.count(), std::numeric_limits<std::uint32_t>::max())),
                      .in_step = in_step()};
  const std::string doing = own_doing();
  std::memcpy(heartbeat.doing, doing.data(), std::min(doing.size(), sizeof(heartbeat.doing) - 1));
  for (Peer& peer : peers_) {
    if (is_own(peer) || !peer.sent.done) continue;
    peer.out = heartbeat;
    group_.send(peer.sent);
  }
}

void PeerHeartbeats::leave() {
  for (Peer& peer : peers_)
    if (!is_own(peer)) group_.send(peer.told);
}

bool PeerHeartbeats::all_sent() const {
  return std::ranges::all_of(peers_,
                             [](const Peer& peer) { return peer.sent.done && peer.told.done; });
}

bool PeerHeartbeats::all_left() const {
  return std::ranges::all_of(peers_,
                             [&](const Peer& peer) { return is_own(peer) || peer.left > 0; });
}

bool PeerHeartbeats::all_silent() const {
  return std::ranges::all_of(
      peers_, [&](const Peer& peer) { return is_own(peer) || is_silent(peer.rank); });
}

void PeerHeartbeats::count_interval() {
  for (Peer& peer : peers_) {
    if (peer.silent == 0 || !is_stopped(peer.rank)) ++peer.silent;
    if (peer.left > 0) ++peer.left;
  }
}

bool PeerHeartbeats::is_stopped(int rank) const {
  const Heartbeat& last = peer(rank).last;
  const bool is_seen = last.machine != 0 && last.machine == machine_ &&
                       group_.host(rank) == group_.host(group_.rank());
  if (last.pid == 0 || !is_seen) return false;
  const char state = state_of(last.pid);
  return state == 'T' || state == 't';
}

std::string PeerHeartbeats::describe(int rank) const {
  const Peer& peer = this->peer(rank);
  const std::string doing = peer.last.doing[0]
                                ? cat(shown(peer.last.doing, sizeof(peer.last.doing)), " for ",
                                      seconds_text(std::chrono::steady_clock::now() - peer.since))
                                : "is between two steps";
  return cat(describe_rank(group_, rank), ": ",
             is_stopped(rank)
                 ? cat("is stopped (SIGCONT lets it go on), and said last that it ", doing)
             : peer.silent > 5 ? cat("no heartbeat for ", seconds_text(peer.silent * interval_))
                               : doing);
}

std::string PeerHeartbeats::own_doing() const {
  if (std::string doing = doing_ ? doing_() : ""; !doing.empty()) return doing;
  return wait_.count() > 0 ? cat("waits for ", awaited_, " between two steps") : "";
}

bool PeerHeartbeats::any_computes_late() const {
  return std::ranges::any_of(
      peers_, [&](const Peer& peer) { return is_late(peer) && peer.last.in_step != 0; });
}

bool PeerHeartbeats::any_late() const {
  return std::ranges::any_of(peers_, [&](const Peer& peer) { return is_late(peer); });
}

std::string PeerHeartbeats::late_processes() const {
  std::string all;
  for (const Peer& peer : peers_) {
    if (is_late(peer)) all += cat(all.empty() ? "" : "; ", describe(peer.rank));
  }
  return all.empty() ? "no process; the message itself is slow" : all;
}

std::chrono::milliseconds PeerHeartbeats::least_wait() const {
  constexpr auto kNone = std::numeric_limits<std::uint32_t>::max();
  std::uint32_t least = kNone;
  for (const Peer& peer : peers_)
    if (!is_own(peer) && peer.left == 0) least = std::min(least, peer.last.wait);
  return std::chrono::milliseconds(least == kNone ? 0 : least);
}

std::string PeerHeartbeats::all_processes() const {
  const std::string doing = own_doing();
  std::string all = cat(describe_rank(group_, group_.rank()), ": ",
                        in_step() ? cat(doing, " and waits for ", awaited_) : doing);
  for (const Peer& peer : peers_)
    if (!is_own(peer) && peer.left == 0) all += cat("; ", describe(peer.rank));
  return all;
}

bool PeerHeartbeats::is_late(const Peer& peer) const {
  return !is_own(peer) && peer.left == 0 && peer.last.launches < launches_;
}

}  // namespace belfry
