// The kernel of canonical K-way sums in registers, with the bits of kernels::tree_sum, tree_mean
// and tree_sum_16. A Sink takes the sums. For sources that nvcc compiles.
//
//   struct Sink {
//     static constexpr std::size_t kTensors, kPointers;  // of a launch
//     struct Shared { ... };
//     // Each thread of a block calls it before the sums of tensor `at`, unless Shared is Nothing.
//     BELFRY_HD void prepare(int at, int thread, Shared& shared) const;
//     // `sum`: elements i .. i + W - 1 of tensor `at`; `to`: its pointers besides its inputs.
//     template <int W>
//     BELFRY_HD void take(int at, std::int64_t i, const T (&sum)[W], void* const* to,
//                         const Shared& shared) const;
//   };
#pragma once
#include <algorithm>
#include <cstring>
#include <span>

#include "belfry/framework/cuda/kernels/launch.h"
#include "belfry/framework/cuda/kernels/pack.h"
#include "belfry/framework/cuda/kernels/tree_order.h"
#include "belfry/framework/kernels/half_bits.h"

namespace belfry::cuda {

// Elements of 16 bits are summed and divided in f32 and rounded once.
using kernels::BF16;
using kernels::F16;
using kernels::Stored;

// Integers wrap.
template <class T>
BELFRY_HD T sum_of(T a, T b) {
  if constexpr (std::is_floating_point_v<T>)
    return a + b;
  else if constexpr (sizeof(T) < sizeof(int))
    return static_cast<T>(a + b);
  else
    return static_cast<T>(static_cast<std::make_unsigned_t<T>>(a) +
                          static_cast<std::make_unsigned_t<T>>(b));
}

using SumGroups = TreeOrder<8, 80>;

// Types of gradients, which are summed in packs. Other types are summed element by element.
template <class T>
inline constexpr bool kPacked = std::is_same_v<typename Stored<T>::Type, float> ||
                                std::is_same_v<T, double> || std::is_same_v<T, std::int32_t>;

// Stores W elements: one, or 16 bytes by one instruction. As an assignment the compiler may store
// 16 bytes element by element.
template <class T, int W>
BELFRY_HD void store(const T (&from)[W], T* to) {
  if constexpr (W == 1) {
    *to = from[0];
  } else {
    static_assert(sizeof(from) == 16);
#if defined(__CUDA_ARCH__)
    uint4 bits;
    std::memcpy(&bits, from, sizeof(bits));
    __stwb(reinterpret_cast<uint4*>(to), bits);
#else
    std::memcpy(to, from, sizeof(from));
#endif
  }
}

template <class T, class Sink>
struct SumKernel {
  using Shared = typename Sink::Shared;
  using Sum = typename Stored<T>::Type;

  // Elements [begin, end) of a tensor, summed by the blocks from first_block on.
  struct Tensor {
    std::int64_t begin, end, first_block;
    int first_pointer;  // of its inputs; the sink's follow
    bool packed;
  };

  SumGroups groups;
  std::uint32_t additions[SumGroups::kFew + 1];  // TreeOrder<1, 8>::additions, four bits a term
  int towers, tensors = 0;
  int divisor;  // 1: none
  Tensor tensor[Sink::kTensors];
  void* pointer[Sink::kPointers];
  Sink sink;

  template <int W>
  struct Row {
    Sum at[W];
  };

  // W elements of an input.
  template <int W>
  BELFRY_HD static Row<W> load(const void* from, std::int64_t i) {
    Row<W> row;
    if constexpr (W == 1) {
      row.at[0] = Stored<T>::widen(static_cast<const T*>(from)[i]);
    } else {
      const auto pack = *reinterpret_cast<const Pack<T>*>(static_cast<const T*>(from) + i);
      for (int j = 0; j < W; ++j) row.at[j] = Stored<T>::widen(pack.at[j]);
    }
    return row;
  }

  template <int W>
  BELFRY_HD static Row<W> plus(const Row<W>& a, const Row<W>& b) {
    Row<W> row;
    for (int j = 0; j < W; ++j) row.at[j] = sum_of(a.at[j], b.at[j]);
    return row;
  }

  template <int n, int W>
  BELFRY_HD static Row<W> tree(void* const* from, std::int64_t i) {
    if constexpr (n == 1) {
      return load<W>(from[0], i);
    } else {
      constexpr int kLeft = (n + 1) / 2;
      const Row<W> left = tree<kLeft, W>(from, i);
      return plus(left, tree<n - kLeft, W>(from + kLeft, i));
    }
  }

  // The sum of n inputs: in registers for packs, through a stack for single elements, which are
  // few.
  template <int W>
  BELFRY_HD Row<W> few(int n, void* const* from, std::int64_t i) const {
    if constexpr (W == 1) {
      Row<1> stack[4];
      int depth = 0;
      for (int k = 0; k < n; ++k) {
        Row<1> sum = load<1>(from[k], i);
        for (std::uint32_t more = additions[n] >> 4 * k & 15; more > 0; --more)
          sum = plus(stack[--depth], sum);
        stack[depth++] = sum;
      }
      return stack[0];
    } else {
      switch (n) {
        case 1: return tree<1, W>(from, i);
        case 2: return tree<2, W>(from, i);
        case 3: return tree<3, W>(from, i);
        case 4: return tree<4, W>(from, i);
        case 5: return tree<5, W>(from, i);
        case 6: return tree<6, W>(from, i);
        case 7: return tree<7, W>(from, i);
        default: return tree<8, W>(from, i);
      }
    }
  }

  template <int W>
  BELFRY_HD Row<W> all(void* const* from, std::int64_t i) const {
    Row<W> sum = few<W>(groups.size[0], from, i);
    if (groups.count == 1) return sum;
    Row<W> stack[SumGroups::kDepth];
    stack[0] = sum;
    int depth = 1;
    for (int g = 1; g < groups.count; ++g) {
      from += groups.size[g - 1];
      sum = few<W>(groups.size[g], from, i);
      for (int k = 0; k < groups.additions[g]; ++k) sum = plus(stack[--depth], sum);
      stack[depth++] = sum;
    }
    return sum;
  }

  template <int W>
  BELFRY_HD void run(int at, std::int64_t i, const Shared& shared) const {
    void* const* const from = pointer + tensor[at].first_pointer;
    Row<W> sum = all<W>(from, i);
    if constexpr (std::is_floating_point_v<Sum>)
      if (divisor > 1)
        for (int j = 0; j < W; ++j) sum.at[j] /= static_cast<Sum>(divisor);
    T result[W];
    for (int j = 0; j < W; ++j) result[j] = Stored<T>::narrow(sum.at[j]);
    sink.take(at, i, result, from + towers, shared);
  }

  BELFRY_HD void operator()(const Block& block, Shared& shared) const {
    int at = 0;
    while (at + 1 < tensors && tensor[at + 1].first_block <= block.index) ++at;
    const Tensor& t = tensor[at];
    if constexpr (!std::is_same_v<Shared, Nothing>)
      block.each([&](int thread) { sink.prepare(at, thread, shared); });
    block.each([&](int thread) {
      constexpr int kSize = Pack<T>::kSize;
      const std::int64_t first =
          t.begin + ((block.index - t.first_block) * block.threads + thread) * kSize;
      if constexpr (kPacked<T>)
        if (t.packed && first + kSize <= t.end) return run<kSize>(at, first, shared);
      for (std::int64_t i = first; i < first + kSize && i < t.end; ++i) run<1>(at, i, shared);
    });
  }
};

// Fills the parameter of one launch after another.
template <class T, class Sink>
class SumLaunches {
 public:
  using Kernel = SumKernel<T, Sink>;

  SumLaunches(KernelQueue& queue, std::size_t towers, int divisor) : queue_(queue) {
    kernel_.groups.plan(towers);
    for (std::size_t n = 1; n <= SumGroups::kFew; ++n) {
      TreeOrder<1, SumGroups::kFew> order;
      order.plan(n);
      for (std::size_t k = 0; k < n; ++k)
        kernel_.additions[n] |= std::uint32_t{order.additions[k]} << 4 * k;
    }
    kernel_.towers = static_cast<int>(towers);
    kernel_.divisor = divisor;
  }

  // Adds the sum of elements [begin, end) of `inputs` to a launch that also has room for `pointers`
  // of the sink. Returns the tensor's number in the launch.
  int add(std::span<const void* const> inputs, std::size_t pointers, std::int64_t begin,
          std::int64_t end) {
    if (kernel_.tensors == static_cast<int>(Sink::kTensors) ||
        pointers_ + inputs.size() + pointers > Sink::kPointers)
      flush();
    const int at = kernel_.tensors++;
    kernel_.tensor[at] = {begin, end, grid_.blocks, static_cast<int>(pointers_),
                          begin % Pack<T>::kSize == 0};
    for (const void* input : inputs) point(const_cast<void*>(input));
    grid_.blocks += grid_of_packs<T>(end - begin).blocks;
    return at;
  }
  // Adds a pointer of the sink for the tensor that was added last.
  void point(void* p) {
    typename Kernel::Tensor& last = kernel_.tensor[kernel_.tensors - 1];
    last.packed = last.packed && on_16_bytes(p);
    kernel_.pointer[pointers_++] = p;
  }
  Sink& sink() { return kernel_.sink; }

  void flush() {
    launch(queue_, kernel_, grid_);
    kernel_.tensors = 0;
    kernel_.sink = {};
    pointers_ = 0;
    grid_.blocks = 0;
  }

 private:
  KernelQueue& queue_;
  Kernel kernel_{};
  Grid grid_{.blocks = 0};
  std::size_t pointers_ = 0;
};

}  // namespace belfry::cuda
