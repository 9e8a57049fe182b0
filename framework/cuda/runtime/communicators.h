// Communicators of NCCL, one per rank of this process. Nothing waits in NCCL for another rank: they
// are made without blocking, and the caller polls until NCCL is done or the limit is over.
//
// With several processes, one of which may die, they stay like that. But each group of their calls
// starts a thread of NCCL, and a capture cannot hold what that thread enqueues. So several ranks of
// one process go on with communicators that block, which are split from the first ones. Their
// calls only enqueue, because they are connected by then.
#pragma once
#include <deque>
#include <functional>
#include <mutex>
#include <vector>

#include "belfry/framework/cuda/runtime/nccl_library.h"
#include "belfry/framework/device/gpu_backend.h"

namespace belfry::cuda {

// The bytes of a new ncclUniqueId. Throws CommError.
std::string new_id(const NcclLibrary& nccl);

class Communicators final : public GpuCommunicators {
 public:
  // Makes the communicators ready for use. `use` makes a GPU the thread's current one. Throws
  // CommError, and leaves none, if one cannot be made or `failed` is set meanwhile (null: never).
  Communicators(const NcclLibrary& nccl, std::span<const int> gpus,
                std::chrono::duration<double> limit, std::function<void(int)> use,
                RankWorld world = {}, const std::atomic<bool>* failed = nullptr);
  // Finalizes and destroys the communicators; aborts all if one cannot be finalized.
  ~Communicators() override;

  // Streams are KernelStreams. A capture of a rank alone holds a copy, or nothing if `from` is
  // `to`. The capture of one of several ranks of this process refers to the communicator. With
  // several processes there is no capture. The later ncclCommGetAsyncError does not call CUDA.
  void all_reduce(const RankReduction& what, std::span<const RankTensors> ranks,
                  const std::atomic<bool>& failed) override;
  // Like all_reduce(): the stream is a KernelStream.
  void exchange(const Node& node, const Exchange& what, int rank, GpuStream& stream,
                const std::atomic<bool>& failed) override;
  void check() override;
  void abort_all() noexcept override;

 private:
  struct Rank {
    int gpu;
    ncclComm_t comm = nullptr;
    ncclComm_t split = nullptr;  // from `comm`, until it takes its place
    std::mutex mutex = {};       // NCCL takes one thread at a time in a communicator
  };
  class RankLocks;
  class Group;

  void make(const std::atomic<bool>* failed);
  void split(const std::atomic<bool>* failed);
  // Waits until no rank has work in progress. Throws CommError once `failed` is set.
  void await_all(std::string_view call, const std::atomic<bool>* failed) const;
  void finalize(const std::atomic<bool>* failed);
  void enqueue(const RankReduction& what, std::span<const RankTensors> ranks);
  void enqueue(const Node& node, const Exchange& what, const Rank& rank, cudaStream_t stream);
  // A communicator's state, by ncclCommGetAsyncError.
  ncclResult_t state(const Rank& rank) const;
  // Waits until `call` is no longer in progress; false if `failed` is set meanwhile (null: never).
  bool await_ready(const Rank& rank, std::string_view call, const Node* node,
                   const std::atomic<bool>* failed) const;
  void need(ncclResult_t status, std::string_view call, const Rank& rank, const Node* node) const;
  std::string context(const Rank& rank, const Node* node) const;

  const NcclLibrary& nccl_;
  std::chrono::duration<double> limit_;
  std::function<void(int)> use_;
  RankWorld world_;
  std::deque<Rank> ranks_;  // they do not move
};

}  // namespace belfry::cuda
