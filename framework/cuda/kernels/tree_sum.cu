#include "belfry/framework/base/require.h"
#include "belfry/framework/cuda/kernels/sum_kernel.h"
#include "belfry/framework/cuda/kernels/tree_sum.h"

namespace belfry::cuda {
namespace {

// Stores sums in the tensors that the pointers point to.
template <class T>
struct Store {
  static constexpr std::size_t kTensors = 20, kPointers = 352;
  using Shared = Nothing;

  int outputs[kTensors];

  template <int W>
  BELFRY_HD void take(int at, std::int64_t i, const T (&sum)[W], void* const* to,
                      const Shared&) const {
    for (int k = 0; k < outputs[at]; ++k) store(sum, static_cast<T*>(to[k]) + i);
  }
};

constexpr std::size_t kPointers = Store<float>::kPointers;

template <class F>
void visit_summed(DType dtype, const F& f) {
  kernels::visit_half_or(
      dtype, [](DType other, const F& g) { visit_any(other, g); }, f);
}

}  // namespace

TreeSum::TreeSum(DType dtype, std::size_t towers, std::size_t outputs, int divisor)
    : dtype_(dtype), towers_(towers), outputs_(outputs), divisor_(divisor) {
  require(towers + outputs <= kPointers, "a sum of ", towers, " tensors on a GPU: at most ",
          kPointers - outputs, " are possible");
}

void TreeSum::operator()(const KernelPointers& p, KernelQueue& queue) const {
  visit_summed(dtype_, [&]<class T>(T) {
    SumLaunches<T, Store<T>> launches(queue, towers_, divisor_);
    tensors_.for_each(
        {p.begin(), p.end()}, [&](std::size_t b, std::int64_t begin, std::int64_t end) {
          const auto outputs = p.all_outputs().subspan(b * outputs_, outputs_);
          const int at =
              launches.add(p.all_inputs().subspan(b * towers_, towers_), outputs_, begin, end);
          int& count = launches.sink().outputs[at] = 0;
          for (std::size_t k = 0; k < outputs_; ++k) {
            const auto before = outputs.begin() + static_cast<std::ptrdiff_t>(k);
            if (std::find(outputs.begin(), before, outputs[k]) != before) continue;
            launches.point(outputs[k]);
            ++count;
          }
        });
    launches.flush();
  });
}

void divide(KernelQueue& queue, DType dtype, int divisor, std::span<void* const> tensors,
            std::span<const std::int64_t> elements) {
  visit_summed(dtype, [&]<class T>(T) {
    SumLaunches<T, Store<T>> launches(queue, 1, divisor);
    for (std::size_t b = 0; b < tensors.size(); ++b) {
      if (elements[b] == 0) continue;
      const int at = launches.add({&tensors[b], 1}, 1, 0, elements[b]);
      launches.sink().outputs[at] = 1;
      launches.point(tensors[b]);
    }
    launches.flush();
  });
}

}  // namespace belfry::cuda
