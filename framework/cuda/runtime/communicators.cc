#include "belfry/framework/cuda/runtime/communicators.h"

#include <algorithm>
#include <cstring>
#include <thread>

#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/cuda/kernels/tree_sum.h"
#include "belfry/framework/cuda/runtime/cuda_stream.h"
#include "belfry/framework/graph/exchange.h"
#include "belfry/framework/graph/node.h"

namespace belfry::cuda {
namespace {

ncclDataType_t nccl_type(DType dtype) {
  switch (dtype) {
    case DType::kF32: return ncclFloat32;
    case DType::kF64: return ncclFloat64;
    case DType::kF16: return ncclFloat16;
    case DType::kBF16: return ncclBfloat16;
    case DType::kI32: return ncclInt32;
    default: throw InternalError(cat("NCCL is asked for sums of ", name_of(dtype)));
  }
}

}  // namespace

// Locks of the communicators of some ranks, held for a scope.
class Communicators::RankLocks {
 public:
  RankLocks(Communicators& all, std::span<const RankTensors> ranks) : all_(all), ranks_(ranks) {
    for (const RankTensors& of : ranks_) mutex(of).lock();
  }
  ~RankLocks() {
    for (const RankTensors& of : ranks_) mutex(of).unlock();
  }
  RankLocks(const RankLocks&) = delete;
  RankLocks& operator=(const RankLocks&) = delete;

 private:
  std::mutex& mutex(const RankTensors& of) const {
    return all_.ranks_[static_cast<std::size_t>(of.rank)].mutex;
  }

  Communicators& all_;
  std::span<const RankTensors> ranks_;
};

// Calls that NCCL groups. A started group must end: this one ends with its scope at the latest.
class Communicators::Group {
 public:
  explicit Group(const NcclLibrary& nccl) : nccl_(nccl) {
    const ncclResult_t status = nccl.ncclGroupStart();
    if (status != ncclSuccess) fail(nccl, status, "ncclGroupStart", "for some ranks");
  }
  ~Group() {
    if (open_) nccl_.ncclGroupEnd();
  }
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  ncclResult_t end() {
    open_ = false;
    return nccl_.ncclGroupEnd();
  }

 private:
  const NcclLibrary& nccl_;
  bool open_ = true;
};

std::string new_id(const NcclLibrary& nccl) {
  require<CommError>(nccl.version > 0, nccl.why_not);
  ncclUniqueId id{};
  const ncclResult_t status = nccl.ncclGetUniqueId(&id);
  if (status != ncclSuccess) fail(nccl, status, "ncclGetUniqueId", "for a new communicator");
  return {id.internal, sizeof(id.internal)};
}

Communicators::Communicators(const NcclLibrary& nccl, std::span<const int> gpus,
                             std::chrono::duration<double> limit, std::function<void(int)> use,
                             RankWorld world, const std::atomic<bool>* failed)
    : nccl_(nccl), limit_(limit), use_(std::move(use)), world_(std::move(world)) {
  require<CommError>(nccl_.version > 0, nccl_.why_not);
  for (const int gpu : gpus) ranks_.emplace_back(gpu);
  if (world_.size == 0) world_ = {0, static_cast<int>(gpus.size()), new_id(nccl)};
  try {
    make(failed);
  } catch (...) {
    abort_all();
    throw;
  }
}

void Communicators::make(const std::atomic<bool>* failed) {
  ncclUniqueId id{};
  require<CommError>(world_.id.size() == sizeof(id.internal), "an id of NCCL has ",
                     sizeof(id.internal), " bytes, not ", world_.id.size());
  std::memcpy(id.internal, world_.id.data(), sizeof(id.internal));
  {
    Group group(nccl_);
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      use_(ranks_[r].gpu);
      ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
      config.blocking = 0;
      need(nccl_.ncclCommInitRankConfig(&ranks_[r].comm, world_.size, id,
                                        world_.first + static_cast<int>(r), &config),
           "ncclCommInitRankConfig", ranks_[r], nullptr);
    }
    need(group.end(), "ncclGroupEnd", ranks_[0], nullptr);
  }
  await_all("ncclCommInitRankConfig", failed);
  if (std::ssize(ranks_) == world_.size && world_.size > 1) split(failed);
}

void Communicators::split(const std::atomic<bool>* failed) {
  {
    Group group(nccl_);
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
      config.blocking = 1;
      use_(ranks_[r].gpu);
      need(nccl_.ncclCommSplit(ranks_[r].comm, 0, static_cast<int>(r), &ranks_[r].split, &config),
           "ncclCommSplit", ranks_[r], nullptr);
    }
    need(group.end(), "ncclGroupEnd", ranks_[0], nullptr);
  }
  await_all("ncclCommSplit", failed);
  finalize(failed);
  for (Rank& rank : ranks_) rank.comm = std::exchange(rank.split, nullptr);
}

void Communicators::await_all(std::string_view call, const std::atomic<bool>* failed) const {
  for (const Rank& rank : ranks_)
    require<CommError>(await_ready(rank, call, nullptr, failed),
                       "communicators of NCCL were not made: the run has failed meanwhile");
}

// What is still in progress after a run waits for a peer that has died.
Communicators::~Communicators() {
  constexpr std::chrono::seconds kPatience{2};
  limit_ = std::min<std::chrono::duration<double>>(limit_, kPatience);
  try {
    if (ranks_.front().comm) finalize(nullptr);
  } catch (const std::exception&) {
    abort_all();
  }
}

// Destroys the communicators of all ranks, or none if one of them cannot be finalized.
void Communicators::finalize(const std::atomic<bool>* failed) {
  {
    Group group(nccl_);
    for (const Rank& rank : ranks_)
      need(nccl_.ncclCommFinalize(rank.comm), "ncclCommFinalize", rank, nullptr);
    need(group.end(), "ncclGroupEnd", ranks_[0], nullptr);
  }
  await_all("ncclCommFinalize", failed);
  for (Rank& rank : ranks_) nccl_.ncclCommDestroy(std::exchange(rank.comm, nullptr));
}

void Communicators::all_reduce(const RankReduction& what, std::span<const RankTensors> ranks,
                               const std::atomic<bool>& failed) {
  const RankLocks locks(*this, ranks);
  enqueue(what, ranks);
  for (const RankTensors& of : ranks) {
    Rank& rank = ranks_[static_cast<std::size_t>(of.rank)];
    if (!await_ready(rank, "ncclGroupEnd", what.node, &failed)) return;
    if (what.divisor == 1) continue;
    KernelQueue& queue = static_cast<KernelStream&>(*of.stream).queue();
    divide(queue, what.dtype, what.divisor, of.to, what.elements);
  }
}

void Communicators::enqueue(const RankReduction& what, std::span<const RankTensors> ranks) {
  const ncclDataType_t type = nccl_type(what.dtype);
  Group group(nccl_);
  for (const RankTensors& of : ranks) {
    const Rank& rank = ranks_[static_cast<std::size_t>(of.rank)];
    const cudaStream_t stream = static_cast<KernelStream&>(*of.stream).handle();
    for (std::size_t b = 0; b < what.elements.size(); ++b)
      if (what.elements[b] > 0)
        need(nccl_.ncclAllReduce(of.from[b], of.to[b], static_cast<std::size_t>(what.elements[b]),
                                 type, ncclSum, rank.comm, stream),
             "ncclAllReduce", rank, what.node);
  }
  const Rank& first = ranks_[static_cast<std::size_t>(ranks[0].rank)];
  need(group.end(), "ncclGroupEnd", first, what.node);
}

void Communicators::exchange(const Node& node, const Exchange& what, int rank, GpuStream& stream,
                             const std::atomic<bool>& failed) {
  Rank& own = ranks_[static_cast<std::size_t>(rank)];
  const std::lock_guard lock(own.mutex);
  enqueue(node, what, own, static_cast<KernelStream&>(stream).handle());
  await_ready(own, "ncclGroupEnd", &node, &failed);
}

// Sends tensors as bytes, because NCCL computes nothing.
void Communicators::enqueue(const Node& node, const Exchange& what, const Rank& rank,
                            cudaStream_t stream) {
  Group group(nccl_);
  if (what.gathered) {
    const auto& [from, to] = *what.gathered;
    if (!from.empty())
      need(nccl_.ncclAllGather(from.data(), to.data(), from.size(), ncclInt8, rank.comm, stream),
           "ncclAllGather", rank, &node);
  } else {
    for (const GroupMessage& sent : what.sent)
      if (!sent.bytes.empty())
        need(nccl_.ncclSend(sent.bytes.data(), sent.bytes.size(), ncclInt8, sent.peer, rank.comm,
                            stream),
             "ncclSend", rank, &node);
    for (const GroupMessage& received : what.received)
      if (!received.bytes.empty())
        need(nccl_.ncclRecv(received.bytes.data(), received.bytes.size(), ncclInt8, received.peer,
                            rank.comm, stream),
             "ncclRecv", rank, &node);
  }
  need(group.end(), "ncclGroupEnd", rank, &node);
}

void Communicators::check() {
  for (Rank& rank : ranks_) {
    const std::unique_lock lock(rank.mutex, std::try_to_lock);
    if (!lock) continue;  // the thread that holds the lock polls by itself
    const ncclResult_t now = state(rank);
    if (now != ncclSuccess && now != ncclInProgress)
      fail(nccl_, now, "a collective", context(rank, nullptr));
  }
}

void Communicators::abort_all() noexcept {
  for (Rank& rank : ranks_)
    for (ncclComm_t* const comm : {&rank.comm, &rank.split})
      if (*comm) nccl_.ncclCommAbort(std::exchange(*comm, nullptr));
}

ncclResult_t Communicators::state(const Rank& rank) const {
  ncclResult_t now = ncclSuccess;
  const ncclResult_t status = nccl_.ncclCommGetAsyncError(rank.comm, &now);
  need(status, "ncclCommGetAsyncError", rank, nullptr);
  return now;
}

bool Communicators::await_ready(const Rank& rank, std::string_view call, const Node* node,
                                const std::atomic<bool>* failed) const {
  constexpr std::chrono::microseconds kSpin(50), kNap(20);
  using Clock = std::chrono::steady_clock;
  const Clock::time_point start = Clock::now();
  for (;;) {
    const ncclResult_t now = state(rank);
    if (now == ncclSuccess) return true;
    need(now, call, rank, node);
    if (failed && failed->load(std::memory_order_acquire)) return false;
    const auto waited = Clock::now() - start;
    if (waited > limit_)
      throw CommError(
          cat(call, " is still in progress after ", limit_.count(), " s, ", context(rank, node)));
    if (waited > kSpin) std::this_thread::sleep_for(kNap);
  }
}

void Communicators::need(ncclResult_t status, std::string_view call, const Rank& rank,
                         const Node* node) const {
  if (status != ncclSuccess && status != ncclInProgress)
    fail(nccl_, status, call, context(rank, node));
}

std::string Communicators::context(const Rank& rank, const Node* node) const {
  std::size_t number = 0;
  while (&ranks_[number] != &rank) ++number;
  return cat(node ? cat("for ", node->describe(), " ") : "", "on GPU ", rank.gpu, ", rank ",
             static_cast<std::size_t>(world_.first) + number, " of ", world_.size);
}

}  // namespace belfry::cuda
