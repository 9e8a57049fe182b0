#include "belfry/framework/cuda/kernels/cast.h"
#include "belfry/framework/cuda/kernels/launch.h"
#include "belfry/framework/cuda/kernels/pack.h"
#include "belfry/framework/cuda/kernels/variants.h"
#include "belfry/framework/kernels/convert.h"
#include "belfry/framework/kernels/half_bits.h"

namespace belfry::cuda {
namespace {

const Variant four_at_once("cast.four_at_once");

// One kernel for all types of y. A thread takes four neighbours of a row at once, or one element.
// Dense elements are one row.
template <class From>
struct Cast {
  using Shared = Nothing;
  static constexpr int kFour = 4;
  DType to;
  CastRows of;
  int each;
  std::int64_t threads;  // of a row
  const From* x;
  void* y;

  template <class To>
  BELFRY_HD static To converted(const From& from) {
    using S = Stored<To>;
    return S::narrow(functors::Convert<typename S::Type>{}(Stored<From>::widen(from)));
  }
  template <class To>
  BELFRY_HD void convert(std::int64_t row, std::int64_t first) const {
    const From* const from = x + row * of.pitch_x;
    To* const out = static_cast<To*>(y) + row * of.pitch_y;
    if (each == kFour && first + kFour <= of.columns) {
      const auto in = Lanes<From, kFour>::load(from + first);
      Lanes<To, kFour> four;
      for (int k = 0; k < kFour; ++k) four.at[k] = converted<To>(in.at[k]);
      four.store(out + first);
      return;
    }
    for (std::int64_t i = first; i < first + each && i < of.columns; ++i)
      out[i] = converted<To>(from[i]);
  }

  BELFRY_HD void operator()(const Block& block, Shared&) const {
    block.each([&](int thread) {
      const std::int64_t number = block.index * block.threads + thread;
      const std::int64_t row = of.rows > 1 ? number / threads : 0;
      const std::int64_t first = (number - row * threads) * each;
      if (row >= of.rows || first >= of.columns) return;
      switch (to) {
        case DType::kF16: return convert<kernels::F16>(row, first);
        case DType::kBF16: return convert<kernels::BF16>(row, first);
        case DType::kF32: return convert<float>(row, first);
        case DType::kF64: return convert<double>(row, first);
        case DType::kI32: return convert<std::int32_t>(row, first);
        case DType::kI64: return convert<std::int64_t>(row, first);
        case DType::kU8: return convert<std::uint8_t>(row, first);
        default: return convert<bool>(row, first);
      }
    });
  }
};

}  // namespace

void cast(KernelQueue& queue, DType from, const void* x, DType to, void* y, const CastRows& of) {
  kernels::visit_half_or(
      from, [](DType other, const auto& f) { visit_any(other, f); },
      [&]<class From>(From) {
        constexpr int kFour = Cast<From>::kFour;
        const auto begins_at = [](const void* address, std::size_t bytes) {
          return reinterpret_cast<std::uintptr_t>(address) % bytes == 0;
        };
        const bool fits = begins_at(x, kFour * sizeof(From)) && begins_at(y, kFour * size_of(to)) &&
                          (of.rows == 1 || (of.pitch_x % kFour == 0 && of.pitch_y % kFour == 0));
        const int each = fits && four_at_once.on() ? kFour : 1;
        const std::int64_t threads = (of.columns + each - 1) / each;
        launch(queue, Cast<From>{to, of, each, threads, static_cast<const From*>(x), y},
               grid_for(of.rows * threads));
      });
}

void cast(KernelQueue& queue, DType from, const void* x, DType to, void* y, std::int64_t begin,
          std::int64_t end) {
  const auto at = [&](DType type) { return begin * static_cast<std::int64_t>(size_of(type)); };
  const std::int64_t count = end - begin;
  cast(queue, from, static_cast<const std::byte*>(x) + at(from), to,
       static_cast<std::byte*>(y) + at(to), {1, count, count, count});
}

}  // namespace belfry::cuda
