// The GPU module, libbelfry_cuda.so, as the library sees it: an object of class GpuBackend, reached
// through one function. The library includes no CUDA header and links no CUDA library. Strands,
// waits and the order of enqueued work belong to the library, and are tested on other backends.
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
struct Op;
struct PlanGraph;
struct PlanNode;
class KernelPointers;

// A physical GPU.
struct GpuInfo {
  std::string name;  // "NVIDIA H200"
  std::int64_t memory_bytes = 0;
  int major = 0, minor = 0;  // of its compute capability
  std::string pci_bus_id;    // "0000:18:00.0"; "" if it is not known
};

// Versions such as "13.0" or "9.19.0".
struct GpuVersions {
  std::string driver;   // of CUDA, the newest that the driver supports; "" without a driver
  std::string runtime;  // of CUDA
  std::string cublas_lt, cudnn;
};

struct NcclInfo {
  int version = 0;      // 22809 is 2.28.9; 0 if there is none
  std::string why_not;  // one line; "" if there is NCCL
  // A GPU can be several ranks: NCCL is 2.30 or later, and NCCL_MULTI_RANK_GPU_ENABLE is 1.
  bool several_ranks = false;
};

// A place in a stream that others can wait for.
class GpuEvent {
 public:
  virtual ~GpuEvent() = default;
};

// Captured work of a GPU, which can be launched again as a whole (GpuStream::end_capture).
class GpuSegment {
 public:
  virtual ~GpuSegment() = default;
};

class GpuStream;

// Enqueues one launch, in a stream of the GPU that it was prepared for, which get_ready() has
// prepared for it. It neither allocates nor waits, with one exception. The part of a rank calls
// NCCL, which may allocate host memory and start threads. It waits until these calls are no longer
// in progress. It keeps no pointer to the arrays of KernelPointers. The work that it enqueues does
// not depend on KernelPointers::step(): the stream knows the step when the work runs (set_step).
using GpuRun = std::function<void(const KernelPointers&, GpuStream&)>;

// Work of one GPU, done in the order in which it is enqueued. All functions but drain() and
// get_ready() return at once. One thread at a time calls them, except check() and get_ready(). They
// throw DeviceError naming the node being served.
class GpuStream {
 public:
  virtual ~GpuStream() = default;

  // Creates what `run` needs of libraries and memory in this stream, unless it exists. The backend
  // has prepared `run` for this GPU. May allocate and wait. No two threads may call it at once.
  // Another thread may meanwhile enqueue or capture runs for which the stream is ready.
  virtual void get_ready(const GpuRun& run) = 0;
  // Work enqueued from now on belongs to the node.
  virtual void serve(const Node& node) = 0;
  // Copies between this GPU, its peers and pinned memory.
  virtual void copy(void* to, const void* from, std::size_t bytes) = 0;
  // Copies several small tensors of this GPU to pinned memory at once: bytes[i] from from[i] to
  // to[i].
  virtual void copy_each(std::span<void* const> to, std::span<const void* const> from,
                         std::span<const std::size_t> bytes) = 0;
  // The event, which is of this stream's GPU, stands for everything enqueued so far.
  virtual void record(GpuEvent& event) = 0;
  // Work enqueued from now on waits for what the event stands for now. The event may be of another
  // GPU.
  virtual void wait(const GpuEvent& event) = 0;
  // Sets the counter, which lies in pinned memory, once all earlier work is done and the host can
  // see its writes.
  virtual void stamp(std::int64_t& counter, std::int64_t value) = 0;
  // Sets the number of the step (KernelPointers::step()) for kernels in `kernels`, a stream of the
  // same GPU. It takes effect after everything enqueued here so far, until it is set again. Never
  // part of a segment.
  virtual void set_step(GpuStream& kernels, std::uint64_t step) = 0;

  // Until end_capture(), work enqueued here is recorded and not run. So is work in other streams of
  // the same GPU, once they wait for an event that was recorded in between. At end_capture() this
  // stream must have waited for all of it. Only copies, records, waits, kernels, and all-reduces of
  // one process may be enqueued. During a capture, do not wait for events recorded before it, and
  // do not query these streams. The calling thread neither allocates nor waits. Errors name the
  // first and the last node of the segment.
  virtual void begin_capture(const Node& first, const Node& last) = 0;
  // Null, and a warning, if the GPU cannot make the segment ready, as when its memory is full.
  virtual std::unique_ptr<GpuSegment> end_capture() = 0;
  // Ends the capture after a failure, and discards it.
  virtual void abandon_capture() noexcept = 0;
  // Runs a segment that was captured in a stream of this GPU.
  virtual void launch(const GpuSegment& segment) = 0;

  // Throws if the GPU has failed: then nothing more may happen in its streams.
  virtual void check() const = 0;
  // Throws if kernels have refused input before the last stamp seen by the host.
  virtual void check_inputs() const = 0;
  // Waits until all work is done, or can no longer be done. Not part of a run: call it after a
  // failure, or for work that belongs to no run.
  virtual void drain() noexcept = 0;
};

// A reduction over ranks: a list of tensors that each rank has.
struct RankReduction {
  const Node* node;                    // for errors
  DType dtype;                         // f32 f64 f16 bf16 i32
  std::vector<std::int64_t> elements;  // of each tensor
  int divisor = 1;                     // of the sums: 1 for integers
};

// Where one rank has its tensors, and the stream of its GPU that it uses.
struct RankTensors {
  int rank;
  GpuStream* stream;
  std::span<const void* const> from;
  std::span<void* const> to;  // may be the same
};

// The ranks of this process in a communicator over several processes.
struct RankWorld {
  int first = 0;        // the first of them; the others follow
  int size = 0;         // ranks of all processes; 0: there is only this process
  std::string id = {};  // GpuBackend::communicator_id() of one process, the same in all
};

// NCCL communicators, one per rank. They end before the streams that they used, and after all
// objects that refer to them. Unless aborted, they shut down cleanly.
class GpuCommunicators {
 public:
  virtual ~GpuCommunicators() = default;

  // Enqueues the part of some ranks: one, or all that the calling thread serves. Each rank has one
  // thread at a time, and all ranks see the same reductions in the same order. Once `failed` is
  // set, it returns and promises nothing. Throws CommError naming call, rank and node if NCCL
  // refuses the call, or does not finish it within the limit.
  virtual void all_reduce(const RankReduction& what, std::span<const RankTensors> ranks,
                          const std::atomic<bool>& failed) = 0;
  // Enqueues in the rank's stream all its messages to and from other ranks, or the all-gather that
  // replaces them (Exchange::gathered). Peers are numbered over all processes. The caller makes the
  // copies in `kept`. Each message meets its counterpart in the peer, in order. Otherwise like
  // all_reduce().
  virtual void exchange(const Node& node, const Exchange& what, int rank, GpuStream& stream,
                        const std::atomic<bool>& failed) = 0;
  // Throws CommError if a rank has failed. Any thread may call it.
  virtual void check() = 0;
  // After this, nothing in any stream waits for another rank. Call it while no thread is in another
  // function, and call no other function afterwards.
  virtual void abort_all() noexcept = 0;
};

// Makes the kernels of nodes on GPUs. Threads and errors are as in GpuBackend.
class GpuKernelMaker {
 public:
  virtual ~GpuKernelMaker() = default;

  // Makes the kernel of KernelPlan::op(); empty if it has none for these types. Asks libraries for
  // algorithms: `deterministic` ones give the same bits each time; otherwise the fastest, which are
  // measured once. That may allocate GPU memory, and wait for the GPU.
  // `pitches`: elements from the start of a row to that of the next, for each input and then each
  // output. 0, or no pitches at all, stand for dense tensors. Others are of 16 bits, and the op
  // takes_pitches().
  virtual GpuRun prepare(int gpu, KernelPlan& plan, bool deterministic,
                         std::span<const std::int64_t> pitches = {}) const = 0;
  // Whether the kernel of the op takes tensors of 16 bits with any pitch. An output that may
  // overwrite an input (Op::in_place) has the same pitch.
  virtual bool takes_pitches(const Op& op) const = 0;
  // Makes the kernel of a FusedUpdate, whose ops have Op::fused_update_on_gpus.
  virtual GpuRun prepare_fused(int gpu, const PlanGraph& plan, const PlanNode& node) const = 0;
  // The algorithms that this process has chosen or was given, as the text of a file.
  virtual std::string algorithms(bool deterministic) const = 0;
  // Takes choices from a text like that of algorithms(), before kernels need them. Throws
  // InvalidArgument naming `path` for any other text.
  virtual void give_algorithms(bool deterministic, std::string_view text,
                               const std::string& path) const = 0;
};

// Several threads may call its functions. They throw DeviceError for what CUDA refuses. GPUs are
// numbered from 0. Functions that return something throw InvalidArgument for a number that is not
// below count().
class GpuBackend : public GpuKernelMaker {
 public:
  // How many GPUs CUDA finds; 0 where it cannot say.
  virtual int count() const = 0;
  // Why there are none, and what to do, in one line; "" if there are some.
  virtual std::string why_none() const = 0;
  virtual GpuInfo info(int gpu) const = 0;
  // The same text in all processes that see the GPU: "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6".
  virtual std::string uuid(int gpu) const = 0;
  // Why no kernel of the module runs on that GPU; "" if they do. Creates a CUDA context there.
  virtual std::string refusal(int gpu) const = 0;
  // Whether `from` can read and write the memory of `to`.
  virtual bool peer_access(int from, int to) const = 0;
  virtual GpuVersions versions() const = 0;
  // Opens the NCCL library at the first call.
  virtual NcclInfo nccl() const = 0;

  // GPU memory, aligned to 256 bytes and uninitialised; null if there is too little.
  virtual void* allocate(int gpu, std::size_t bytes) const = 0;
  virtual void deallocate(int gpu, void* memory) const noexcept = 0;
  // Pinned host memory, at the same addresses for every GPU.
  virtual void* allocate_pinned(std::size_t bytes) const = 0;
  virtual void deallocate_pinned(void* memory) const noexcept = 0;
  // Copies between any two memories, and waits for the copy. Not for steps.
  virtual void copy(void* to, const void* from, std::size_t bytes) const = 0;

  // From then on, the GPU can access the memory of these peers, where the hardware allows. Blocks
  // of urgent streams run before those of others that wait.
  virtual std::unique_ptr<GpuStream> make_stream(int gpu, std::span<const int> peers,
                                                 bool is_urgent = false) const = 0;
  virtual std::unique_ptr<GpuEvent> make_event(int gpu) const = 0;
  // An event that records when the GPU reaches it. Never part of a capture.
  virtual std::unique_ptr<GpuEvent> make_timer(int gpu) const = 0;
  // The time between two timers of one GPU, which has reached both; negative if `to` came first. By
  // the GPU's clock, which has a resolution of half a microsecond.
  virtual std::chrono::nanoseconds elapsed(const GpuEvent& from, const GpuEvent& to) const = 0;
  // From now on, the calling thread enqueues in streams of this GPU.
  virtual void use(int gpu) const = 0;

  // The processes of communicators find each other by this id. Each call returns a new one. Throws
  // CommError.
  virtual std::string communicator_id() const = 0;
  // Rank r of this process is on gpus[r]; these GPUs differ unless nccl().several_ranks. All
  // processes of a world make their communicators in one order, and wait for each other. No call
  // stays in progress for longer than `limit`, or once `failed` is set. Throws CommError.
  virtual std::unique_ptr<GpuCommunicators> make_communicators(
      std::span<const int> gpus, std::chrono::duration<double> limit, const RankWorld& world,
      const std::atomic<bool>& failed) const = 0;
};

// The type and the name of the one function that a module exports with C linkage. It sets `own` to
// the module's identity (build_identity.cmake). It returns the backend, which lives as long as the
// process, or null if `wanted` is another identity. The two were then not built together, and no
// virtual function may be called. Throws nothing.
using GpuModuleEntry = const GpuBackend*(const char* wanted, const char** own);
inline constexpr const char* kGpuModuleEntry = "belfry_gpu_backend";

}  // namespace belfry
