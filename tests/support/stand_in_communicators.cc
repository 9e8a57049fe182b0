#include "belfry/tests/support/stand_in_communicators.h"

#include <algorithm>
#include <cstring>
#include <thread>

#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/graph/node.h"
#include "belfry/tests/support/rank_sum.h"
#include "belfry/tests/support/stand_in_stream.h"

namespace belfry::test {
namespace {

using Parts = std::vector<RankMeetings::Part>;

constexpr const char* kDeath = "the process dies: in a test";

void add_up(const RankReduction& what, const Parts& parts) {
  for (std::size_t b = 0; b < what.elements.size(); ++b) {
    std::vector<const void*> terms;
    std::vector<void*> sums;
    for (const RankMeetings::Part& part : parts) {
      terms.push_back(part.from[b]);
      sums.push_back(part.to[b]);
    }
    const auto sum = [&]<class T>(T) { sum_ranks<T>(terms, sums, what.elements[b], what.divisor); };
    switch (what.dtype) {
      case DType::kF32: sum(float{}); break;
      case DType::kF64: sum(double{}); break;
      case DType::kI32: sum(std::int32_t{}); break;
      case DType::kF16: sum(kernels::F16{}); break;
      default: sum(kernels::BF16{});
    }
  }
}

void gather(const Parts& parts) {
  const std::size_t bytes = parts[0].messages.gathered->from.size();
  for (const RankMeetings::Part& to : parts)
    for (std::size_t r = 0; r < parts.size(); ++r) {
      const auto from = parts[r].messages.gathered->from;
      require<CommError>(from.size() == bytes, "ranks gather ", bytes, " and ", from.size(),
                         " bytes");
      std::memcpy(to.messages.gathered->to.data() + r * bytes, from.data(), bytes);
    }
}

// Delivers the messages from one rank to another, in order.
void deliver(const std::vector<GroupMessage>& sent, int from, int to,
             const std::vector<GroupMessage>& received) {
  auto next = received.begin();
  const auto find = [&] {
    next = std::find_if(next, received.end(),
                        [from](const GroupMessage& message) { return message.peer == from; });
    return next != received.end();
  };
  for (const GroupMessage& message : sent) {
    if (message.peer != to) continue;
    require<CommError>(find() && next->bytes.size() == message.bytes.size(), "rank ", to,
                       " does not receive the ", message.bytes.size(), " bytes of rank ", from);
    std::ranges::copy(message.bytes, (next++)->bytes.begin());
  }
  require<CommError>(!find(), "rank ", to, " waits for a message that rank ", from,
                     " does not send");
}

void exchange_all(const Parts& parts) {
  if (parts[0].messages.gathered) return gather(parts);
  for (std::size_t from = 0; from < parts.size(); ++from)
    for (std::size_t to = 0; to < parts.size(); ++to)
      deliver(parts[from].messages.sent, static_cast<int>(from), static_cast<int>(to),
              parts[to].messages.received);
}

}  // namespace

bool RankMeetings::join(std::size_t ranks, const std::atomic<bool>& failed) {
  std::unique_lock lock(mutex_);
  joined_ += ranks;
  changed_.notify_all();
  while (joined_ < ranks_ && !failed.load(std::memory_order_acquire))
    changed_.wait_for(lock, std::chrono::milliseconds(1));
  return joined_ >= ranks_;
}

void RankMeetings::meet(std::size_t rank, std::int64_t number, Part part, bool stalls,
                        const bool& aborted) {
  const RankReduction what = part.what;
  std::unique_lock lock(mutex_);
  if (stalls) changed_.wait(lock, [&] { return aborted; });
  Meeting& meeting = meetings_[number];
  if (meeting.came == 0) {
    meeting.node = what.node->logical_name();
    meeting.what = what;
    meeting.parts.resize(ranks_);
  }
  require<CommError>(
      meeting.node == what.node->logical_name() && meeting.what.elements == what.elements,
      "ranks meet with ", meeting.node, " and ", what.node->logical_name());
  const bool exchanges = part.exchanges;
  meeting.parts[rank] = std::move(part);
  if (++meeting.came == ranks_ && !broken_) {  // after a break, others may have gone on
    exchanges ? exchange_all(meeting.parts) : add_up(what, meeting.parts);
    meeting.done = true;
    changed_.notify_all();
  }
  changed_.wait(lock, [&] { return aborted || meeting.done; });
  if (++meeting.left == ranks_) meetings_.erase(number);
}

void RankMeetings::abort(bool& aborted) {
  const std::lock_guard lock(mutex_);
  aborted = broken_ = true;
  changed_.notify_all();
}

StandInCommunicators::StandInCommunicators(const StandInGpus& gpus, std::span<const int> ranks,
                                           std::shared_ptr<RankMeetings> all, int first,
                                           const std::atomic<bool>& failed)
    : gpus_(gpus),
      gpu_of_(ranks.begin(), ranks.end()),
      enqueued_(ranks.size()),
      busy_(ranks.size()),
      all_(std::move(all)),
      first_(static_cast<std::size_t>(first)) {
  require<CommError>(!gpus.nccl_faults().fails_to_make, "ncclCommInitRankConfig failed: in a test");
  for (std::size_t r = 0; r < ranks.size(); ++r)
    for (std::size_t s = 0; s < r; ++s)
      require<CommError>(gpus.nccl().several_ranks || ranks[s] != ranks[r], "GPU ", ranks[r],
                         " is two ranks");
  require<CommError>(!dies_at(0, NcclFaults::Call::kMake), kDeath);
  require<CommError>(all_->join(ranks.size(), failed), "the run has failed meanwhile");
  ++gpus.nccl_faults().made;
  ++gpus.nccl_faults().alive;
}

StandInCommunicators::~StandInCommunicators() {
  dies_at(0, NcclFaults::Call::kEnd);
  --gpus_.nccl_faults().alive;
  gpus_.nccl_faults().outlived += held_.use_count() > 1;
}

void StandInCommunicators::all_reduce(const RankReduction& what, std::span<const RankTensors> ranks,
                                      const std::atomic<bool>& failed) {
  if (capturing && all_->ranks() > gpu_of_.size())
    capturing->refuse(cat(what.node->name(), ": ranks of several processes are captured"));
  for (const RankTensors& of : ranks) {
    const auto r = static_cast<std::size_t>(of.rank);
    RankMeetings::Part part{.what = what};
    std::vector<Access> accesses;
    for (std::size_t b = 0; b < what.elements.size(); ++b) {
      part.from.push_back(gpus_.behind(gpu_of_[r], of.from[b]));
      part.to.push_back(gpus_.behind(gpu_of_[r], of.to[b]));
      const auto bytes = what.elements[b] * static_cast<std::int64_t>(size_of(what.dtype));
      accesses.push_back(accessed(part.from.back(), bytes, false));
      accesses.push_back(accessed(part.to.back(), bytes, true));
    }
    ++gpus_.counters_->all_reduces;
    enqueue(r, *of.stream, std::move(part), std::move(accesses), failed);
  }
}

void StandInCommunicators::exchange(const Node& node, const Exchange& what, int rank,
                                    GpuStream& stream, const std::atomic<bool>& failed) {
  const auto r = static_cast<std::size_t>(rank);
  RankMeetings::Part part{.what = {.node = &node, .dtype = DType::kF32, .elements = {}},
                          .messages = what,
                          .exchanges = true};
  std::vector<Access> accesses;
  const auto use = [&]<class Bytes>(Bytes& bytes, bool writes) {
    bytes = Bytes(gpus_.behind(gpu_of_[r], bytes.data()), bytes.size());
    accesses.push_back(accessed(bytes.data(), bytes.size(), writes));
  };
  if (part.messages.gathered) {
    use(part.messages.gathered->from, false);
    use(part.messages.gathered->to, true);
    ++gpus_.counters_->rank_gathers;
  } else {
    for (GroupMessage& message : part.messages.sent) use(message.bytes, false);
    for (GroupMessage& message : part.messages.received) use(message.bytes, true);
    ++gpus_.counters_->exchanges;
  }
  enqueue(r, stream, std::move(part), std::move(accesses), failed);
}

void StandInCommunicators::enqueue(std::size_t r, GpuStream& stream, RankMeetings::Part part,
                                   std::vector<Access> accesses, const std::atomic<bool>& failed) {
  NcclFaults& faults = gpus_.nccl_faults();
  require<CommError>(!busy_[r].exchange(true), "two threads are in one communicator at once");
  const int call = faults.calls++;
  if (call == faults.fail_at) {
    busy_[r] = false;
    throw CommError(cat(part.exchanges ? "ncclSend" : "ncclAllReduce", " failed: in a test, for ",
                        part.what.node->describe()));
  }
  if (call == faults.in_progress_at) {
    stay_in_progress(failed);
    busy_[r] = false;
    return;
  }
  if (dies_at(r, NcclFaults::Call::kEnqueue)) {
    busy_[r] = false;
    throw CommError(kDeath);
  }
  const bool stalls = call == faults.stall_at;
  dynamic_cast<StandInStream&>(stream).enqueue(
      [=, this, part = std::move(part), number = enqueued_[r]++,
       held = capturing ? held_ : nullptr] {
        const bool never = dies_at(r, NcclFaults::Call::kWork) || stalls;
        all_->meet(first_ + r, number, part, never, aborted_);
      },
      std::move(accesses));
  if (call == faults.fail_later_at) broken_ = true;
  busy_[r] = false;
}

// Acts as a call that never ends by itself. It does end at last, so that a wrong test ends, too.
void StandInCommunicators::stay_in_progress(const std::atomic<bool>& failed) const {
  for (int i = 0; i < 20000 && !failed.load(std::memory_order_acquire); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  gpus_.nccl_faults().heard += failed;
}

bool StandInCommunicators::dies_at(std::size_t rank, NcclFaults::Call call) const {
  const auto& dies = gpus_.nccl_faults().dies;
  return dies && dies(static_cast<int>(first_ + rank), call);
}

void StandInCommunicators::check() {
  require<CommError>(!dies_at(0, NcclFaults::Call::kCheck), kDeath);
  if (broken_) throw CommError("a collective failed: in a test");
}

void StandInCommunicators::abort_all() noexcept {
  all_->abort(aborted_);
  ++gpus_.nccl_faults().aborted;
}

}  // namespace belfry::test
