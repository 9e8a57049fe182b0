#include "belfry/framework/group/group.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <thread>

#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/group/message_memory_impl.h"
#include "belfry/framework/group/peer_error.h"
#include "belfry/framework/group/tags.h"

namespace belfry {
namespace {

constexpr std::uint64_t kMostGatheredBytes = std::uint64_t{1} << 32;
// Long texts are sent in pieces.
constexpr std::size_t kTextPiece = std::size_t{4} << 20;

std::span<std::byte> bytes_of(std::string& text) {
  return std::as_writable_bytes(std::span(text.data(), text.size()));
}

template <class T>
std::span<std::byte> bytes_of(std::vector<T>& values) {
  return std::as_writable_bytes(std::span(values));
}

// A text of another process.
struct Incoming {
  int peer;
  std::uint64_t size = 0;
  std::string text = {};
};
// What a process sends or receives at once.
struct Texts {
  std::vector<Incoming> incoming;
  std::string sent;
  std::uint64_t sent_size = 0;
  std::vector<GroupMessage> messages;
};

void receive_messages(ProcessGroup& group, std::vector<GroupMessage>& messages) {
  for (GroupMessage& message : messages) group.receive(message);
  finish(group, messages);
  messages.clear();
}

// The texts grow as their bytes arrive, whatever sizes are announced.
void receive_texts(ProcessGroup& group, Texts& texts) {
  for (Incoming& from : texts.incoming)
    texts.messages.push_back(
        {from.peer, kSizesTag, std::as_writable_bytes(std::span(&from.size, 1))});
  receive_messages(group, texts.messages);
  for (const Incoming& from : texts.incoming)
    if (from.size > kMostGatheredBytes)
      blame_peer(group, from.peer,
                 cat("announces a text of ", from.size, " bytes, more than ", kMostGatheredBytes));
  for (bool more = true; more;) {
    for (auto& [peer, size, text] : texts.incoming) {
      const std::size_t had = text.size(), next = std::min<std::uint64_t>(size - had, kTextPiece);
      if (next == 0) continue;
      text.resize(had + next);
      texts.messages.push_back({peer, kContentsTag, bytes_of(text).subspan(had)});
    }
    more = !texts.messages.empty();
    receive_messages(group, texts.messages);
  }
}

void send_sized(ProcessGroup& group, std::span<const int> peers, std::string text) {
  require<CommError>(text.size() <= kMostGatheredBytes, "a text of ", text.size(),
                     " bytes is too long for other processes; they take ", kMostGatheredBytes);
  const detail::MessageMemory<Texts> texts(group);
  texts->sent = std::move(text);
  texts->sent_size = texts->sent.size();
  const std::span<std::byte> bytes = bytes_of(texts->sent);
  for (const int peer : peers) {
    texts->messages.push_back(
        {peer, kSizesTag, std::as_writable_bytes(std::span(&texts->sent_size, 1))});
    for (std::size_t from = 0; from < bytes.size(); from += kTextPiece)
      texts->messages.push_back(
          {peer, kContentsTag, bytes.subspan(from, std::min(kTextPiece, bytes.size() - from))});
  }
  for (GroupMessage& message : texts->messages) group.send(message);
  finish(group, texts->messages);
}

// The sizes of all texts, then the texts themselves.
std::string joined(const std::vector<std::string>& texts) {
  std::vector<std::uint64_t> sizes;
  for (const std::string& text : texts) sizes.push_back(text.size());
  const std::span<std::byte> head = bytes_of(sizes);
  std::string all(reinterpret_cast<const char*>(head.data()), head.size());
  for (const std::string& text : texts) all += text;
  return all;
}

// Appends the texts of joined(), so many, which a process has sent.
void append_parted(const ProcessGroup& group, int sender, int count, const std::string& all,
                   std::vector<std::string>& texts) {
  std::vector<std::uint64_t> sizes(static_cast<std::size_t>(count));
  std::size_t from = sizes.size() * sizeof(sizes[0]);
  const auto require_intact = [&](bool intact) {
    if (!intact) blame_peer(group, sender, "sends texts whose sizes are wrong");
  };
  require_intact(all.size() >= from);
  std::memcpy(sizes.data(), all.data(), from);
  for (const std::uint64_t size : sizes) {
    require_intact(size <= all.size() - from);
    texts.push_back(all.substr(from, size));
    from += size;
  }
  require_intact(from == all.size());
}

// The texts of a process and of all below it in the tree, by rank. At rank 0 these are all.
std::vector<std::string> receive_below(ProcessGroup& group, const std::string& own) {
  const RankTree tree(group);
  const detail::MessageMemory<Texts> texts(group);
  for (const int child : tree.children) texts->incoming.push_back({child});
  receive_texts(group, *texts);
  std::vector<std::string> all{own};
  for (const Incoming& from : texts->incoming)
    append_parted(group, from.peer, tree.below(from.peer), from.text, all);
  return all;
}

std::string receive_sized(ProcessGroup& group, int peer) {
  const detail::MessageMemory<Texts> texts(group);
  texts->incoming.push_back({peer});
  receive_texts(group, *texts);
  return std::move(texts->incoming[0].text);
}

}  // namespace

void ProcessGroup::sum(GroupMessage&, DType) {
  throw CommError(cat(transport(),
                      " moves bytes and adds none; start the processes by MPI, or use "
                      "another strategy than mpi"));
}

std::string describe_rank(const ProcessGroup& group, int rank) {
  return cat("rank ", rank, ", ", group.host(rank));
}

void ProcessGroup::wait(std::chrono::steady_clock::time_point until, std::chrono::nanoseconds nap) {
  if (nap.count() == 0) return std::this_thread::yield();
  std::unique_lock lock(napping_);
  changed_.wait_until(lock, std::min(until, std::chrono::steady_clock::now() + nap),
                      [&] { return woken_; });
  woken_ = false;
}

void ProcessGroup::wake() {
  {
    const std::lock_guard lock(napping_);
    woken_ = true;
  }
  changed_.notify_one();
}

std::chrono::nanoseconds Backoff::next() {
  constexpr int kYields = 20;
  if (idle_++ < kYields) return {};
  return std::chrono::microseconds(std::min(500, 10 * (idle_ - kYields)));
}

void Backoff::nap() {
  if (const auto pause = next(); pause.count() > 0)
    std::this_thread::sleep_for(pause);
  else
    std::this_thread::yield();
}

void Backoff::wait(ProcessGroup& group) {
  group.wait(std::chrono::steady_clock::time_point::max(), next());
}

void finish(ProcessGroup& group, std::span<GroupMessage> messages) {
  Backoff backoff;
  while (!std::ranges::all_of(messages, &GroupMessage::done)) {
    if (group.poll())
      backoff.moved();
    else
      backoff.wait(group);
  }
}

RankTree::RankTree(int rank, int of) : size(of) {
  int step = 1;
  for (; step < size && rank % (2 * step) == 0; step *= 2)
    if (rank + step < size) children.push_back(rank + step);
  parent = rank == 0 ? -1 : rank - step;
}

int RankTree::below(int child) const {
  const int lowest_bit = child & -child;
  return std::min(lowest_bit, size - child);
}

std::vector<std::string> collect(ProcessGroup& group, const std::string& own) {
  std::vector<std::string> all = receive_below(group, own);
  if (group.rank() == 0) return all;
  send_sized(group, {{RankTree(group).parent}}, joined(all));
  return {};
}

std::vector<std::string> gather(ProcessGroup& group, const std::string& own) {
  if (group.size() == 1) return {own};
  std::vector<std::string> all = collect(group, own);
  const RankTree tree(group);
  std::string texts = tree.parent < 0 ? joined(all) : receive_sized(group, tree.parent);
  if (tree.parent >= 0) append_parted(group, tree.parent, group.size(), texts, all);
  if (!tree.children.empty()) send_sized(group, tree.children, std::move(texts));
  return all;
}

}  // namespace belfry
