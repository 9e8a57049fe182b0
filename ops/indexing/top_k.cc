#include "belfry/ops/indexing/top_k.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <type_traits>
#include <vector>

#include "belfry/framework/base/require.h"
#include "belfry/framework/graph/shards.h"
#include "belfry/framework/graph/stored_options.h"
#include "belfry/ops/gather.h"
#include "belfry/ops/indexing/ranking_impl.h"
#include "belfry/ops/kernels/axes.h"
#include "belfry/ops/kernels/pointwise_op.h"
#include "belfry/ops/reshape.h"

namespace belfry {
namespace {

constexpr char kPlaces[] = "its results are places, which are integers";

void require_numbers(const ShapeContext& c) {
  c.require(c.dtype() != DType::kU8 && c.dtype() != DType::kBool, "no order of ",
            name_of(c.dtype()), "; cast it");
}

OutputTypes arg_max_shape(const ShapeContext& c) {
  require_numbers(c);
  const Shape& x = c.input(0);
  const std::size_t axis = checked_axis(c, c.options<ArgMaxOptions>().axis, x.rank());
  c.require(x[axis] != 0, "axis ", axis, " of ", x, " has no elements");
  std::vector<std::int64_t> dims = x.dims();
  dims.erase(dims.begin() + static_cast<std::ptrdiff_t>(axis));
  return {{Shape(dims), DType::kI64}};
}

OutputTypes top_k_shape(const ShapeContext& c) {
  require_numbers(c);
  const Shape& x = c.input(0);
  const std::int64_t k = c.options<RankedOptions>().k;
  c.require(x.rank() >= 2, "takes rows [..., n], not ", x);
  c.require(k >= 0 && (x.back() == kUnknownSize || k <= x.back()), "k is ", k,
            ", but must be from 0 to the size of the last axis of ", x);
  std::vector<std::int64_t> dims = x.dims();
  dims.back() = k;
  return {{Shape(dims), DType::kI64}};
}

// The place of the first element in the order of a line: the first NaN, if there is one.
template <class T>
std::int64_t best_of_line(const T* x, const Lines& lines, const Ranking& order) {
  std::int64_t best = 0;
  T value = x[0];
  for (std::int64_t i = 1; i < lines.n && value == value; ++i) {
    const T next = x[i * lines.inner];
    if (order.smallest ? next >= value : next <= value) continue;  // not for NaN
    best = i;
    value = next;
  }
  return best;
}

// Whether one of `n` elements may come before `last`, to which all of them are later in the line.
template <class T>
BELFRY_KERNEL bool any_before(const T* x, std::int64_t n, T last, bool smallest) {
  int found = 0;
  if (smallest)
    for (std::int64_t i = 0; i < n; ++i) found |= x[i] >= last ? 0 : 1;
  else
    for (std::int64_t i = 0; i < n; ++i) found |= x[i] <= last ? 0 : 1;
  return found != 0;  // as it is with a NaN
}

// Puts the places of the first k elements into `places`. They are a heap, whose top is the last of
// them in the order. If k is small, few elements come before it, so whole blocks are passed over.
template <class T>
void few_of_line(const T* x, std::int64_t n, std::int64_t k, const Ranking& order,
                 std::int64_t* places) {
  const auto before = [&](std::int64_t i, std::int64_t j) {
    return order.before(x[i], i, x[j], j);
  };
  std::int64_t* const end = places + k;
  std::iota(places, end, 0);
  std::make_heap(places, end, before);
  constexpr std::int64_t kBlock = 64;
  for (std::int64_t block = k; k > 0 && block < n; block += kBlock) {
    const std::int64_t block_end = std::min(n, block + kBlock);
    if (!any_before(x + block, block_end - block, x[places[0]], order.smallest)) continue;
    for (std::int64_t i = block; i < block_end; ++i) {
      if (!before(i, places[0])) continue;
      std::pop_heap(places, end, before);
      end[-1] = i;
      std::push_heap(places, end, before);
    }
  }
  std::sort_heap(places, end, before);
}

// An element as a number: its value in the upper half, so that numbers have the order of the
// ranking, and its place in the lower one.
template <class T>
struct RankedElement {
  using Half = std::uint32_t;
  using Whole = std::uint64_t;
};
__extension__ using TwoWords = unsigned __int128;
template <class T>
requires(sizeof(T) == 8) struct RankedElement<T> {
  using Half = std::uint64_t;
  using Whole = TwoWords;
};

template <class T, class Whole = RankedElement<T>::Whole>
BELFRY_KERNEL void number_elements(const T* x, std::int64_t n, bool smallest, Whole* numbers) {
  using Half = RankedElement<T>::Half;
  constexpr int kBits = 8 * sizeof(Half);
  constexpr Half kSign = Half(1) << (kBits - 1);
  const Half flip = smallest ? Half(0) : static_cast<Half>(~Half(0));
  for (std::int64_t i = 0; i < n; ++i) {
    const T value = x[i] + T(0);  // makes 0 of -0
    Half bits;
    __builtin_memcpy(&bits, &value, sizeof bits);
    if constexpr (std::is_floating_point_v<T>) {
      bits = (bits & kSign) ? ~bits : bits | kSign;
      bits = value != value ? static_cast<Half>(~Half(0)) : bits;
    } else {
      bits ^= kSign;
    }
    numbers[i] = static_cast<Whole>(bits ^ flip) << kBits | static_cast<Whole>(i);
  }
}

// As few_of_line(), for any k. Sorts numbers, which needs no look at the elements.
template <class T>
void many_of_line(const T* x, std::int64_t n, std::int64_t k, const Ranking& order,
                  std::int64_t* places) {
  using Element = RankedElement<T>;
  std::vector<typename Element::Whole> numbers(static_cast<std::size_t>(n));
  number_elements(x, n, order.smallest, numbers.data());
  const auto end = numbers.begin() + k;
  if (k < n) std::nth_element(numbers.begin(), end, numbers.end());
  std::sort(numbers.begin(), end);
  std::transform(numbers.begin(), end, places, [](typename Element::Whole number) {
    return static_cast<std::int64_t>(static_cast<typename Element::Half>(number));
  });
}

template <class T>
void best_k_of_line(const T* x, std::int64_t n, std::int64_t k, const Ranking& order,
                    std::int64_t* places) {
  const bool many = k > n / 64 && n <= std::numeric_limits<std::uint32_t>::max();
  (many ? many_of_line<T> : few_of_line<T>)(x, n, k, order, places);
}

// Calls take(first element of a line, places) for every line of the rows of the output.
template <class Take>
KernelRun ranking_kernel(const KernelPlan& plan, Take take) {
  const RankedLines ranked(plan);
  const Shape& y = plan.output().shape;
  const std::int64_t row = y.rank() == 0 ? 1 : y.product(1, y.rank());
  const std::int64_t lines = ranked.k == 0 ? 0 : row / ranked.k;  // of a row
  return visit_numeric(plan.input(0).dtype, [&]<class T>(T) -> KernelRun {
    return [=](const KernelPointers& p) {
      for (std::int64_t line = p.begin() * lines; line < p.end() * lines; ++line)
        take(p.input<T>(0) + ranked.lines.first(line), ranked,
             p.output<std::int64_t>() + line * ranked.k);
    };
  });
}

KernelRun arg_max_cpu(KernelPlan& plan) {
  return ranking_kernel(plan, [](const auto* x, const RankedLines& ranked, std::int64_t* place) {
    *place = best_of_line(x, ranked.lines, ranked.order);
  });
}

KernelRun top_k_cpu(KernelPlan& plan) {
  return ranking_kernel(plan, [](const auto* x, const RankedLines& ranked, std::int64_t* places) {
    best_k_of_line(x, ranked.lines.n, ranked.k, ranked.order, places);
  });
}

// By sorting all places.
KernelRun ranking_reference(KernelPlan& plan) {
  return ranking_kernel(plan, [](const auto* x, const RankedLines& ranked, std::int64_t* places) {
    const auto& [lines, k, order] = ranked;
    std::vector<std::int64_t> all(static_cast<std::size_t>(lines.n));
    std::iota(all.begin(), all.end(), 0);
    std::ranges::sort(all, [&](std::int64_t i, std::int64_t j) {
      return order.before(x[i * lines.inner], i, x[j * lines.inner], j);
    });
    std::copy_n(all.begin(), k, places);
  });
}

Sharding arg_max_shards(const ShardContext& c) {
  return c.node.options<ArgMaxOptions>().axis == 0 ? Sharding() : row_shards(c, 1);
}

Output arg_extreme(const Op& op, Output x, int axis, At at) {
  const int rank = static_cast<int>(x.shape().rank());
  if (axis < 0 && axis >= -rank) axis += rank;
  return x.graph().add(op, {x}, at, NodeOptions(ArgMaxOptions{axis})).output();
}

}  // namespace

const Op kArgMax{.name = "ArgMax",
                 .inputs = 1,
                 .shape = arg_max_shape,
                 .no_gradient = kPlaces,
                 .split = WorkSplit::kRows,
                 .shards = arg_max_shards,
                 .cpu = arg_max_cpu,
                 .reference = ranking_reference};
const Op kArgMin{.name = "ArgMin",
                 .inputs = 1,
                 .shape = arg_max_shape,
                 .no_gradient = kPlaces,
                 .split = WorkSplit::kRows,
                 .shards = arg_max_shards,
                 .cpu = arg_max_cpu,
                 .reference = ranking_reference};
const Op kTopK{.name = "TopK",
               .inputs = 1,
               .shape = top_k_shape,
               .no_gradient = kPlaces,
               .split = WorkSplit::kRows,
               .shards = by_rows<1>,
               .cpu = top_k_cpu,
               .reference = ranking_reference};
const StoredOptions<ArgMaxOptions> kStoredArgMax(kArgMax, kArgMin);
const StoredOptions<RankedOptions> kStoredTopK(kTopK);

Output argmax(Output x, int axis, At at) { return arg_extreme(kArgMax, x, axis, at); }
Output argmin(Output x, int axis, At at) { return arg_extreme(kArgMin, x, axis, at); }

TopK top_k(Output x, std::int64_t k, TopKOptions options, At at) {
  require(x.shape().rank() >= 1, "top_k (", at.site, "): a scalar has no axis to take elements of");
  if (x.shape().rank() == 1) {
    const TopK of_row = top_k(reshape(x, {1, x.shape()[0]}, at), k, options, at);
    return {reshape(of_row.values, {k}, at), reshape(of_row.indices, {k}, at)};
  }
  NodeOptions all(RankedOptions{k, options.smallest});
  const Output indices = x.graph().add(kTopK, {x}, at, std::move(all)).output();
  const int last = static_cast<int>(x.shape().rank()) - 1;
  return {gather(x, indices, {.axis = last, .batch_dims = last}, at), indices};
}

}  // namespace belfry
