// What the GPU module, libbelfry_cuda.so, is to the library: an object behind this class, reached
// by one function. The library includes no header of CUDA and links none of its libraries. Strands,
// waits and the order in which work is enqueued are its own, and are tested on other backends.
#pragma once
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "belfry/framework/base/dtype.h"

namespace belfry {

struct Exchange;
class KernelPlan;
class Node;
struct PlanGraph;
struct PlanNode;
class Pointers;

// A physical GPU.
struct GpuInfo {
  std::string name;  // "NVIDIA H200"
  std::int64_t memory_bytes = 0;
  int major = 0, minor = 0;  // of its compute capability
};

// As "13.0" or "9.19.0".
struct GpuVersions {
  std::string driver;   // of CUDA, the newest that the driver serves; "" without a driver
  std::string runtime;  // of CUDA
  std::string cublas_lt, cudnn;
};

struct NcclInfo {
  int version = 0;      // 22809 is 2.28.9; 0 if there is none
  std::string why_not;  // one line; "" if there is NCCL
  // A GPU can be several ranks: NCCL is 2.30 or later, and NCCL_MULTI_RANK_GPU_ENABLE is 1.
  bool several_ranks = false;
};

// A place in a stream, for others to wait for.
class GpuEvent {
 public:
  virtual ~GpuEvent() = default;
};

// What a GPU has been given once and can be given again as a whole (GpuStream::end_capture).
class GpuSegment {
 public:
  virtual ~GpuSegment() = default;
};

class GpuStream;

// Enqueues one launch, in a stream of the GPU that it was prepared for and that was made ready for
// it. It allocates nothing and waits for nothing, with one exception. That of the part of a rank
// calls NCCL, which may allocate memory of the host and begin threads, and waits until these calls
// are not in progress any more. It keeps no pointer to what Pointers are made of once it returns.
// What it enqueues does not depend on Pointers::step(), which the stream knows where it runs
// (set_step).
using GpuRun = std::function<void(const Pointers&, GpuStream&)>;

// Work of one GPU that is done in the order in which it is enqueued. Its functions return at once,
// but for drain(), and are called by one thread at a time, check() and get_ready() apart. They
// throw DeviceError naming the node that is served.
class GpuStream {
 public:
  virtual ~GpuStream() = default;

  // Makes what the run, which the backend prepared for this GPU, needs of libraries and memory in
  // this stream, if nothing before has. May allocate, and wait. No two threads at once; another may
  // enqueue runs meanwhile for which the stream is ready, or capture them.
  virtual void get_ready(const GpuRun& run) = 0;
  // What is enqueued from now on is the node's.
  virtual void serve(const Node& node) = 0;
  // Between this GPU, its peers and pinned memory.
  virtual void copy(void* to, const void* from, std::size_t bytes) = 0;
  // Several tensors of this GPU to pinned memory, bytes[i] from from[i] to to[i], at once: small
  // ones.
  virtual void copy_each(std::span<void* const> to, std::span<const void* const> from,
                         std::span<const std::size_t> bytes) = 0;
  // The event stands for all that has been enqueued so far. It is of this stream's GPU.
  virtual void record(GpuEvent& event) = 0;
  // What is enqueued from now on waits for what the event stands for now. It may be of another GPU.
  virtual void wait(const GpuEvent& event) = 0;
  // Sets the counter, which lies in pinned memory, once all before has been done and its writes can
  // be seen by the host.
  virtual void stamp(std::int64_t& counter, std::int64_t value) = 0;
  // Behind what is enqueued here, kernels in `kernels`, a stream of the same GPU, compute with this
  // number of the step (Pointers::step()), until it is set again. It is no part of a segment.
  virtual void set_step(GpuStream& kernels, std::uint64_t step) = 0;

  // Until end_capture() what is enqueued here is kept and not done. So is what is enqueued in
  // streams of the same GPU from where they wait for an event that was recorded in between. All
  // their work must have been waited for here by then. In between, copies, records, waits, kernels
  // and all-reduces of one rank may be enqueued in them. No event from before is waited for, and
  // nothing is asked of these streams. The calling thread neither allocates nor waits. Errors name
  // the two nodes, with which the segment begins and ends.
  virtual void begin_capture(const Node& first, const Node& last) = 0;
  virtual std::unique_ptr<GpuSegment> end_capture() = 0;
  // Instead, after a failure: nothing is kept.
  virtual void abandon_capture() noexcept = 0;
  // Does what has been captured in a stream of this GPU.
  virtual void launch(const GpuSegment& segment) = 0;

  // Throws what the GPU has failed with, if it has: then nothing more may happen in its streams.
  virtual void check() const = 0;
  // Throws what kernels have refused of their input before the last stamp that the host has seen.
  virtual void check_inputs() const = 0;
  // Waits until all has been done, or cannot be. No part of a run: after a failure, or for what no
  // run has taken.
  virtual void drain() noexcept = 0;
};

// What ranks combine: a list of tensors that each of them has.
struct RankReduction {
  const Node* node;                    // whose it is, for errors
  DType dtype;                         // f32 f64 f16 bf16 i32
  std::vector<std::int64_t> elements;  // of each tensor
  int divisor = 1;                     // of the sums: 1 for integers
};

// Where one rank has them, and the stream of its GPU that it works in.
struct RankTensors {
  int rank;
  GpuStream* stream;
  std::span<const void* const> from;
  std::span<void* const> to;  // may be the same
};

// Which ranks of a communicator over several processes are those of this one.
struct RankWorld {
  int first = 0;        // the first of them; the others follow
  int size = 0;         // ranks of all processes; 0: this process is alone
  std::string id = {};  // GpuBackend::communicator_id() of one process, the same in all
};

// Communicators of NCCL, one per rank. They end before the streams that they worked in, and after
// all that refers to them; gently, unless they were aborted.
class GpuCommunicators {
 public:
  virtual ~GpuCommunicators() = default;

  // Enqueues the part of some ranks, one or all that the calling thread serves. Each rank has one
  // thread at a time, and all ranks see the same reductions in the same order. Returns with nothing
  // promised once `failed` is set. Throws CommError naming the call, the rank and the node for what
  // NCCL refuses, or has not done within the limit.
  virtual void all_reduce(const RankReduction& what, std::span<const RankTensors> ranks,
                          const std::atomic<bool>& failed) = 0;
  // Enqueues in the rank's stream what it sends to other ranks and receives, all at once, or what
  // is gathered instead. Peers are ranks of all processes, `kept` is the caller's. Each finds its
  // counterpart there, in order. Else as all_reduce().
  virtual void exchange(const Node& node, const Exchange& what, int rank, GpuStream& stream,
                        const std::atomic<bool>& failed) = 0;
  // Throws CommError for what a rank has failed with since. Called by any thread.
  virtual void check() = 0;
  // Nothing in any stream waits for another rank any more. While no thread is in another function;
  // none may be called afterwards.
  virtual void abort_all() noexcept = 0;
};

// What makes the kernels of nodes on GPUs. Threads and errors as of GpuBackend.
class GpuKernelMaker {
 public:
  virtual ~GpuKernelMaker() = default;

  // Of KernelPlan::op(). Empty if it has no kernel for these types. Asks libraries for algorithms:
  // those that give the same bits each time, or else the fastest, which are measured once. That may
  // allocate memory of the GPU, and wait for it.
  virtual GpuRun prepare(int gpu, KernelPlan& plan, bool deterministic) const = 0;
  // Of a FusedUpdate, whose ops have Op::fused_update_on_gpus.
  virtual GpuRun prepare_fused(int gpu, const PlanGraph& plan, const PlanNode& node) const = 0;
  // The algorithms that this process has chosen so, and those it has been given, as the text of a
  // file.
  virtual std::string algorithms(bool deterministic) const = 0;
  // Takes choices from such a text before they are asked for. Throws InvalidArgument, naming
  // `path`, for any other.
  virtual void give_algorithms(bool deterministic, std::string_view text,
                               const std::string& path) const = 0;
};

// Its functions may be called from several threads, and throw DeviceError for what CUDA refuses.
// GPUs have numbers from 0; those that return something throw InvalidArgument for numbers that are
// not below count().
class GpuBackend : public GpuKernelMaker {
 public:
  // How many GPUs CUDA finds; 0 where it cannot say.
  virtual int count() const = 0;
  // One line of why there are none, and what to do; "" if there are.
  virtual std::string why_none() const = 0;
  virtual GpuInfo info(int gpu) const = 0;
  // The same in all processes that see the GPU, as "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6".
  virtual std::string uuid(int gpu) const = 0;
  // Why no kernel of the module runs on that GPU; "" if they do. Makes a CUDA context there.
  virtual std::string refusal(int gpu) const = 0;
  // Whether `from` can read and write the memory of `to`.
  virtual bool peer_access(int from, int to) const = 0;
  virtual GpuVersions versions() const = 0;
  // Opens the library of NCCL at the first call.
  virtual NcclInfo nccl() const = 0;

  // Null if there is not so much. Aligned to 256 bytes, and not initialised.
  virtual void* allocate(int gpu, std::size_t bytes) const = 0;
  virtual void deallocate(int gpu, void* memory) const noexcept = 0;
  // Of the host, pinned, at the same addresses for every GPU.
  virtual void* allocate_pinned(std::size_t bytes) const = 0;
  virtual void deallocate_pinned(void* memory) const noexcept = 0;
  // Between any two memories, and waits until it is done. Not for steps.
  virtual void copy(void* to, const void* from, std::size_t bytes) const = 0;

  // The GPU reaches the memory of these peers from now on, where it can.
  virtual std::unique_ptr<GpuStream> make_stream(int gpu, std::span<const int> peers) const = 0;
  virtual std::unique_ptr<GpuEvent> make_event(int gpu) const = 0;
  // An event that notes when the GPU comes to its place. It is no part of a capture.
  virtual std::unique_ptr<GpuEvent> make_timer(int gpu) const = 0;
  // From one timer to another of the same GPU, both of which it has come to; below 0 if the other
  // was first. By the GPU's clock, which tells half a microsecond.
  virtual std::chrono::nanoseconds elapsed(const GpuEvent& from, const GpuEvent& to) const = 0;
  // The calling thread enqueues in streams of this GPU from now on.
  virtual void use(int gpu) const = 0;

  // By which the processes of communicators find each other: another at each call. Throws
  // CommError.
  virtual std::string communicator_id() const = 0;
  // Rank r of this process is on gpus[r]; their GPUs differ unless nccl().several_ranks. All
  // processes of a world make their communicators in one order, and wait for each other. No call
  // stays in progress for longer than `limit`, or once `failed` is set. Throws CommError.
  virtual std::unique_ptr<GpuCommunicators> make_communicators(
      std::span<const int> gpus, std::chrono::duration<double> limit, const RankWorld& world,
      const std::atomic<bool>& failed) const = 0;
};

// The type and the name of the one function that a module exports with C linkage. Sets `own` to the
// module's identity (build_identity.cmake). Returns its backend, which lives as long as the
// process, or null if that is not `wanted`. Then the two were not built together, and no virtual
// function may be called. Throws nothing.
using GpuModuleEntry = const GpuBackend*(const char* wanted, const char** own);
inline constexpr const char* kGpuModuleEntry = "belfry_gpu_backend";

}  // namespace belfry
