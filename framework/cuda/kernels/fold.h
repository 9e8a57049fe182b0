// Folds by one block of a kernel; fold() has the bits of kernels/reduce.h.
#pragma once
#include "belfry/framework/cuda/kernels/block.h"
#include "belfry/framework/kernels/fold8.h"

namespace belfry::cuda {

// Adds a stream of values pairwise: after 2^k values, level k holds their result. The caller keeps
// the levels, at(level).
template <class Op, class At, class T>
BELFRY_HD void add_pairwise(Op op, std::uint32_t count, const At& at, T value) {
  int level = 0;
  for (; (count >> level & 1) != 0; ++level) value = op(at(level), value);
  at(level) = value;
}
template <class Op, class At, class T>
BELFRY_HD T pairwise_total(Op op, std::uint32_t count, const At& at, T neutral) {
  T total = neutral;
  for (int level = 0; level < 32; ++level)
    if ((count >> level & 1) != 0) total = op(at(level), total);
  return total;
}

// Calls add(to, from) for the first and the second half of `places`, for the halves of the first
// half, and so on: place 0 gets what all have. `places` is a power of two, and at most the block's
// threads.
template <class F>
BELFRY_HD void by_halves(const Block& block, int places, const F& add) {
  for (int half = places / 2; half > 0; half /= 2)
    block.each([&](int thread) {
      if (thread < half) add(thread, thread + half);
    });
}

inline constexpr int kFoldThreads = 128;      // of a block that folds
inline constexpr std::int64_t kChunk = 1024;  // terms of a step

template <class T>
struct FoldShared {
  T lanes[kFoldThreads], few[16], levels[32];
  T total;  // the result, once fold() has returned
};

// Folds value(i) for begin <= i < end; end - begin < 2^42.
template <class Op, class T, class Value>
BELFRY_HD void fold(const Block& block, FoldShared<T>& shared, Op op, std::int64_t begin,
                    std::int64_t end, const Value& value) {
  using kernels::fold8;
  const auto level = [&](int k) -> T& { return shared.levels[k]; };
  std::uint32_t chunks = 0;
  do {
    const std::int64_t first = begin + chunks * kChunk;
    block.each([&](int thread) {
      const std::int64_t from = first + thread / 16 * 128 + thread % 16;
      T x[8];
      for (int j = 0; j < 8; ++j)
        x[j] = from + j * 16 < end ? value(from + j * 16) : Op::template kNeutral<T>;
      shared.lanes[thread] = fold8(op, x[0], x[1], x[2], x[3], x[4], x[5], x[6], x[7]);
    });
    block.each([&](int thread) {
      if (thread >= 16) return;
      const T* x = shared.lanes + thread;
      shared.few[thread] = fold8(op, x[0], x[16], x[32], x[48], x[64], x[80], x[96], x[112]);
    });
    block.each([&](int thread) {
      if (thread > 0) return;
      const T* x = shared.few;
      const T even = fold8(op, x[0], x[2], x[4], x[6], x[8], x[10], x[12], x[14]);
      const T odd = fold8(op, x[1], x[3], x[5], x[7], x[9], x[11], x[13], x[15]);
      add_pairwise(op, chunks, level, op(even, odd));
    });
    ++chunks;
  } while (begin + chunks * kChunk < end);
  block.each([&](int thread) {
    if (thread == 0) shared.total = pairwise_total(op, chunks, level, Op::template kNeutral<T>);
  });
}

}  // namespace belfry::cuda
