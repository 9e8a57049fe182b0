#include "belfry/framework/group/clock_offsets.h"

#include <chrono>
#include <limits>
#include <sstream>
#include <thread>

#include "belfry/framework/group/clock_offsets_impl.h"
#include "belfry/framework/group/message_memory_impl.h"
#include "belfry/framework/group/tags.h"

namespace belfry {
namespace {

constexpr int kPings = 32;

using NanosecondClock = std::function<std::int64_t()>;

std::int64_t steady_nanoseconds() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// A question and an answer.
struct Ping {
  std::int64_t in = 0, out = 0;
  GroupMessage received, sent;
};

// Does not sleep: a nap would count as time on the wire.
void await(ProcessGroup& group, const GroupMessage& message) {
  while (!message.done)
    if (!group.poll()) std::this_thread::yield();
}

GroupMessage message_of(int peer, std::int64_t& time) {
  return {peer, kClockTag, std::as_writable_bytes(std::span(&time, 1))};
}

// The peer answered at some time between `before` and `after`. So its clock differs from the
// midpoint of the two by at most half of that time.
ClockOffset ask_once(ProcessGroup& group, int peer, const NanosecondClock& clock) {
  const detail::MessageMemory<Ping> ping(group);
  ping->received = message_of(peer, ping->in);
  ping->sent = message_of(peer, ping->out);
  group.receive(ping->received);
  const std::int64_t before = clock();
  group.send(ping->sent);
  await(group, ping->received);
  const std::int64_t after = clock();
  await(group, ping->sent);
  const std::int64_t half = (after - before) / 2;
  return {ping->in - (before + half), half + 1};
}

ClockOffset ask(ProcessGroup& group, int peer, const NanosecondClock& clock) {
  ClockOffset best{0, std::numeric_limits<std::int64_t>::max()};
  for (int i = 0; i < kPings; ++i) {
    const ClockOffset found = ask_once(group, peer, clock);
    if (found.error < best.error) best = found;
  }
  return best;
}

void answer(ProcessGroup& group, const NanosecondClock& clock) {
  for (int i = 0; i < kPings; ++i) {
    const detail::MessageMemory<Ping> ping(group);
    ping->received = message_of(0, ping->in);
    ping->sent = message_of(0, ping->out);
    group.receive(ping->received);
    // Rank 0 asks the processes before this one first, so the first question may come late.
    if (i == 0)
      finish(group, {&ping->received, 1});
    else
      await(group, ping->received);
    ping->out = clock();
    group.send(ping->sent);
    await(group, ping->sent);
  }
}

}  // namespace

std::vector<ClockOffset> clock_offsets_by(ProcessGroup& group, const NanosecondClock& clock) {
  std::vector<ClockOffset> offsets(static_cast<std::size_t>(group.size()));
  if (group.rank() > 0) answer(group, clock);
  for (int r = 1; r < group.size() && group.rank() == 0; ++r)
    offsets[static_cast<std::size_t>(r)] = ask(group, r, clock);
  std::ostringstream own;
  for (const auto& [offset, error] : offsets) own << offset << ' ' << error << ' ';
  std::istringstream told(gather(group, own.str())[0]);
  for (auto& [offset, error] : offsets) told >> offset >> error;
  return offsets;
}

std::vector<ClockOffset> clock_offsets(ProcessGroup& group) {
  return clock_offsets_by(group, steady_nanoseconds);
}

}  // namespace belfry
