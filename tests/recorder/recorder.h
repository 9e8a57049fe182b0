// Eight GPUs that do not exist, for tests of the GPU module itself. recorder_tests defines the
// functions of CUDA, cuDNN and cuBLASLt that need a GPU. Symbols are looked up in the program
// first, so the module calls these functions.
//
// * Memory of a GPU has addresses at which the host may neither read nor write.
// * Copies, fills and stamps are done, in the order in which they are enqueued. Other kernels, and
//   the work of libraries, are only noted.
// * Each enqueued work takes a millisecond, by the time that events measure.
// * What CUDA forbids, and what steps promise not to do, is noted as a violation: tests expect
// none.
// * Every call can be made to fail.
#pragma once
#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <cuda_runtime_api.h>

#include "belfry/tests/recorder/stream_work.h"

namespace belfry::recorder {

// One call that was made.
struct Call {
  std::string name;    // cudaLaunchKernel
  std::string detail;  // the kernel of a launch, or how a library's call multiplies
  int gpu = -1;        // of the stream, or else the current one
  Stream* stream = nullptr;
  bool captured = false;         // captured, not done
  std::int64_t value = 0;        // the value of a stamp, or the number of a step
  std::vector<char> bytes = {};  // the parameter of a launch, and some more

  bool of_thread = false;  // the stream is the calling thread's

  // Whether it is a library's call, or a kernel that does more than store how far a run is.
  bool computes() const {
    const bool launched = name == "cudaLaunchKernel" && detail.find("store_") == detail.npos;
    return launched || name.starts_with("cublasLt") || name.starts_with("cudnn");
  }
};

// Where a function must not be called.
enum Forbidden : unsigned {
  kNowhere = 0,
  kInSteps = 1,     // runs after those that warm and capture
  kInCaptures = 2,  // of the same thread
  kFrees = 4,       // not forbidden: frees even if it fails
};

class Recorder {
 public:
  static constexpr int kGpus = 8;

  static Recorder& get();

  // --- for tests

  // No call fails any more.
  void mend();
  // mend(), and forgets calls, violations and peers. Allocations stay.
  void reset();
  // Each violation once.
  std::vector<std::string> violations();
  // The calls that gave a stream work.
  std::vector<Call> calls();
  void forget_calls();
  // How often a function has been called.
  int count(std::string_view function);
  std::map<std::string, int, std::less<>> counts();
  // Call `number`, from 0, of the function from now on returns `status` and does nothing. `sticky`:
  // so do all later calls of CUDA, until mend().
  void fail(std::string function, int number, int status, bool sticky = false);
  // Whether that call has failed.
  bool failed();
  // Works of this function of a library, which are only noted otherwise, fill all the memory that
  // they are given with ones, until mend().
  void spoil(std::string function);
  // Stamps are not done until mend().
  void lose_stamps(bool lose);
  // Whether GPUs reach each other's memory.
  void set_peers(bool reach);
  // Objects and allocations that have not been freed, in words.
  std::map<std::string, int> alive();
  // The memory at an address of a GPU, or of pinned memory, as GPUs see it.
  void* behind(const void* address);
  // The GPU whose memory has the address; -1 for pinned memory, -2 for other memory of the host.
  int gpu_of(const void* address);
  // The bytes of the allocation at an address; 0 for other memory.
  std::size_t bytes_of(const void* address);

  // While it lives, a run is in progress that neither warms nor captures.
  class Steady {
   public:
    Steady() { get().steady_ = true; }
    ~Steady() { get().steady_ = false; }
  };

  // --- for the functions; with the lock

  // Runs body(), which returns the status, unless the call must fail.
  template <class Status, class Body>
  Status call(const char* function, unsigned forbidden, const Body& body) {
    const std::lock_guard lock(mutex_);
    int status = enter(function, forbidden, kOfCuda<Status>);
    if (status == 0 || (forbidden & kFrees)) {
      const int own = static_cast<int>(body());
      if (status == 0) status = own;
    }
    if (kOfCuda<Status> && status != 0 && status != cudaErrorNotReady)
      last_error = static_cast<cudaError_t>(status);
    return static_cast<Status>(status);
  }

  void violate(std::string what);
  // Does the work, or keeps it if the stream is captured.
  void enqueue(Stream& stream, Work work, Call call);
  // The stream of a handle; its GPU must be current. Null if it is no stream.
  Stream* stream_of(cudaStream_t handle, const char* function);
  Event* event_of(cudaEvent_t handle);
  // Requires that `gpu` reaches the `bytes` from `address` on, for `what`. `somehow`: CUDA copies,
  // so the GPUs need not be peers.
  void check_reach(const void* address, std::size_t bytes, int gpu, const std::string& what,
                   bool somehow = false);
  // behind(); null if CUDA does not know the address.
  void* find_behind(const void* address);
  // The allocation that holds an address; null if CUDA does not know it.
  Allocation* allocation_of(const void* address);

  // Whether a call has failed: then captures are given up.
  bool has_failed() const { return failed_; }

  static thread_local int current;  // GPU of this thread; -1: none yet
  static thread_local cudaError_t last_error;
  static thread_local int captures;  // captures that this thread has begun and not ended
  static int current_gpu() { return current < 0 ? 0 : current; }

  std::map<std::uintptr_t, Allocation> memory;  // by the first address
  std::set<std::unique_ptr<Stream>, ByAddress> streams;
  std::set<std::unique_ptr<Event>, ByAddress> events;
  std::set<std::unique_ptr<CudaGraph>, ByAddress> graphs;
  std::map<const void*, std::string> kernels;  // by the address that launches name
  std::set<std::pair<int, int>> peers;         // enabled: from, to
  std::set<int> contexts;                      // GPUs that were current in a call that makes one
  bool peers_reach = true;
  bool stamps_lost = false;
  std::map<std::string, int> handles;  // of libraries
  std::string spoiled;                 // the function whose works fill memory with ones
  std::int64_t time = 0;               // in milliseconds

 private:
  template <class Status>
  static constexpr bool kOfCuda = std::is_same_v<Status, cudaError_t>;
  struct Fault {
    std::string function;
    int number, status;
    bool sticky;
  };

  int enter(const char* function, unsigned forbidden, bool of_cuda);

  std::mutex mutex_;
  std::atomic<bool> steady_{false};
  std::vector<std::string> violations_;
  std::vector<Call> calls_;
  std::map<std::string, int, std::less<>> counts_;
  std::unique_ptr<Fault> fault_;
  bool failed_ = false;
  int sticky_ = 0;
  std::chrono::steady_clock::time_point busy_;  // the last call that was no query
};

inline Recorder& recorder() { return Recorder::get(); }

}  // namespace belfry::recorder
