// The layer over oneDNN (written for 2.6): one CPU engine, one stream per thread. A primitive runs
// on one thread, and its scratch memory is the plan's. Only kernels include this.
#pragma once
#include <string>

namespace belfry {

// The version of the library that runs, e.g. "2.6.0"; "" in builds without it.
std::string onednn_version();

// The instructions that it uses, of those that the processor has: "AVX-512", "AVX2", "AVX" or
// "SSE4.1". Environment variables limit them (ONEDNN_MAX_CPU_ISA, DNNL_MAX_CPU_ISA), or make it
// prefer shorter vectors: "AVX-512 in 256 bits". "" in builds without it.
std::string onednn_instructions();

// True while the calling thread is inside a call of oneDNN, which may allocate; always false in
// builds without it.
bool inside_onednn();

}  // namespace belfry

#if BELFRY_ONEDNN
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <new>

#include <dnnl.hpp>

#include "belfry/framework/graph/kernel.h"

namespace belfry {

// Surrounds every call of the library: limits OpenMP to one thread on this thread, then restores
// the limit.
class OneDnnCall {
 public:
  OneDnnCall();
  ~OneDnnCall();
  OneDnnCall(const OneDnnCall&) = delete;
  OneDnnCall& operator=(const OneDnnCall&) = delete;

 private:
  int threads_;
};

namespace onednn {

const dnnl::engine& engine();
dnnl::stream& stream();  // the calling thread's

// Attributes of every primitive: scratch memory is given at run time, and f32 is computed in f32,
// whatever the environment allows (ONEDNN_DEFAULT_FPMATH_MODE).
dnnl::primitive_attr user_scratchpad();

// A dense f32 tensor in the given layout; `any` lets the primitive choose.
dnnl::memory::desc dense(dnnl::memory::dims dims, dnnl::memory::format_tag tag);

// Logs the implementation that oneDNN chose. Warns, once per op and shapes, if it is oneDNN's plain
// reference code, which is 10-100 times slower.
void report(const KernelPlan& plan, const dnnl::primitive_desc_base& chosen);

// Memory for the code of a primitive and of products: more than twice what any of ours takes.
// Without memory for its code the library writes to a null pointer, so we call it only if there is
// this much.
inline constexpr std::size_t kCodeRoom = std::size_t{64} << 20;

// Calls create() as a call of the library, when there is room for code. Throws OutOfMemory naming
// the node if there is no room, InternalError naming it if the library refuses for another reason.
void check_room(const KernelPlan& plan);
[[noreturn]] void refuse(const KernelPlan& plan, const dnnl::error& error);
[[noreturn]] void lack_memory(const KernelPlan& plan);
template <class Create>
auto guarded(const KernelPlan& plan, const Create& create) {
  OneDnnCall call;
  try {
    check_room(plan);
    return create();
  } catch (const dnnl::error& error) {
    refuse(plan, error);
  } catch (const std::bad_alloc&) {
    lack_memory(plan);
  }
}

// The library generates the code of all its matrix products when it first runs one; this generates
// it now. Call it inside guarded().
void make_code_of_products();

// Throws OutOfMemory or DeviceError naming the node unless a call in a run has succeeded.
void check_run(dnnl_status_t status, const std::string& node);

// A primitive and its arguments. Made while a kernel is prepared; a run only sets pointers. Several
// threads may run it at once, each with its own set of arguments; there are as many sets as threads
// ever ran at once.
class Primitive {
 public:
  struct Argument {
    int name;  // DNNL_ARG_...
    const void* data;
  };

  // run() gets exactly these `arguments`, in this order. Make it inside guarded(). Errors name
  // `node`.
  Primitive(std::string node, const dnnl::primitive& primitive,
            const dnnl::primitive_desc_base& description, std::initializer_list<int> arguments);

  // Bytes of scratch memory, a multiple of 64.
  std::int64_t scratch_bytes() const { return scratch_bytes_; }
  // Throws as check_run().
  void run(std::initializer_list<Argument> arguments, std::byte* scratch) const;

 private:
  struct Arguments;
  class Spare;
  class Taken;

  std::string node_;
  dnnl::primitive primitive_;
  std::int64_t scratch_bytes_;
  std::shared_ptr<Spare> spare_;
};

// Copies a tensor from one layout to another.
Primitive reorder(const std::string& node, const dnnl::memory::desc& from,
                  const dnnl::memory::desc& to);

inline std::int64_t round_to_64(std::size_t bytes) {
  return static_cast<std::int64_t>((bytes + 63) / 64 * 64);
}

}  // namespace onednn
}  // namespace belfry
#endif
