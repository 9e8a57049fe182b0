#include "belfry/framework/group/group.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <thread>

#include "belfry/framework/base/error.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/group/tags_impl.h"

namespace belfry {
namespace {

std::span<std::byte> bytes_of(std::string& text) {
  return std::as_writable_bytes(std::span(text.data(), text.size()));
}

template <class T>
std::span<std::byte> bytes_of(std::vector<T>& values) {
  return std::as_writable_bytes(std::span(values));
}

// Rank 0 receives the texts of all other processes.
std::vector<std::string> receive_all(ProcessGroup& group, const std::string& own) {
  std::vector<std::string> all(static_cast<std::size_t>(group.size()));
  all[0] = own;
  std::vector<std::uint64_t> sizes(all.size());
  std::vector<GroupMessage> messages;
  for (int r = 1; r < group.size(); ++r) {
    const auto at = static_cast<std::size_t>(r);
    messages.push_back({r, kSizesTag, std::as_writable_bytes(std::span(&sizes[at], 1))});
  }
  for (GroupMessage& message : messages) group.receive(message);
  finish(group, messages);
  for (GroupMessage& message : messages) {
    std::string& text = all[static_cast<std::size_t>(message.peer)];
    text.resize(sizes[static_cast<std::size_t>(message.peer)]);
    message = {message.peer, kContentsTag, bytes_of(text)};
    group.receive(message);
  }
  finish(group, messages);
  return all;
}

void send_sized(ProcessGroup& group, int peer, std::string& text) {
  std::uint64_t size = text.size();
  GroupMessage messages[] = {{peer, kSizesTag, std::as_writable_bytes(std::span(&size, 1))},
                             {peer, kContentsTag, bytes_of(text)}};
  for (GroupMessage& message : messages) group.send(message);
  finish(group, messages);
}

std::string receive_sized(ProcessGroup& group, int peer) {
  std::uint64_t size = 0;
  GroupMessage message{peer, kSizesTag, std::as_writable_bytes(std::span(&size, 1))};
  group.receive(message);
  finish(group, {&message, 1});
  std::string text(size, '\0');
  message = {peer, kContentsTag, bytes_of(text)};
  group.receive(message);
  finish(group, {&message, 1});
  return text;
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

std::vector<std::string> parted(const std::string& all, int count) {
  std::vector<std::uint64_t> sizes(static_cast<std::size_t>(count));
  std::memcpy(sizes.data(), all.data(), sizes.size() * sizeof(sizes[0]));
  std::size_t from = sizes.size() * sizeof(sizes[0]);
  std::vector<std::string> texts;
  for (const std::uint64_t size : sizes) {
    texts.push_back(all.substr(from, size));
    from += size;
  }
  return texts;
}

}  // namespace

void ProcessGroup::sum(GroupMessage&, DType) {
  throw CommError(cat(carrier(),
                      " moves bytes and adds none; start the processes by MPI, or use "
                      "another strategy than mpi"));
}

std::string describe_rank(const ProcessGroup& group, int rank) {
  return cat("rank ", rank, ", ", group.host(rank));
}

void Backoff::nap() {
  constexpr int kYields = 20;
  if (idle_++ < kYields) return std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::microseconds(std::min(500, 10 * (idle_ - kYields))));
}

void finish(ProcessGroup& group, std::span<GroupMessage> messages) {
  Backoff backoff;
  while (!std::ranges::all_of(messages, &GroupMessage::done)) {
    if (group.poll())
      backoff.moved();
    else
      backoff.nap();
  }
}

std::vector<std::string> collect(ProcessGroup& group, const std::string& own) {
  if (group.rank() == 0) return receive_all(group, own);
  std::string sent = own;
  send_sized(group, 0, sent);
  return {};
}

std::vector<std::string> gather(ProcessGroup& group, const std::string& own) {
  if (group.size() == 1) return {own};
  const std::vector<std::string> all = collect(group, own);
  if (group.rank() > 0) return parted(receive_sized(group, 0), group.size());
  std::string sent = joined(all);
  for (int r = 1; r < group.size(); ++r) send_sized(group, r, sent);
  return all;
}

}  // namespace belfry
