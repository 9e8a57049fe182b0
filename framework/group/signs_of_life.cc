#include "belfry/framework/group/signs_of_life.h"

#include <algorithm>
#include <cstring>
#include <string_view>

#include <unistd.h>

#include "belfry/framework/base/error.h"
#include "belfry/framework/base/file_system.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/group/seconds_impl.h"
#include "belfry/framework/group/tags_impl.h"

namespace belfry {
namespace {

template <class T>
std::span<std::byte> bytes_of(T& value) {
  return std::as_writable_bytes(std::span(&value, 1));
}

// The state of a process of this machine, as the letter in /proc; 0 if it is not known.
char state_of(std::uint32_t pid) {
  try {
    const auto file = local_file_system().open(cat("/proc/", pid, "/stat"));
    std::string text(512, '\0');
    text.resize(file->read(std::as_writable_bytes(std::span(text.data(), text.size()))));
    const std::size_t end = text.rfind(')');
    return end != text.npos && end + 2 < text.size() ? text[end + 2] : '\0';
  } catch (const Error&) {
    return '\0';
  }
}

}  // namespace

SignsOfLife::SignsOfLife(ProcessGroup& group, std::chrono::milliseconds interval)
    : group_(group), interval_(interval), peers_(static_cast<std::size_t>(group.size())) {
  for (Peer& peer : peers_) {
    peer.rank = static_cast<int>(&peer - peers_.data());
    peer.received = {peer.rank, kSignTag, bytes_of(peer.in)};
    peer.sent = {peer.rank, kSignTag, bytes_of(peer.out), true};
    peer.left = peer.rank == group.rank();
    if (!peer.left) group.receive(peer.received);
  }
}

void SignsOfLife::hear() {
  for (Peer& peer : peers_) {
    if (peer.left || !peer.received.done) continue;
    peer.silent = 0;
    const bool goes_on = peer.in.launches == peer.last.launches &&
                         std::string_view(peer.in.doing) == peer.last.doing;
    if (!goes_on) peer.since = std::chrono::steady_clock::now();
    peer.last = peer.in;
    peer.left = peer.in.leaves != 0;
    if (!peer.left) group_.receive(peer.received);
  }
}

void SignsOfLife::send(bool last) {
  Sign sign{.pid = static_cast<std::uint32_t>(::getpid()), .leaves = last, .launches = launches_};
  const std::string doing = doing_ ? doing_() : "";
  std::memcpy(sign.doing, doing.data(), std::min(doing.size(), sizeof(sign.doing) - 1));
  for (Peer& peer : peers_) {
    if (peer.rank == group_.rank() || !peer.sent.done || (peer.left && !last)) continue;
    peer.out = sign;
    group_.send(peer.sent);
  }
}

bool SignsOfLife::all_sent() const {
  return std::ranges::all_of(peers_, [](const Peer& peer) { return peer.sent.done; });
}

bool SignsOfLife::all_left() const {
  return std::ranges::all_of(peers_, [](const Peer& peer) { return peer.left; });
}

void SignsOfLife::count_interval() {
  for (Peer& peer : peers_)
    if (peer.silent == 0 || !is_stopped(peer.rank)) ++peer.silent;
}

bool SignsOfLife::is_stopped(int rank) const {
  const std::uint32_t pid = peer(rank).last.pid;
  if (pid == 0 || group_.host(rank) != group_.host(group_.rank())) return false;
  const char state = state_of(pid);
  return state == 'T' || state == 't';
}

std::string SignsOfLife::describe(int rank) const {
  const Peer& peer = this->peer(rank);
  const std::string doing = peer.last.doing[0]
                                ? cat(peer.last.doing, " for ",
                                      seconds_text(std::chrono::steady_clock::now() - peer.since))
                                : "is between two steps";
  return cat(describe_rank(group_, rank), ": ",
             is_stopped(rank)
                 ? cat("is stopped (SIGCONT lets it go on), and said last that it ", doing)
             : peer.silent > 5 ? cat("no sign of life for ", seconds_text(peer.silent * interval_))
                               : doing);
}

bool SignsOfLife::any_computes_late() const {
  return std::ranges::any_of(
      peers_, [&](const Peer& peer) { return is_late(peer) && peer.last.doing[0] != '\0'; });
}

bool SignsOfLife::any_late() const {
  return std::ranges::any_of(peers_, [&](const Peer& peer) { return is_late(peer); });
}

std::string SignsOfLife::late_processes() const {
  std::string all;
  for (const Peer& peer : peers_) {
    if (is_late(peer)) all += cat(all.empty() ? "" : "; ", describe(peer.rank));
  }
  return all.empty() ? "no process; the message itself is slow" : all;
}

bool SignsOfLife::is_late(const Peer& peer) const {
  return peer.rank != group_.rank() && !peer.left && peer.last.launches < launches_;
}

}  // namespace belfry
