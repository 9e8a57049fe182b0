#include "belfry/tests/recorder/recorder.h"

#include <algorithm>
#include <utility>

#include "belfry/framework/base/text.h"

namespace belfry::recorder {

thread_local int Recorder::current = -1;
thread_local cudaError_t Recorder::last_error = cudaSuccess;
thread_local int Recorder::captures = 0;

// Never destroyed: the module registers its kernels before all else, and its handles end last.
Recorder& Recorder::get() {
  static auto& only = *new Recorder;
  return only;
}

void Recorder::mend() {
  const std::lock_guard lock(mutex_);
  fault_.reset();
  failed_ = false;
  sticky_ = 0;
  stamps_lost = false;
  spoiled.clear();
}

void Recorder::reset() {
  mend();
  const std::lock_guard lock(mutex_);
  violations_.clear();
  calls_.clear();
  counts_.clear();
  peers.clear();
  contexts.clear();
  peers_reach = true;
}

std::vector<std::string> Recorder::violations() {
  const std::lock_guard lock(mutex_);
  return violations_;
}

std::vector<Call> Recorder::calls() {
  const std::lock_guard lock(mutex_);
  return calls_;
}

void Recorder::forget_calls() {
  const std::lock_guard lock(mutex_);
  calls_.clear();
}

int Recorder::count(std::string_view function) {
  const std::lock_guard lock(mutex_);
  const auto found = counts_.find(function);
  return found == counts_.end() ? 0 : found->second;
}

std::map<std::string, int, std::less<>> Recorder::counts() {
  const std::lock_guard lock(mutex_);
  return counts_;
}

void Recorder::fail(std::string function, int number, int status, bool sticky) {
  const std::lock_guard lock(mutex_);
  const int before = counts_[function];
  fault_ = std::make_unique<Fault>(Fault{std::move(function), before + number, status, sticky});
  failed_ = false;
}

bool Recorder::failed() {
  const std::lock_guard lock(mutex_);
  return failed_;
}

void Recorder::lose_stamps(bool lose) {
  const std::lock_guard lock(mutex_);
  stamps_lost = lose;
}

void Recorder::set_peers(bool reach) {
  const std::lock_guard lock(mutex_);
  peers_reach = reach;
}

std::map<std::string, int> Recorder::alive() {
  const std::lock_guard lock(mutex_);
  std::map<std::string, int> all = handles;
  for (const auto& [address, of] : memory)
    ++all[of.gpu < 0 ? std::string("pinned memory") : cat("memory of GPU ", of.gpu)];
  all["streams"] += static_cast<int>(streams.size());
  all["events"] += static_cast<int>(events.size());
  all["graphs"] += static_cast<int>(graphs.size());
  std::erase_if(all, [](const auto& of) { return of.second == 0; });
  return all;
}

void Recorder::spoil(std::string function) {
  const std::lock_guard lock(mutex_);
  spoiled = std::move(function);
}

void* Recorder::behind(const void* address) {
  const std::lock_guard lock(mutex_);
  return find_behind(address);
}

void* Recorder::find_behind(const void* address) {
  const Allocation* const of = allocation_of(address);
  if (!of) return nullptr;
  const auto first =
      std::prev(memory.upper_bound(reinterpret_cast<std::uintptr_t>(address)))->first;
  return of->behind + (reinterpret_cast<std::uintptr_t>(address) - first);
}

int Recorder::gpu_of(const void* address) {
  const std::lock_guard lock(mutex_);
  const Allocation* const of = allocation_of(address);
  return of ? of->gpu : -2;
}

std::size_t Recorder::bytes_of(const void* address) {
  const std::lock_guard lock(mutex_);
  const Allocation* const of = allocation_of(address);
  return of ? of->bytes : 0;
}

Allocation* Recorder::allocation_of(const void* address) {
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  const auto after = memory.upper_bound(at);
  if (after == memory.begin()) return nullptr;
  const auto found = std::prev(after);
  return at - found->first < found->second.bytes ? &found->second : nullptr;
}

void Recorder::violate(std::string what) {
  if (std::ranges::count(violations_, what) == 0) violations_.push_back(std::move(what));
}

int Recorder::enter(const char* function, unsigned forbidden, bool of_cuda) {
  const int number = counts_[function]++;
  if (steady_ && (forbidden & kInSteps)) violate(cat(function, " in a step"));
  if (captures > 0 && (forbidden & kInCaptures)) {
    violate(cat(function, " in a thread that captures"));
    return cudaErrorStreamCaptureUnsupported;
  }
  const auto now = std::chrono::steady_clock::now();
  if (std::string_view(function) != "cudaStreamQuery") {
    busy_ = now;
  } else if (now - busy_ > std::chrono::seconds(10)) {  // else the caller would wait for ever
    violate("the host waits for what no GPU was given to do");
    return cudaErrorLaunchTimeout;
  }
  if (fault_ && fault_->function == function && fault_->number == number) {
    failed_ = true;
    if (fault_->sticky) sticky_ = fault_->status;
    return fault_->status;
  }
  return of_cuda ? sticky_ : 0;
}

Stream* Recorder::stream_of(cudaStream_t handle, const char* function) {
  const auto gpu = static_cast<std::size_t>(current_gpu());
  if (handle == cudaStreamPerThread) {
    thread_local std::vector<Stream> own;
    for (int g = 0; own.size() < kGpus; ++g) own.push_back({.gpu = g});
    return &own[gpu];
  }
  const auto found = streams.find(static_cast<const void*>(handle));
  if (found == streams.end()) {
    violate(cat(function, handle ? " in what is no stream" : " in the legacy stream"));
    return nullptr;
  }
  if ((*found)->gpu != current_gpu())
    violate(cat(function, " in a stream of GPU ", (*found)->gpu, " while GPU ", current_gpu(),
                " is current"));
  return found->get();
}

Event* Recorder::event_of(cudaEvent_t handle) {
  const auto found = events.find(static_cast<const void*>(handle));
  if (found != events.end()) return found->get();
  violate("an event that is none");
  return nullptr;
}

void Recorder::check_reach(const void* address, std::size_t bytes, int gpu, const std::string& what,
                           bool somehow) {
  const Allocation* const of = allocation_of(address);
  if (!of) return violate(cat(what, " on GPU ", gpu, " is given memory that no GPU reaches"));
  const auto first =
      std::prev(memory.upper_bound(reinterpret_cast<std::uintptr_t>(address)))->first;
  if (reinterpret_cast<std::uintptr_t>(address) - first + bytes > of->bytes)
    violate(cat(what, " on GPU ", gpu, " goes beyond its memory"));
  if (of->gpu < 0) {
    constexpr unsigned kEverywhere = cudaHostAllocMapped | cudaHostAllocPortable;
    if ((of->flags & kEverywhere) != kEverywhere)
      violate(cat(what, " on GPU ", gpu, " is given memory of the host that is not mapped there"));
  } else if (of->gpu != gpu && !somehow && !peers.contains({gpu, of->gpu})) {
    violate(cat(what, " on GPU ", gpu, " is given memory of GPU ", of->gpu,
                ", to which it has no access"));
  }
}

void Recorder::enqueue(Stream& stream, Work work, Call call) {
  call.gpu = stream.gpu;
  call.stream = &stream;
  call.captured = stream.capture != nullptr;
  calls_.push_back(std::move(call));
  ++time;
  if (Capture* const capture = stream.capture.get()) {
    stream.clock[&stream] = ++capture->counts[&stream];
    capture->work.push_back(std::move(work));
  } else if (work.act) {
    work.act();
  }
}

}  // namespace belfry::recorder
