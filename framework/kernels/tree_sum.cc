#include <algorithm>
#include <cstring>
#include <type_traits>

#include "belfry/framework/kernels/half.h"
#include "belfry/framework/kernels/reduce.h"
#include "belfry/framework/kernels/simd.h"

namespace belfry::kernels {
namespace {

// Sums of up to this many inputs stay in registers; larger sums are made of these.
constexpr std::size_t kFew = 8;
// Elements of a row that is summed and reused while it is in cache. In 16 bits, every input has a
// row of f32 there.
constexpr std::int64_t kRow = 1024, kHalfRow = 512;

using Inputs = std::span<const void* const>;
using ResultPointers = std::span<void* const>;

template <class T>
BELFRY_HD T add(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    using Wrapping = std::make_unsigned_t<T>;
    return static_cast<T>(static_cast<Wrapping>(a) + static_cast<Wrapping>(b));
  } else {
    return a + b;
  }
}

template <bool mean, class T>
BELFRY_HD T finish(T sum, [[maybe_unused]] T divisor) {
  if constexpr (mean)
    return sum / divisor;
  else
    return sum;
}

template <int n, class T>
BELFRY_HD T tree(const T* const* inputs, std::int64_t i) {
  if constexpr (n == 1) {
    return inputs[0][i];
  } else {
    constexpr int kLeft = (n + 1) / 2;
    return add(tree<kLeft>(inputs, i), tree<n - kLeft>(inputs + kLeft, i));
  }
}

// Equally many elements of each input and output.
struct Part {
  const void* const* inputs;
  std::size_t count;  // of the inputs
  std::int64_t from;  // their first element
  void* const* outputs;
  std::int64_t to;  // their first element
  std::int64_t size;
};

// Sums n inputs into m outputs. An output may be one of the inputs.
template <bool mean, int n, int m, class T>
BELFRY_HD void sum_unrolled(const Part& part, T divisor) {
  const T* x[n];
  T* y[m];
  for (int k = 0; k < n; ++k) x[k] = static_cast<const T*>(part.inputs[k]) + part.from;
  for (int k = 0; k < m; ++k) y[k] = static_cast<T*>(part.outputs[k]) + part.to;
  const std::int64_t size = part.size;
  BELFRY_INDEPENDENT
  for (std::int64_t i = 0; i < size; ++i) {
    const T sum = finish<mean>(tree<n>(x, i), divisor);
    for (int k = 0; k < m; ++k) y[k][i] = sum;
  }
}

template <bool mean, int n, class T>
BELFRY_HD void sum_some(const Part& part, bool to_all, T divisor) {
  if (to_all)
    sum_unrolled<mean, n, n>(part, divisor);
  else
    sum_unrolled<mean, n, 1>(part, divisor);
}

// Sums up to kFew inputs in registers, into the first output, or into as many outputs as inputs.
template <bool mean, class T>
BELFRY_KERNEL void sum_few(const Part& part, bool to_all, T divisor) {
  switch (part.count) {
    case 1: return sum_some<mean, 1>(part, to_all, divisor);
    case 2: return sum_some<mean, 2>(part, to_all, divisor);
    case 3: return sum_some<mean, 3>(part, to_all, divisor);
    case 4: return sum_some<mean, 4>(part, to_all, divisor);
    case 5: return sum_some<mean, 5>(part, to_all, divisor);
    case 6: return sum_some<mean, 6>(part, to_all, divisor);
    case 7: return sum_some<mean, 7>(part, to_all, divisor);
    case 8: return sum_some<mean, 8>(part, to_all, divisor);
    default: break;
  }
}

template <class T>
BELFRY_KERNEL void add_rows(const T* left, const T* right, T* out, std::int64_t size) {
  BELFRY_INDEPENDENT
  for (std::int64_t i = 0; i < size; ++i) out[i] = add(left[i], right[i]);
}

template <class T>
BELFRY_KERNEL void divide(T* x, std::int64_t size, T divisor) {
  for (std::int64_t i = 0; i < size; ++i) x[i] /= divisor;
}

// few(inputs, row) sums up to kFew inputs. `row` may be one of the inputs, so it is written last.
template <class T, class Few>
void sum_row(Inputs inputs, T* row, std::int64_t size, const Few& few) {
  if (inputs.size() <= kFew) return few(inputs, row);
  T left[kRow], right[kRow];
  const std::size_t middle = (inputs.size() + 1) / 2;
  sum_row(inputs.first(middle), left, size, few);
  sum_row(inputs.subspan(middle), right, size, few);
  add_rows(left, right, row, size);
}

void copy_to_others(ResultPointers outputs, std::int64_t from, std::int64_t to) {
  const std::byte* const first = static_cast<std::byte*>(outputs[0]);
  for (void* const output : outputs.subspan(1))
    if (output != first)
      std::memcpy(static_cast<std::byte*>(output) + from, first + from,
                  static_cast<std::size_t>(to - from));
}

// Whether the outputs are `count` different tensors.
bool distinct(ResultPointers outputs, std::size_t count) {
  if (outputs.size() != count) return false;
  for (std::size_t i = 1; i < count; ++i)
    if (std::ranges::find(outputs.first(i), outputs[i]) != outputs.begin() + i) return false;
  return true;
}

template <bool mean, class T>
void sum_tensors(Inputs inputs, ResultPointers outputs, T divisor, std::int64_t begin,
                 std::int64_t end) {
  // Equal results of one memory space are one tensor.
  if (std::ranges::all_of(outputs, [&](void* output) { return output == outputs[0]; }))
    outputs = outputs.first(1);
  if (inputs.size() <= kFew && (outputs.size() == 1 || distinct(outputs, inputs.size()))) {
    const Part all{inputs.data(), inputs.size(), begin, outputs.data(), begin, end - begin};
    return sum_few<mean>(all, outputs.size() > 1, divisor);
  }
  constexpr auto kUnit = static_cast<std::int64_t>(sizeof(T));
  for (std::int64_t from = begin; from < end; from += kRow) {
    const std::int64_t size = std::min(kRow, end - from);
    T* const first = static_cast<T*>(outputs[0]) + from;
    sum_row(inputs, first, size, [&](Inputs some, T* row) {
      void* const rows[] = {row};
      sum_few<false>(Part{some.data(), some.size(), from, rows, 0, size}, false, divisor);
    });
    if constexpr (mean) divide(first, size, divisor);
    copy_to_others(outputs, from * kUnit, (from + size) * kUnit);
  }
}

}  // namespace

template <class T>
void tree_sum(Inputs inputs, ResultPointers outputs, std::int64_t begin, std::int64_t end) {
  sum_tensors<false, T>(inputs, outputs, 1, begin, end);
}

template <class T>
void tree_mean(Inputs inputs, ResultPointers outputs, T divisor, std::int64_t begin,
               std::int64_t end) {
  sum_tensors<true>(inputs, outputs, divisor, begin, end);
}

template void tree_sum<float>(Inputs, ResultPointers, std::int64_t, std::int64_t);
template void tree_sum<double>(Inputs, ResultPointers, std::int64_t, std::int64_t);
template void tree_sum<std::int32_t>(Inputs, ResultPointers, std::int64_t, std::int64_t);
template void tree_mean<float>(Inputs, ResultPointers, float, std::int64_t, std::int64_t);
template void tree_mean<double>(Inputs, ResultPointers, double, std::int64_t, std::int64_t);

void tree_sum_16(const HalfConversion& convert, Inputs inputs, ResultPointers outputs,
                 float divisor, std::int64_t begin, std::int64_t end) {
  for (std::int64_t from = begin; from < end; from += kHalfRow) {
    const std::int64_t size = std::min(kHalfRow, end - from);
    float sums[kHalfRow];
    sum_row(inputs, sums, size, [&](Inputs some, float* row) {
      float wide[kFew][kHalfRow];
      const void* terms[kFew];
      for (std::size_t k = 0; k < some.size(); ++k) {
        convert.widen(static_cast<const std::uint16_t*>(some[k]) + from, wide[k], size);
        terms[k] = wide[k];
      }
      void* const rows[] = {row};
      sum_few<false>(Part{terms, some.size(), 0, rows, 0, size}, false, 1.0f);
    });
    if (divisor != 1) divide(sums, size, divisor);
    convert.narrow(sums, static_cast<std::uint16_t*>(outputs[0]) + from, size);
    copy_to_others(outputs, from * 2, (from + size) * 2);
  }
}

}  // namespace belfry::kernels
