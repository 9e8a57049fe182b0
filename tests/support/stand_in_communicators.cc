#include "belfry/tests/support/stand_in_communicators.h"

#include "belfry/framework/kernels/half.h"
#include "belfry/framework/node.h"
#include "belfry/tests/support/stand_in_stream.h"

namespace belfry::test {
namespace {

using Ranks = std::vector<std::vector<const std::byte*>>;

// Tensor b of all ranks, from the last to the first: no tree.
template <class T>
std::vector<T> summed(const Ranks& from, std::size_t b, std::int64_t elements, int divisor) {
  std::vector<T> sums(static_cast<std::size_t>(elements));
  for (std::size_t i = 0; i < sums.size(); ++i) {
    for (std::size_t r = from.size(); r-- > 0;) {
      const T term = reinterpret_cast<const T*>(from[r][b])[i];
      sums[i] = static_cast<T>(r + 1 == from.size() ? term : sums[i] + term);
    }
    if (divisor > 1) sums[i] = static_cast<T>(sums[i] / static_cast<T>(divisor));
  }
  return sums;
}

// In f32: real ranks round at every addition.
std::vector<std::uint16_t> summed_16(const Ranks& from, std::size_t b, std::int64_t elements,
                                     int divisor, DType dtype) {
  const auto convert = kernels::half_conversion(dtype);
  std::vector<std::vector<float>> wide;
  Ranks terms(from.size());
  for (std::size_t r = 0; r < from.size(); ++r) {
    wide.emplace_back(static_cast<std::size_t>(elements));
    convert.widen(reinterpret_cast<const std::uint16_t*>(from[r][b]), wide[r].data(), elements);
  }
  for (std::size_t r = 0; r < from.size(); ++r)
    terms[r] = {reinterpret_cast<const std::byte*>(wide[r].data())};
  const std::vector<float> sums = summed<float>(terms, 0, elements, divisor);
  std::vector<std::uint16_t> narrow(sums.size());
  convert.narrow(sums.data(), narrow.data(), elements);
  return narrow;
}

void add_up(const RankReduction& what, const Ranks& from,
            const std::vector<std::vector<std::byte*>>& to) {
  for (std::size_t b = 0; b < what.elements.size(); ++b) {
    const auto give = [&](const auto& sums) {
      for (const auto& of_rank : to)
        std::copy_n(reinterpret_cast<const std::byte*>(sums.data()), sums.size() * sizeof(sums[0]),
                    of_rank[b]);
    };
    const std::int64_t n = what.elements[b];
    switch (what.dtype) {
      case DType::kF32: give(summed<float>(from, b, n, what.divisor)); break;
      case DType::kF64: give(summed<double>(from, b, n, what.divisor)); break;
      case DType::kI32: give(summed<std::int32_t>(from, b, n, what.divisor)); break;
      default: give(summed_16(from, b, n, what.divisor, what.dtype));
    }
  }
}

}  // namespace

StandInCommunicators::StandInCommunicators(const StandInGpus& gpus, std::span<const int> ranks)
    : gpus_(gpus),
      gpu_of_(ranks.begin(), ranks.end()),
      enqueued_(ranks.size()),
      busy_(ranks.size()) {
  require<CommError>(!gpus.nccl_faults().fails_to_make, "ncclCommInitRankConfig failed: in a test");
  for (std::size_t r = 0; r < ranks.size(); ++r)
    for (std::size_t s = 0; s < r; ++s)
      require<CommError>(gpus.nccl().several_ranks || ranks[s] != ranks[r], "GPU ", ranks[r],
                         " is two ranks");
  ++gpus.nccl_faults().made;
  ++gpus.nccl_faults().alive;
}

StandInCommunicators::~StandInCommunicators() { --gpus_.nccl_faults().alive; }

void StandInCommunicators::all_reduce(const RankReduction& what, std::span<const RankTensors> ranks,
                                      const std::atomic<bool>&) {
  NcclFaults& faults = gpus_.nccl_faults();
  for (const RankTensors& of : ranks) {
    const auto r = static_cast<std::size_t>(of.rank);
    require<CommError>(!busy_[r].exchange(true), "two threads are in one communicator at once");
    ++gpus_.counters_->all_reduces;
    const int call = faults.calls++;
    if (call == faults.fail_at) {
      busy_[r] = false;
      throw CommError(cat("ncclAllReduce failed: in a test, for ", what.node->describe()));
    }
    std::vector<const std::byte*> from;
    std::vector<std::byte*> to;
    std::vector<Access> accesses;
    for (std::size_t b = 0; b < what.elements.size(); ++b) {
      from.push_back(gpus_.behind(gpu_of_[r], of.from[b]));
      to.push_back(gpus_.behind(gpu_of_[r], of.to[b]));
      const auto bytes = what.elements[b] * static_cast<std::int64_t>(size_of(what.dtype));
      accesses.push_back(accessed(from.back(), bytes, false));
      accesses.push_back(accessed(to.back(), bytes, true));
    }
    const bool stalls = call == faults.stall_at;
    dynamic_cast<StandInStream&>(*of.stream)
        .enqueue([=, this, number = enqueued_[r]++] { meet(r, number, what, from, to, stalls); },
                 std::move(accesses));
    if (call == faults.fail_later_at) broken_ = true;
    busy_[r] = false;
  }
}

void StandInCommunicators::meet(std::size_t rank, std::int64_t number, const RankReduction& what,
                                std::vector<const std::byte*> from, std::vector<std::byte*> to,
                                bool stalls) {
  std::unique_lock lock(mutex_);
  if (stalls) changed_.wait(lock, [&] { return aborted_; });
  Meeting& meeting = meetings_[number];
  if (meeting.came == 0) {
    meeting.what = what;
    meeting.from.resize(gpu_of_.size());
    meeting.to.resize(gpu_of_.size());
  }
  require<CommError>(meeting.what.node == what.node && meeting.what.elements == what.elements,
                     "ranks meet with ", meeting.what.node->name(), " and ", what.node->name());
  meeting.from[rank] = std::move(from);
  meeting.to[rank] = std::move(to);
  if (++meeting.came == gpu_of_.size()) {
    add_up(what, meeting.from, meeting.to);
    changed_.notify_all();
  }
  changed_.wait(lock, [&] { return aborted_ || meeting.came == gpu_of_.size(); });
  if (++meeting.left == gpu_of_.size()) meetings_.erase(number);
}

void StandInCommunicators::check() {
  if (broken_) throw CommError("a collective failed: in a test");
}

void StandInCommunicators::abort_all() noexcept {
  const std::lock_guard lock(mutex_);
  aborted_ = true;
  ++gpus_.nccl_faults().aborted;
  changed_.notify_all();
}

}  // namespace belfry::test
