#include <algorithm>

#include "belfry/framework/cuda/launch.h"
#include "belfry/framework/cuda/pack.h"
#include "belfry/framework/cuda/tree_order.h"
#include "belfry/framework/cuda/tree_sum.h"
#include "belfry/framework/kernels/half_bits.h"

namespace belfry::cuda {
namespace {

// Elements of 16 bits, which are summed and divided in f32 and rounded once.
struct F16 {
  std::uint16_t bits;
};
struct BF16 {
  std::uint16_t bits;
};

// The type in which sums are made, and how elements get there and back.
template <class T>
struct Sums {
  using Type = T;
  BELFRY_HD static T widen(T x) { return x; }
  BELFRY_HD static T narrow(T x) { return x; }
};
template <>
struct Sums<F16> {
  using Type = float;
  BELFRY_HD static float widen(F16 x) { return kernels::widen_f16(x.bits); }
  BELFRY_HD static F16 narrow(float x) { return {kernels::narrow_f16(x)}; }
};
template <>
struct Sums<BF16> {
  using Type = float;
  BELFRY_HD static float widen(BF16 x) { return kernels::widen_bf16(x.bits); }
  BELFRY_HD static BF16 narrow(float x) { return {kernels::narrow_bf16(x)}; }
};

template <class T>
BELFRY_HD T add(T a, T b) {
  if constexpr (std::is_floating_point_v<T>)
    return a + b;
  else if constexpr (sizeof(T) < sizeof(int))
    return static_cast<T>(a + b);
  else
    return static_cast<T>(static_cast<std::make_unsigned_t<T>>(a) +
                          static_cast<std::make_unsigned_t<T>>(b));
}

using Groups = TreeOrder<8, 80>;

constexpr std::size_t kPointers = 352, kTensors = 20;  // of a launch: below 4 KiB with all else

// Types that gradients have: others are summed element by element.
template <class T>
inline constexpr bool kPacked = std::is_same_v<typename Sums<T>::Type, float> ||
                                std::is_same_v<T, double> || std::is_same_v<T, std::int32_t>;

template <class T>
struct SumKernel {
  using Shared = Nothing;
  using Sum = typename Sums<T>::Type;

  // Elements [begin, end) of a tensor, by blocks first_block and so on.
  struct Tensor {
    std::int64_t begin, end, first_block;
    int first_pointer, outputs;  // the inputs' pointers come first
    bool packed;
  };

  Groups groups;
  std::uint32_t additions[Groups::kFew + 1];  // those of TreeOrder<1, 8>, of a term in four bits
  int towers, tensors = 0;
  int divisor;  // 1: none
  Tensor tensor[kTensors];
  void* pointer[kPointers];

  template <int W>
  struct Row {
    Sum at[W];
  };

  // W elements of an input.
  template <int W>
  BELFRY_HD static Row<W> load(const void* from, std::int64_t i) {
    Row<W> row;
    if constexpr (W == 1) {
      row.at[0] = Sums<T>::widen(static_cast<const T*>(from)[i]);
    } else {
      const auto pack = *reinterpret_cast<const Pack<T>*>(static_cast<const T*>(from) + i);
      for (int j = 0; j < W; ++j) row.at[j] = Sums<T>::widen(pack.at[j]);
    }
    return row;
  }

  template <int W>
  BELFRY_HD static Row<W> plus(const Row<W>& a, const Row<W>& b) {
    Row<W> row;
    for (int j = 0; j < W; ++j) row.at[j] = add(a.at[j], b.at[j]);
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

  // In registers for packs; one by one, through a stack, for single elements, which are few.
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
    Row<W> stack[Groups::kDepth];
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
  BELFRY_HD void run(const Tensor& t, std::int64_t i) const {
    void* const* const from = pointer + t.first_pointer;
    Row<W> sum = all<W>(from, i);
    if constexpr (std::is_floating_point_v<Sum>)
      if (divisor > 1)
        for (int j = 0; j < W; ++j) sum.at[j] /= static_cast<Sum>(divisor);
    for (int k = 0; k < t.outputs; ++k) {
      T* const to = static_cast<T*>(from[towers + k]) + i;
      if constexpr (W == 1) {
        *to = Sums<T>::narrow(sum.at[0]);
      } else {
        Pack<T> pack;
        for (int j = 0; j < W; ++j) pack.at[j] = Sums<T>::narrow(sum.at[j]);
        *reinterpret_cast<Pack<T>*>(to) = pack;
      }
    }
  }

  BELFRY_HD void operator()(const Block& block, Shared&) const {
    int at = 0;
    while (at + 1 < tensors && tensor[at + 1].first_block <= block.index) ++at;
    const Tensor& t = tensor[at];
    block.each([&](int thread) {
      constexpr int kSize = Pack<T>::kSize;
      const std::int64_t first =
          t.begin + ((block.index - t.first_block) * block.threads + thread) * kSize;
      if constexpr (kPacked<T>)
        if (t.packed && first + kSize <= t.end) return run<kSize>(t, first);
      for (std::int64_t i = first; i < first + kSize && i < t.end; ++i) run<1>(t, i);
    });
  }
};

// Fills the parameter of one launch after another.
template <class T>
class Launches {
 public:
  Launches(Queue& queue, std::size_t towers, int divisor) : queue_(queue) {
    kernel_.groups.plan(towers);
    for (std::size_t n = 1; n <= Groups::kFew; ++n) {
      TreeOrder<1, Groups::kFew> order;
      order.plan(n);
      for (std::size_t k = 0; k < n; ++k)
        kernel_.additions[n] |= std::uint32_t{order.additions[k]} << 4 * k;
    }
    kernel_.towers = static_cast<int>(towers);
    kernel_.divisor = divisor;
  }

  void add(std::span<const void* const> inputs, std::span<void* const> outputs, std::int64_t begin,
           std::int64_t end) {
    if (kernel_.tensors == kTensors || pointers_ + inputs.size() + outputs.size() > kPointers)
      flush();
    typename SumKernel<T>::Tensor& t = kernel_.tensor[kernel_.tensors++];
    t = {begin, end, grid_.blocks, static_cast<int>(pointers_), 0, begin % Pack<T>::kSize == 0};
    for (const void* input : inputs) point(t, const_cast<void*>(input));
    for (std::size_t k = 0; k < outputs.size(); ++k) {
      if (std::find(outputs.begin(), outputs.begin() + k, outputs[k]) != outputs.begin() + k)
        continue;
      point(t, outputs[k]);
      ++t.outputs;
    }
    grid_.blocks += grid_of_packs<T>(end - begin).blocks;
  }

  void flush() {
    launch(queue_, kernel_, grid_);
    kernel_.tensors = 0;
    pointers_ = 0;
    grid_.blocks = 0;
  }

 private:
  void point(typename SumKernel<T>::Tensor& t, void* p) {
    kernel_.pointer[pointers_++] = p;
    t.packed = t.packed && on_16_bytes(p);
  }

  Queue& queue_;
  SumKernel<T> kernel_{};
  Grid grid_{.blocks = 0};
  std::size_t pointers_ = 0;
};

template <class F>
void visit_summed(DType dtype, const F& f) {
  switch (dtype) {
    case DType::kF16: return f(F16{});
    case DType::kBF16: return f(BF16{});
    default: return visit_any(dtype, f);
  }
}

}  // namespace

TreeSum::TreeSum(DType dtype, std::size_t towers, std::size_t outputs, int divisor)
    : dtype_(dtype), towers_(towers), outputs_(outputs), divisor_(divisor) {
  require(towers + outputs <= kPointers, "a sum of ", towers, " tensors on a GPU: at most ",
          kPointers - outputs, " are possible");
}

void TreeSum::operator()(const Pointers& p, Queue& queue) const {
  visit_summed(dtype_, [&]<class T>(T) {
    Launches<T> launches(queue, towers_, divisor_);
    tensors_.for_each({p.begin(), p.end()},
                      [&](std::size_t b, std::int64_t begin, std::int64_t end) {
                        launches.add(p.all_inputs().subspan(b * towers_, towers_),
                                     p.all_outputs().subspan(b * outputs_, outputs_), begin, end);
                      });
    launches.flush();
  });
}

void divide(Queue& queue, DType dtype, int divisor, std::span<void* const> tensors,
            std::span<const std::int64_t> elements) {
  visit_summed(dtype, [&]<class T>(T) {
    Launches<T> launches(queue, 1, divisor);
    for (std::size_t b = 0; b < tensors.size(); ++b)
      if (elements[b] > 0) launches.add({&tensors[b], 1}, {&tensors[b], 1}, 0, elements[b]);
    launches.flush();
  });
}

}  // namespace belfry::cuda
