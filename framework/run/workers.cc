#include "belfry/framework/run/workers.h"

#include <cfenv>
#include <chrono>

#include "belfry/framework/base/error.h"
#include "belfry/framework/base/option_name.h"
#include "belfry/framework/base/threads.h"
#include "belfry/framework/group/group.h"
#if defined(__x86_64__)
#include <immintrin.h>

#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#endif

namespace belfry {

void Alarm::ring() {
  if (ProcessGroup* const group = group_.load()) group->wake();
}

bool SpinTimer::expired() {
  constexpr int kRoundsPerLook = 16;  // reading the clock costs more than a pause
#if defined(__x86_64__)
  _mm_pause();
#endif
  if (yields_ && spin_ > kShortSpin) std::this_thread::yield();
  if (rounds_++ % kRoundsPerLook != 0) return false;
  const auto now = std::chrono::steady_clock::now();
  if (rounds_ == 1) since_ = now;
  yields_ = now - since_ > kShortSpin;
  return now - since_ > spin_;
}

void check_floating_point_mode() {
#if defined(__x86_64__)
  constexpr unsigned kDenormalsAreZero = 0x0040, kRounding = 0x6000, kFlushToZero = 0x8000;
  const unsigned vectors = _mm_getcsr();
  require((vectors & (kDenormalsAreZero | kFlushToZero)) == 0,
          "this thread flushes denormals to zero; clear FTZ and DAZ before running a session");
  // fegetround() reads only the mode of the x87 unit.
  require((vectors & kRounding) == 0,
          "this thread's vector unit does not round to nearest; restore it by "
          "_MM_SET_ROUNDING_MODE(_MM_ROUND_NEAREST) before running a session");
#endif
  require(std::fegetround() == FE_TONEAREST,
          "this thread does not round to nearest; restore FE_TONEAREST before running a session");
}

namespace {

ThreadUse thread_use(int worker, int workers, int enqueuers) {
  if (worker >= workers)
    return {cat("the work of GPU ", worker - workers + 1, " of ", enqueuers), "use fewer GPUs"};
  return {cat("worker ", worker + 1, " of ", workers),
          cat("use fewer (", the_option("threads"), ")")};
}

}  // namespace

WorkerPool::WorkerPool(int workers, int enqueuers) : workers_(workers) {
  try {
    for (int w = 1; w < workers + enqueuers; ++w)
      threads_.push_back(start_thread(thread_use(w, workers, enqueuers), [this, w] { loop(w); }));
  } catch (...) {
    stop();
    throw;
  }
}

WorkerPool::~WorkerPool() { stop(); }

void WorkerPool::stop() {
  {
    const std::lock_guard lock(requesting_);
    request_ = {.number = request_.number + 1, .ends_pool = true};
  }
  start_.set(request_.number, gate_);
  threads_.clear();  // joins them
}

void WorkerPool::run(int active, const std::function<void(int)>& body,
                     std::chrono::nanoseconds spin, int awaited_from) {
  if (active == 1) return body(0);
  {
    const std::lock_guard lock(requesting_);
    request_ = {.number = request_.number + 1,
                .active = active,
                .awaited_from = awaited_from,
                .spin = spin,
                .body = &body};
    takes_late_ = true;
    awaited_.store(active - awaited_from, std::memory_order_relaxed);
  }
  start_.set(request_.number, gate_);
  body(0);
  {
    const std::lock_guard lock(requesting_);
    takes_late_ = false;
  }
  wait_until([&] { return awaited_.load(std::memory_order_seq_cst) == 0; }, gate_, spin);
}

WorkerPool::Request WorkerPool::begin_call(int thread) {
  const std::lock_guard lock(requesting_);
  Request request = request_;
  const bool may_be_left_out = thread < request.awaited_from;
  if (thread >= request.active || (may_be_left_out && !takes_late_))
    request.body = nullptr;
  else if (may_be_left_out)
    awaited_.fetch_add(1, std::memory_order_relaxed);
  return request;
}

void WorkerPool::end_call() {
  if (awaited_.fetch_sub(1, std::memory_order_seq_cst) == 1) gate_.wake();
}

void WorkerPool::loop(int thread) {
  Request request;
  for (;;) {
    await(start_, request.number + 1, gate_, request.body ? request.spin : kShortSpin);
    request = begin_call(thread);
    if (request.ends_pool) return;
    if (!request.body) continue;
    (*request.body)(thread);
    end_call();
  }
}

}  // namespace belfry
