#include "belfry/framework/cuda/kernels/cast.h"
#include "belfry/framework/cuda/kernels/launch.h"
#include "belfry/framework/kernels/convert.h"
#include "belfry/framework/kernels/half_bits.h"

namespace belfry::cuda {
namespace {

using kernels::Stored;

// One kernel for all types of y.
template <class From>
struct Cast {
  using Shared = Nothing;
  DType to;
  std::int64_t begin, end;
  const From* x;
  void* y;

  template <class To>
  BELFRY_HD void convert(std::int64_t i) const {
    using S = Stored<To>;
    static_cast<To*>(y)[i] =
        S::narrow(functors::Convert<typename S::Type>{}(Stored<From>::widen(x[i])));
  }

  BELFRY_HD void operator()(const Block& block, Shared&) const {
    block.each([&](int thread) {
      const std::int64_t i = begin + block.index * block.threads + thread;
      if (i >= end) return;
      switch (to) {
        case DType::kF16: return convert<kernels::F16>(i);
        case DType::kBF16: return convert<kernels::BF16>(i);
        case DType::kF32: return convert<float>(i);
        case DType::kF64: return convert<double>(i);
        case DType::kI32: return convert<std::int32_t>(i);
        case DType::kI64: return convert<std::int64_t>(i);
        case DType::kU8: return convert<std::uint8_t>(i);
        default: return convert<bool>(i);
      }
    });
  }
};

}  // namespace

void cast(KernelQueue& queue, DType from, const void* x, DType to, void* y, std::int64_t begin,
          std::int64_t end) {
  kernels::visit_half_or(
      from, [](DType other, const auto& f) { visit_any(other, f); },
      [&]<class From>(From) {
        launch(queue, Cast<From>{to, begin, end, static_cast<const From*>(x), y},
               grid_for(end - begin));
      });
}

}  // namespace belfry::cuda
