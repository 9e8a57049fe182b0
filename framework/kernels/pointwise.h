// The loops of pointwise ops. A functor says what happens to one element; the loop compiles it for
// every instruction set. An element's result depends only on its inputs, never on its index, the
// range or the vector width.
//
//   struct Relu {
//     template <class T>
//     BELFRY_HD T operator()(T x) const { return x <= T(0) ? T(0) : x; }  // NaN stays NaN
//   };
//   kernels::map(Relu{}, begin, end, y, x);
//
// Every loop computes output elements [begin, end); pointers are to element 0 of whole tensors. An
// output may be one of its inputs (in place) where that input has the output's shape.
#pragma once
#include <cstdint>

#include "belfry/framework/kernels/broadcast.h"
#include "belfry/framework/kernels/simd.h"

namespace belfry::kernels {

// y[i] = f(x[i]...), for any number of inputs of the output's shape.
template <class F, class Y, class... X>
BELFRY_KERNEL void map(F f, std::int64_t begin, std::int64_t end, Y* y, const X*... x) {
  BELFRY_INDEPENDENT
  for (std::int64_t i = begin; i < end; ++i) y[i] = f(x[i]...);
}

// f with its arguments exchanged.
template <class F>
struct Flipped {
  F f;
  template <class A, class B>
  BELFRY_HD auto operator()(A a, B b) const {
    return f(b, a);
  }
};

// y[i] = f(a[i], b[i % period]): b is a row of the output. Short rows are repeated in a buffer
// first, so that the vector loop does not end after a few elements.
template <class F, class Y, class A, class B>
BELFRY_HD void map_row(F f, std::int64_t begin, std::int64_t end, Y* y, const A* a, const B* b,
                       std::int64_t period) {
  constexpr std::int64_t kBuffer = 512;
  std::int64_t phase = begin % period;
  B buffer[kBuffer];
  std::int64_t step = period;
  if (period <= kBuffer / 4 && end - begin > period) {
    step = kBuffer - kBuffer % period;
    for (std::int64_t j = 0; j < step; ++j) {
      buffer[j] = b[phase];
      phase = phase + 1 == period ? 0 : phase + 1;
    }
    b = buffer;
    phase = 0;
  }
  for (std::int64_t i = begin; i < end;) {
    const std::int64_t count = step - phase < end - i ? step - phase : end - i;
    const B* row = b + phase;
    BELFRY_INDEPENDENT
    for (std::int64_t j = 0; j < count; ++j) y[i + j] = f(a[i + j], row[j]);
    i += count;
    phase = 0;
  }
}

// y[i] = f(a[..], b[..]) where `broadcast` says how a and b line up with y, of any rank.
template <class F, class Y, class A, class B>
BELFRY_KERNEL void map_broadcast(F f, const Broadcast& broadcast, std::int64_t begin,
                                 std::int64_t end, Y* y, const A* a, const B* b) {
  const std::int64_t inner = broadcast.inner;
  if (broadcast.kind == Broadcast::Kind::kRowRight) {
    return map_row(f, begin, end, y, a, b, inner);
  }
  if (broadcast.kind == Broadcast::Kind::kRowLeft) {
    return map_row(Flipped<F>{f}, begin, end, y, b, a, inner);
  }
  for (std::int64_t i = begin; i < end;) {
    const std::int64_t row = i / inner;
    const std::int64_t column = i - row * inner;
    const std::int64_t count = inner - column < end - i ? inner - column : end - i;
    const Broadcast::Offsets at = broadcast.offsets(row);
    Y* to = y + i;
    const A* left = a + at.a + (broadcast.a_runs ? column : 0);
    const B* right = b + at.b + (broadcast.b_runs ? column : 0);
    if (!broadcast.b_runs) {
      const B value = *right;
      BELFRY_INDEPENDENT
      for (std::int64_t j = 0; j < count; ++j) to[j] = f(left[j], value);
    } else if (!broadcast.a_runs) {
      const A value = *left;
      BELFRY_INDEPENDENT
      for (std::int64_t j = 0; j < count; ++j) to[j] = f(value, right[j]);
    } else {
      BELFRY_INDEPENDENT
      for (std::int64_t j = 0; j < count; ++j) to[j] = f(left[j], right[j]);
    }
    i += count;
  }
}

}  // namespace belfry::kernels
