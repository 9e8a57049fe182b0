// The layer over oneDNN (written for 2.6): one CPU engine, one stream per thread, primitives whose
// scratch memory is the plan's and which run on one thread. Only kernels include this.
#pragma once

namespace belfry {

// True while the calling thread is inside a call of oneDNN, which may allocate; always false in
// builds without it.
bool inside_onednn();

}  // namespace belfry

#if BELFRY_ONEDNN
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <unordered_map>

#include <dnnl.hpp>

#include "belfry/framework/kernel.h"

namespace belfry {

// Around every call of the library: holds OpenMP to one thread on this thread, and restores its
// limit.
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

// Attributes of every primitive: scratch memory is given at run time.
dnnl::primitive_attr user_scratchpad();

// A dense f32 tensor in the given layout; `any` lets the primitive choose.
dnnl::memory::desc dense(dnnl::memory::dims dims, dnnl::memory::format_tag tag);

// Writes the implementation that oneDNN chose to the log, and warns, once per op and shapes, if it
// is its plain reference code, which is 10-100 times slower.
void report(const KernelPlan& plan, const dnnl::primitive_desc_base& chosen);

// Calls create() as a call of the library. Its exceptions become Internal errors naming the node.
[[noreturn]] void fail(const KernelPlan& plan, const dnnl::error& error);
template <class Create>
auto guarded(const KernelPlan& plan, const Create& create) {
  OneDnnCall call;
  try {
    return create();
  } catch (const dnnl::error& error) {
    fail(plan, error);
  }
}

// A primitive and its arguments. Made while a kernel is prepared; a run only sets pointers. One
// thread runs it at a time.
class Primitive {
 public:
  struct Argument {
    int name;  // DNNL_ARG_...
    const void* data;
  };

  // `arguments` are all that run() will be given. Make it inside guarded().
  Primitive(const dnnl::primitive& primitive, const dnnl::primitive_desc_base& description,
            std::initializer_list<int> arguments);

  // Bytes of scratch memory, a multiple of 64.
  std::int64_t scratch_bytes() const { return scratch_bytes_; }
  // Throws DeviceError if the library fails.
  void run(std::initializer_list<Argument> arguments, std::byte* scratch);

 private:
  dnnl::primitive primitive_;
  std::unordered_map<int, dnnl::memory> arguments_;
  std::int64_t scratch_bytes_;
};

// Copies a tensor from one layout to another.
Primitive reorder(const dnnl::memory::desc& from, const dnnl::memory::desc& to);

inline std::int64_t round_to_64(std::size_t bytes) {
  return static_cast<std::int64_t>((bytes + 63) / 64 * 64);
}

}  // namespace onednn
}  // namespace belfry
#endif
