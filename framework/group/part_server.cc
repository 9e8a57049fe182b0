#include "belfry/framework/group/part_server.h"

#include <algorithm>
#include <utility>

#include "belfry/framework/group/message_memory_impl.h"
#include "belfry/framework/group/tags.h"

namespace belfry {
namespace {

template <class T>
std::span<std::byte> bytes_in(T& value) {
  return std::as_writable_bytes(std::span(&value, 1));
}

std::vector<std::byte> copy_of(const PublishedPart& part) {
  std::vector<std::byte> bytes(part.bytes);
  part.memory->load(bytes.data(), part.first, part.bytes);
  return bytes;
}

}  // namespace

void PublishedParts::publish(std::uint64_t key, const PublishedPart& part) {
  const std::lock_guard lock(mutex_);
  Part& known = parts_[key];
  known.published = part;
  known.kept.reset();
}

void PublishedParts::keep(std::uint64_t key) {
  const std::lock_guard lock(mutex_);
  Part& part = parts_.at(key);
  const std::uint64_t runs = part.published.runs->load();
  if (part.before && part.runs == runs) return;
  part.before = copy_of(part.published);
  part.runs = runs;
}

void PublishedParts::withdraw(std::uint64_t key) {
  const std::lock_guard lock(mutex_);
  const auto part = parts_.find(key);
  try {
    auto& [published, kept, runs, before] = part->second;
    kept = before && runs == published.runs->load() ? *std::move(before) : copy_of(published);
    before.reset();
  } catch (...) {
    parts_.erase(part);
    throw;
  }
}

std::vector<std::uint64_t> PublishedParts::withdrawn() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::uint64_t> keys;
  for (const auto& [key, part] : parts_)
    if (part.kept) keys.push_back(key);
  return keys;
}

void PublishedParts::forget(std::span<const std::uint64_t> keys) {
  const std::lock_guard lock(mutex_);
  for (const std::uint64_t key : keys) parts_.erase(key);
}

std::optional<std::vector<std::byte>> PublishedParts::find(std::uint64_t key,
                                                           std::uint64_t runs) const {
  const std::lock_guard lock(mutex_);
  const auto found = parts_.find(key);
  if (found == parts_.end()) return {};
  const Part& part = found->second;
  if (part.kept) return part.kept;
  if (part.before && part.runs == runs) return part.before;
  if (part.published.runs->load() < runs) return {};
  return copy_of(part.published);
}

PartServer::PartServer(ProcessGroup& group, Find find) : group_(group), find_(std::move(find)) {}

void PartServer::serve() {
  while (has_new_peers()) {
    const int rank = group_.connected()[peers_.size()];
    Peer& peer = peers_.emplace_back();
    peer.asked = {rank, kAskTag, bytes_in(peer.in)};
    peer.answer = {rank, kAnswerTag, {}, true};
    group_.receive(peer.asked);
  }
  has_postponed_ = false;
  for (Peer& peer : peers_) {
    if (!peer.asked.done || !peer.answer.done) continue;
    std::optional<std::vector<std::byte>> found = find_(peer.in.key, peer.in.runs);
    const bool was_postponed = std::exchange(peer.is_postponed, !found);
    if (found || !was_postponed) last_ = std::chrono::steady_clock::now();
    if (!found) {
      has_postponed_ = true;
      continue;
    }
    peer.bytes = *std::move(found);
    peer.answer.bytes = peer.bytes;
    group_.receive(peer.asked);
    group_.send(peer.answer);
  }
}

bool PartServer::asked_lately() const {
  return std::chrono::steady_clock::now() - last_ < std::chrono::milliseconds(100);
}

void fetch_parts(ProcessGroup& group, std::uint64_t key, std::uint64_t runs,
                 std::span<const std::span<std::byte>> parts) {
  struct Asked {
    PartServer::Ask ask;
    std::vector<GroupMessage> messages;
  };
  const detail::MessageMemory<Asked> asked(group);
  auto& [ask, messages] = *asked;
  ask = {.key = key, .runs = runs};
  for (int r = 0; r < group.size(); ++r) {
    const std::span<std::byte> part = parts[static_cast<std::size_t>(r)];
    if (r == group.rank() || part.empty()) continue;
    messages.push_back({r, kAnswerTag, part});
    messages.push_back({r, kAskTag, bytes_in(ask)});
  }
  for (std::size_t i = 0; i < messages.size(); i += 2) {
    group.receive(messages[i]);
    group.send(messages[i + 1]);
  }
  finish(group, messages);
}

}  // namespace belfry
