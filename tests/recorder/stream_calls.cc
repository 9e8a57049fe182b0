// CUDA's functions for streams, events and graphs.
#include <algorithm>
#include <atomic>
#include <cstring>

#include <sys/uio.h>
#include <unistd.h>

#include "belfry/framework/base/text.h"
#include "belfry/tests/recorder/recorder.h"

using namespace belfry::recorder;
using belfry::cat;

namespace {

// The memory behind an address, as GPUs see it.
std::byte* behind(const void* address) {
  Recorder& r = recorder();
  const Allocation* const of = r.allocation_of(address);
  if (!of) return nullptr;
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  return of->behind + (at - std::prev(r.memory.upper_bound(at))->first);
}

// Refuses a call; the capture of its stream is then broken.
cudaError_t refuse(Stream& stream, cudaError_t status, const char* function) {
  recorder().violate(cat(function, " while a stream captures: error ", static_cast<int>(status)));
  if (stream.capture) stream.capture->broken = status;
  return status;
}

// The bytes of a kernel's parameter, as far as they can be read; only CUDA knows their number.
std::vector<char> parameter_bytes(void* parameter) {
  std::vector<char> bytes(4096);
  const iovec to{bytes.data(), bytes.size()}, from{parameter, bytes.size()};
  const auto read = process_vm_readv(getpid(), &to, 1, &from, 1, 0);
  bytes.resize(static_cast<std::size_t>(std::max<ssize_t>(read, 0)));
  return bytes;
}

template <class T>
T read_as(const void* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

// Takes the parameters' words for pointers if they are addresses in memory of GPUs.
void check_pointers(const std::vector<char>& bytes, int gpu, const std::string& kernel) {
  for (std::size_t i = 0; i + sizeof(void*) <= bytes.size(); i += sizeof(void*)) {
    const void* const word = read_as<void*>(&bytes[i]);
    const Allocation* const of = recorder().allocation_of(word);
    if (of && of->gpu >= 0) recorder().check_reach(word, 1, gpu, kernel);
  }
}

// The kernels of stamp.cu, which store a number.
template <class T>
Work store(const std::string& kernel, void** arguments) {
  const auto target = read_as<T*>(arguments[0]);
  const T value = read_as<T>(arguments[1]);
  return {kernel, [target, value] {
            if (std::byte* const at = behind(target))
              std::atomic_ref(*reinterpret_cast<T*>(at)).store(value, std::memory_order_release);
          }};
}

}  // namespace

extern "C" {

// Notes the name of the kernel that a launch will name by `host`.
void __cudaRegisterFunction(void**, const char* host, char*, const char* name, int, void*, void*,
                            void*, void*, int*) {
  recorder().kernels[host] = name;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  return recorder().call<cudaError_t>("cudaDeviceGetStreamPriorityRange", kInSteps | kInCaptures,
                                      [&] {
                                        *least = 0;
                                        *greatest = kHighestPriority;
                                        return cudaSuccess;
                                      });
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int priority) {
  return recorder().call<cudaError_t>("cudaStreamCreateWithPriority", kInSteps | kInCaptures, [&] {
    if (flags != cudaStreamNonBlocking) recorder().violate("a stream waits for the legacy one");
    auto made =
        std::make_unique<Stream>(Stream{.gpu = Recorder::current_gpu(), .priority = priority});
    *stream = reinterpret_cast<cudaStream_t>(made.get());
    recorder().streams.insert(std::move(made));
    return cudaSuccess;
  });
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  return recorder().call<cudaError_t>("cudaStreamDestroy", kInSteps | kFrees, [&] {
    Stream* const found = recorder().stream_of(stream, "cudaStreamDestroy");
    if (!found) return cudaErrorInvalidResourceHandle;
    if (found->capture) recorder().violate("a stream ends while it captures");
    recorder().streams.erase(recorder().streams.find(static_cast<const void*>(stream)));
    return cudaSuccess;
  });
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
  return recorder().call<cudaError_t>("cudaStreamQuery", kNowhere, [&] {
    Stream* const found = recorder().stream_of(stream, "cudaStreamQuery");
    if (!found) return cudaErrorInvalidResourceHandle;
    if (found->capture) return refuse(*found, cudaErrorStreamCaptureUnsupported, "cudaStreamQuery");
    return cudaSuccess;
  });
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  return recorder().call<cudaError_t>("cudaStreamSynchronize", kInSteps | kInCaptures, [&] {
    Stream* const found = recorder().stream_of(stream, "cudaStreamSynchronize");
    if (!found) return cudaErrorInvalidResourceHandle;
    if (found->capture)
      return refuse(*found, cudaErrorStreamCaptureUnsupported, "cudaStreamSynchronize");
    return cudaSuccess;
  });
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t handle) {
  constexpr const char* kName = "cudaMemcpyAsync";
  return recorder().call<cudaError_t>(kName, kNowhere, [&] {
    Recorder& r = recorder();
    Stream* const stream = r.stream_of(handle, kName);
    if (!stream) return cudaErrorInvalidResourceHandle;
    for (const void* const address : {static_cast<const void*>(to), from}) {
      if (r.allocation_of(address))  // outside of steps CUDA may find its own way
        r.check_reach(address, bytes, stream->gpu, "a copy", handle == cudaStreamPerThread);
      else if (stream->capture)
        return refuse(*stream, cudaErrorStreamCaptureUnsupported, "a copy of pageable memory");
      else if (handle != cudaStreamPerThread)
        r.violate("a copy of pageable memory in a stream of steps");
    }
    const auto on_gpu = [&](const void* address) {
      const Allocation* const of = r.allocation_of(address);
      return of && of->gpu >= 0;
    };
    if (kind != cudaMemcpyDefault &&
        (kind != cudaMemcpyDeviceToHost || !on_gpu(from) || on_gpu(to))) {
      r.violate("a copy whose kind is not that of its memory");
      return cudaErrorInvalidValue;
    }
    r.enqueue(*stream,
              {kName,
               [to, from, bytes, of_to = r.allocation_of(to), of_from = r.allocation_of(from)] {
                 const std::byte* const source =
                     of_from ? behind(from) : static_cast<const std::byte*>(from);
                 std::byte* const target = of_to ? behind(to) : static_cast<std::byte*>(to);
                 if (!source || !target) return recorder().violate("a copy of freed memory");
                 std::memmove(target, source, bytes);
               }},
              {.name = kName,
               .detail = cat(bytes, " bytes"),
               .of_thread = handle == cudaStreamPerThread});
    return cudaSuccess;
  });
}

cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t handle) {
  return recorder().call<cudaError_t>("cudaMemsetAsync", kNowhere, [&] {
    Stream* const stream = recorder().stream_of(handle, "cudaMemsetAsync");
    if (!stream) return cudaErrorInvalidResourceHandle;
    recorder().check_reach(to, bytes, stream->gpu, "a fill");
    recorder().enqueue(*stream,
                       {"cudaMemsetAsync",
                        [=] {
                          if (std::byte* const at = behind(to)) std::memset(at, value, bytes);
                        }},
                       {.name = "cudaMemsetAsync", .of_thread = handle == cudaStreamPerThread});
    return cudaSuccess;
  });
}

cudaError_t cudaLaunchKernel(const void* function, dim3 grid, dim3 block, void** arguments,
                             std::size_t, cudaStream_t handle) {
  return recorder().call<cudaError_t>("cudaLaunchKernel", kNowhere, [&] {
    Recorder& r = recorder();
    Stream* const stream = r.stream_of(handle, "cudaLaunchKernel");
    if (!stream) return cudaErrorInvalidResourceHandle;
    const auto kernel = r.kernels.find(function);
    if (kernel == r.kernels.end()) return cudaErrorInvalidDeviceFunction;
    if (grid.x == 0 || block.x == 0 || block.x > 1024) return cudaErrorInvalidConfiguration;
    Work work{kernel->second};
    Call call{.name = "cudaLaunchKernel", .detail = kernel->second};
    if (call.detail.find("store_") != std::string::npos)
      call.value = read_as<std::int64_t>(arguments[1]);
    if (call.detail.find("store_behind") != std::string::npos) {
      if (stream->capture) r.violate("a stamp that is captured");
      const auto* const counter = read_as<void*>(arguments[0]);
      r.check_reach(counter, sizeof(std::int64_t), stream->gpu, "a stamp");
      if (const Allocation* const of = r.allocation_of(counter); of && of->gpu >= 0)
        r.violate("a stamp that the host cannot read");
      if (!r.stamps_lost) work = store<std::int64_t>(kernel->second, arguments);
    } else if (call.detail.find("store_word") != std::string::npos) {
      if (stream->capture) r.violate("the number of a step is captured");
      r.check_reach(read_as<void*>(arguments[0]), sizeof(std::uint64_t), stream->gpu, "a step");
      work = store<std::uint64_t>(kernel->second, arguments);
    } else {
      call.bytes = parameter_bytes(arguments[0]);
      check_pointers(call.bytes, stream->gpu, call.detail);
    }
    r.enqueue(*stream, std::move(work), std::move(call));
    return cudaSuccess;
  });
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  return recorder().call<cudaError_t>("cudaEventCreateWithFlags", kInSteps | kInCaptures, [&] {
    if (flags != cudaEventDisableTiming && flags != cudaEventDefault)
      recorder().violate("an event for which threads sleep");
    auto made = std::make_unique<Event>(
        Event{.gpu = Recorder::current_gpu(), .timer = flags == cudaEventDefault});
    *event = reinterpret_cast<cudaEvent_t>(made.get());
    recorder().events.insert(std::move(made));
    return cudaSuccess;
  });
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  return recorder().call<cudaError_t>("cudaEventDestroy", kInSteps | kFrees, [&] {
    if (!recorder().event_of(event)) return cudaErrorInvalidResourceHandle;
    recorder().events.erase(recorder().events.find(static_cast<const void*>(event)));
    return cudaSuccess;
  });
}

cudaError_t cudaEventRecord(cudaEvent_t handle, cudaStream_t stream_handle) {
  return recorder().call<cudaError_t>("cudaEventRecord", kNowhere, [&] {
    Stream* const stream = recorder().stream_of(stream_handle, "cudaEventRecord");
    Event* const event = recorder().event_of(handle);
    if (!stream || !event) return cudaErrorInvalidResourceHandle;
    if (event->gpu != stream->gpu) {
      recorder().violate(cat("an event of GPU ", event->gpu, " in a stream of GPU ", stream->gpu));
      return cudaErrorInvalidResourceHandle;
    }
    if (event->timer && stream->capture)
      recorder().violate("an event that measures time is captured");
    event->recorded = true;
    event->time = recorder().time;
    event->capture = stream->capture;
    event->clock = stream->clock;
    return cudaSuccess;
  });
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t from, cudaEvent_t to) {
  return recorder().call<cudaError_t>("cudaEventElapsedTime", kInSteps | kInCaptures, [&] {
    const Event* const a = recorder().event_of(from);
    const Event* const b = recorder().event_of(to);
    if (!a || !b || !a->timer || !b->timer || !a->recorded || !b->recorded || a->gpu != b->gpu)
      return cudaErrorInvalidResourceHandle;
    *milliseconds = static_cast<float>(b->time - a->time);
    return cudaSuccess;
  });
}

cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t event_handle, unsigned) {
  constexpr const char* kName = "cudaStreamWaitEvent";
  return recorder().call<cudaError_t>(kName, kNowhere, [&] {
    Stream* const stream = recorder().stream_of(handle, kName);
    Event* const event = recorder().event_of(event_handle);
    if (!stream || !event) return cudaErrorInvalidResourceHandle;
    if (!event->recorded) recorder().violate("a wait for an event that was never recorded");
    if (event->timer) recorder().violate("a wait for an event that measures time");
    if (!event->capture) {
      if (stream->capture) return refuse(*stream, cudaErrorStreamCaptureIsolation, kName);
      return cudaSuccess;
    }
    if (!event->capture->open) return refuse(*stream, cudaErrorCapturedEvent, kName);
    if (!stream->capture)
      *stream = {.gpu = stream->gpu, .capture = event->capture};
    else if (stream->capture != event->capture)
      return refuse(*stream, cudaErrorStreamCaptureMerge, kName);
    for (const auto& [other, count] : event->clock)
      stream->clock[other] = std::max(stream->clock[other], count);
    return cudaSuccess;
  });
}

cudaError_t cudaStreamBeginCapture(cudaStream_t handle, cudaStreamCaptureMode mode) {
  constexpr const char* kName = "cudaStreamBeginCapture";
  return recorder().call<cudaError_t>(kName, kInSteps, [&] {
    Stream* const stream = recorder().stream_of(handle, kName);
    if (!stream) return cudaErrorInvalidResourceHandle;
    if (mode != cudaStreamCaptureModeThreadLocal)
      recorder().violate("a capture that other threads end, or that lets this one do anything");
    if (stream->capture || handle == cudaStreamPerThread)
      return refuse(*stream, cudaErrorIllegalState, kName);
    stream->capture = std::make_shared<Capture>(Capture{stream, std::this_thread::get_id()});
    stream->clock.clear();
    ++Recorder::captures;
    return cudaSuccess;
  });
}

cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t* graph) {
  constexpr const char* kName = "cudaStreamEndCapture";
  *graph = nullptr;
  return recorder().call<cudaError_t>(kName, kInSteps, [&] {
    Stream* const stream = recorder().stream_of(handle, kName);
    if (!stream) return cudaErrorInvalidResourceHandle;
    const std::shared_ptr<Capture> capture = stream->capture;
    if (!capture || !capture->open) return cudaErrorIllegalState;
    if (capture->origin != stream) return refuse(*stream, cudaErrorStreamCaptureUnmatched, kName);
    if (capture->thread != std::this_thread::get_id())
      return refuse(*stream, cudaErrorStreamCaptureWrongThread, kName);
    const bool joined = std::ranges::all_of(
        capture->counts, [&](const auto& of) { return stream->clock[of.first] == of.second; });
    capture->open = false;
    --Recorder::captures;
    for (const auto& other : recorder().streams)
      if (other->capture == capture) {
        other->capture.reset();
        other->clock.clear();
      }
    if (capture->broken) return cudaErrorStreamCaptureInvalidated;
    if (!joined && recorder().has_failed()) return cudaErrorStreamCaptureUnjoined;
    if (!joined) return refuse(*stream, cudaErrorStreamCaptureUnjoined, kName);
    auto made =
        std::make_unique<CudaGraph>(CudaGraph{stream->gpu, false, std::move(capture->work)});
    *graph = reinterpret_cast<cudaGraph_t>(made.get());
    recorder().graphs.insert(std::move(made));
    return cudaSuccess;
  });
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph,
                                 unsigned long long flags) {
  return recorder().call<cudaError_t>("cudaGraphInstantiate", kInSteps, [&] {
    if (flags != cudaGraphInstantiateFlagUseNodePriority)
      recorder().violate("launches of a graph have the priority of its stream");
    const auto found = recorder().graphs.find(static_cast<const void*>(graph));
    if (found == recorder().graphs.end()) return cudaErrorInvalidValue;
    auto made = std::make_unique<CudaGraph>(CudaGraph{(*found)->gpu, true, (*found)->work});
    *executable = reinterpret_cast<cudaGraphExec_t>(made.get());
    recorder().graphs.insert(std::move(made));
    return cudaSuccess;
  });
}

cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t stream) {
  return recorder().call<cudaError_t>("cudaGraphUpload", kInSteps | kInCaptures, [&] {
    return recorder().stream_of(stream, "cudaGraphUpload") ? cudaSuccess
                                                           : cudaErrorInvalidResourceHandle;
  });
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t handle) {
  return recorder().call<cudaError_t>("cudaGraphLaunch", kInCaptures, [&] {
    Stream* const stream = recorder().stream_of(handle, "cudaGraphLaunch");
    const auto found = recorder().graphs.find(static_cast<const void*>(graph));
    if (!stream || found == recorder().graphs.end() || !(*found)->executable)
      return cudaErrorInvalidResourceHandle;
    if ((*found)->gpu != stream->gpu) recorder().violate("a segment of another GPU");
    recorder().enqueue(*stream,
                       {"cudaGraphLaunch",
                        [&] {
                          for (const Work& work : (*found)->work)
                            if (work.act) work.act();
                        }},
                       {.name = "cudaGraphLaunch", .detail = cat((*found)->work.size(), " works")});
    return cudaSuccess;
  });
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  return recorder().call<cudaError_t>("cudaGraphDestroy", kInSteps | kFrees, [&] {
    const auto found = recorder().graphs.find(static_cast<const void*>(graph));
    if (found == recorder().graphs.end()) return cudaErrorInvalidValue;
    recorder().graphs.erase(found);
    return cudaSuccess;
  });
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) {
  return recorder().call<cudaError_t>("cudaGraphExecDestroy", kInSteps | kFrees, [&] {
    const auto found = recorder().graphs.find(static_cast<const void*>(graph));
    if (found == recorder().graphs.end()) return cudaErrorInvalidValue;
    recorder().graphs.erase(found);
    return cudaSuccess;
  });
}

}  // extern "C"
