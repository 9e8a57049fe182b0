// Images with different margins, on GPUs.
#pragma once
#include "belfry/framework/cuda/kernels/launch.h"
#include "belfry/framework/cuda/kernels/pack.h"
#include "belfry/framework/cuda/kernels/variants.h"

namespace belfry::cuda {

// NHWC images; out[n, i, j] = in[n, i + down, j + right], or zero outside of `in`.
struct Margins {
  std::int64_t images;
  std::int64_t in_height, in_width, out_height, out_width;
  std::int64_t down, right;
  std::int64_t pixel_bytes;  // a multiple of 2
};

inline const Variant sixteen_bytes("padding_copy.sixteen_bytes");

// A thread writes N units at once. A row is a run of units, so only the place of the first one
// takes divisions.
template <class Unit, int N>
struct ShiftImages {
  using Shared = Nothing;
  Margins m;
  std::int64_t units;  // of a pixel
  const Unit* in;
  Unit* out;

  BELFRY_HD std::int64_t count() const { return m.images * m.out_height * m.out_width * units; }

  // Where unit i of `out` is. Divisions of 32 bits are several times as fast.
  struct Place {
    std::int64_t image, row, unit;  // the unit in the row
  };
  template <class I>
  BELFRY_HD Place place_of(I i) const {
    const I of_row = static_cast<I>(m.out_width * units), line = i / of_row;
    const I image = line / static_cast<I>(m.out_height);
    return {static_cast<std::int64_t>(image),
            static_cast<std::int64_t>(line) - static_cast<std::int64_t>(image) * m.out_height,
            static_cast<std::int64_t>(i) - static_cast<std::int64_t>(line) * m.out_width * units};
  }
  BELFRY_HD Unit at(const Place& place) const {
    const std::int64_t row = place.row + m.down, unit = place.unit + m.right * units;
    const bool inside = row >= 0 && row < m.in_height && unit >= 0 && unit < m.in_width * units;
    return inside ? in[(place.image * m.in_height + row) * m.in_width * units + unit] : Unit{};
  }
  BELFRY_HD void advance(Place& place) const {
    if (++place.unit < m.out_width * units) return;
    place.unit = 0;
    if (++place.row < m.out_height) return;
    place.row = 0;
    ++place.image;
  }

  BELFRY_HD void operator()(const Block& block, Shared&) const {
    block.each([&](int thread) {
      const std::int64_t first = (block.index * block.threads + thread) * N, all = count();
      if (first >= all) return;
      Place place =
          first <= 0x7fffffff ? place_of(static_cast<std::uint32_t>(first)) : place_of(first);
      Lanes<Unit, N> some{};
      const int number = all - first < N ? static_cast<int>(all - first) : N;
      for (int k = 0; k < N; ++k) {
        if (k < number) some.at[k] = at(place);
        advance(place);
      }
      if (number == N)
        some.store(out + first);
      else
        for (int k = 0; k < N; ++k)
          if (k < number) out[first + k] = some.at[k];
    });
  }
};

struct alignas(16) SixteenBytes {
  std::uint64_t at[2];
};

template <class Unit>
void shift_images_by(KernelQueue& queue, const Margins& m, const void* in, void* out) {
  const auto start = [&]<int N>(std::integral_constant<int, N>) {
    const ShiftImages<Unit, N> kernel{m, m.pixel_bytes / static_cast<std::int64_t>(sizeof(Unit)),
                                      static_cast<const Unit*>(in), static_cast<Unit*>(out)};
    launch(queue, kernel, grid_for((kernel.count() + N - 1) / N));
  };
  if (sixteen_bytes.on() && on_16_bytes(out))
    start(std::integral_constant<int, 16 / static_cast<int>(sizeof(Unit))>{});
  else
    start(std::integral_constant<int, 1>{});
}

// Reads 16 bytes at once, or as many as divide a pixel and all addresses; writes 16 where it may.
inline void shift_images(KernelQueue& queue, const Margins& m, const void* in, void* out) {
  const auto fits = [&](std::uintptr_t bytes) {
    return (static_cast<std::uintptr_t>(m.pixel_bytes) | reinterpret_cast<std::uintptr_t>(in) |
            reinterpret_cast<std::uintptr_t>(out)) %
               bytes ==
           0;
  };
  if (fits(16)) return shift_images_by<SixteenBytes>(queue, m, in, out);
  if (fits(8)) return shift_images_by<std::uint64_t>(queue, m, in, out);
  if (fits(4)) return shift_images_by<std::uint32_t>(queue, m, in, out);
  shift_images_by<std::uint16_t>(queue, m, in, out);
}

}  // namespace belfry::cuda
