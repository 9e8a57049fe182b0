// Images with different margins, on GPUs.
#pragma once
#include "belfry/framework/cuda/kernels/launch.h"

namespace belfry::cuda {

// NHWC images; out[n, i, j] = in[n, i + down, j + right], or zero outside of `in`.
struct Margins {
  std::int64_t images;
  std::int64_t in_height, in_width, out_height, out_width;
  std::int64_t down, right;
  std::int64_t pixel_bytes;  // a multiple of 2
};

template <class Unit>
struct ShiftImages {
  using Shared = Nothing;
  Margins m;
  std::int64_t units;  // of a pixel
  const Unit* in;
  Unit* out;

  BELFRY_HD void operator()(const Block& block, Shared&) const {
    block.each([&](int thread) {
      const std::int64_t at = block.index * block.threads + thread;
      if (at >= m.images * m.out_height * m.out_width * units) return;
      const std::int64_t unit = at % units, pixel = at / units;
      const std::int64_t column = pixel % m.out_width + m.right;
      const std::int64_t row = pixel / m.out_width % m.out_height + m.down;
      const std::int64_t image = pixel / m.out_width / m.out_height;
      const bool inside = row >= 0 && row < m.in_height && column >= 0 && column < m.in_width;
      out[at] =
          inside ? in[((image * m.in_height + row) * m.in_width + column) * units + unit] : Unit{};
    });
  }
};

struct alignas(16) SixteenBytes {
  std::uint64_t at[2];
};

template <class Unit>
void shift_images_by(KernelQueue& queue, const Margins& m, const void* in, void* out) {
  const std::int64_t units = m.pixel_bytes / static_cast<std::int64_t>(sizeof(Unit));
  launch(queue, ShiftImages<Unit>{m, units, static_cast<const Unit*>(in), static_cast<Unit*>(out)},
         grid_for(m.images * m.out_height * m.out_width * units));
}

// Moves 16 bytes at once, or as many as divide a pixel and all addresses.
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
