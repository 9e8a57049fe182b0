#include "belfry/framework/cuda/kernels/cast.h"
#include "belfry/framework/cuda/kernels/launch.h"
#include "belfry/framework/cuda/kernels/pack.h"
#include "belfry/framework/kernels/convert.h"
#include "belfry/framework/kernels/half_bits.h"

namespace belfry::cuda {
namespace {

// One kernel for all types of y. A thread takes four neighbours, at once where both addresses
// allow.
template <class From>
struct Cast {
  using Shared = Nothing;
  static constexpr int kEach = 4;
  DType to;
  std::int64_t count;
  bool packed;
  const From* x;
  void* y;

  template <class To>
  BELFRY_HD static To converted(const Lanes<From, kEach>& in, int k) {
    using S = Stored<To>;
    return S::narrow(functors::Convert<typename S::Type>{}(in.wide(k)));
  }
  template <class To>
  BELFRY_HD void convert(std::int64_t first) const {
    To* const out = static_cast<To*>(y);
    if (packed && first + kEach <= count) {
      const auto in = Lanes<From, kEach>::load(x + first);
      Lanes<To, kEach> four;
      for (int k = 0; k < kEach; ++k) four.at[k] = converted<To>(in, k);
      four.store(out + first);
      return;
    }
    for (std::int64_t i = first; i < first + kEach && i < count; ++i) {
      const Lanes<From, kEach> in{{x[i]}};
      out[i] = converted<To>(in, 0);
    }
  }

  BELFRY_HD void operator()(const Block& block, Shared&) const {
    block.each([&](int thread) {
      const std::int64_t first = (block.index * block.threads + thread) * kEach;
      if (first >= count) return;
      switch (to) {
        case DType::kF16: return convert<kernels::F16>(first);
        case DType::kBF16: return convert<kernels::BF16>(first);
        case DType::kF32: return convert<float>(first);
        case DType::kF64: return convert<double>(first);
        case DType::kI32: return convert<std::int32_t>(first);
        case DType::kI64: return convert<std::int64_t>(first);
        case DType::kU8: return convert<std::uint8_t>(first);
        default: return convert<bool>(first);
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
        constexpr int kEach = Cast<From>::kEach;
        const From* const first = static_cast<const From*>(x) + begin;
        std::byte* const into =
            static_cast<std::byte*>(y) + begin * static_cast<std::int64_t>(size_of(to));
        const bool packed = reinterpret_cast<std::uintptr_t>(first) % (kEach * sizeof(From)) == 0 &&
                            reinterpret_cast<std::uintptr_t>(into) % (kEach * size_of(to)) == 0;
        const std::int64_t count = end - begin;
        launch(queue, Cast<From>{to, count, packed, first, into},
               grid_for((count + kEach - 1) / kEach));
      });
}

}  // namespace belfry::cuda
