#include "belfry/framework/cuda/kernels/launch.h"
#include "belfry/framework/cuda/kernels/pack.h"
#include "belfry/framework/cuda/runtime/copies.h"

namespace belfry::cuda {
namespace {

// Copies tensors, each by separate blocks.
struct Copies {
  static constexpr int kMost = 140;
  using Shared = Nothing;
  using Bytes = Pack<std::uint8_t>;

  int tensors = 0;
  int first_block[kMost];
  std::int64_t bytes[kMost];
  const std::uint8_t* from[kMost];
  std::uint8_t* to[kMost];

  BELFRY_HD void operator()(const Block& block, Shared&) const {
    int at = 0;
    while (at + 1 < tensors && first_block[at + 1] <= block.index) ++at;
    const bool packed =
        (reinterpret_cast<std::uintptr_t>(from[at]) | reinterpret_cast<std::uintptr_t>(to[at])) %
            sizeof(Bytes) ==
        0;
    block.each([&](int thread) {
      const std::int64_t first =
          ((block.index - first_block[at]) * block.threads + thread) * Bytes::kSize;
      if (packed && first + Bytes::kSize <= bytes[at]) {
        *reinterpret_cast<Bytes*>(to[at] + first) =
            *reinterpret_cast<const Bytes*>(from[at] + first);
        return;
      }
      for (std::int64_t i = first; i < first + Bytes::kSize && i < bytes[at]; ++i)
        to[at][i] = from[at][i];
    });
  }
};

}  // namespace

void copy_each(KernelQueue& queue, std::span<void* const> to, std::span<const void* const> from,
               std::span<const std::size_t> bytes) {
  Copies kernel{};
  Grid grid{.blocks = 0};
  const auto flush = [&] {
    launch(queue, kernel, grid);
    kernel.tensors = 0;
    grid.blocks = 0;
  };
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (bytes[i] == 0) continue;
    if (kernel.tensors == Copies::kMost) flush();
    const int at = kernel.tensors++;
    kernel.first_block[at] = static_cast<int>(grid.blocks);
    kernel.bytes[at] = static_cast<std::int64_t>(bytes[i]);
    kernel.from[at] = static_cast<const std::uint8_t*>(from[i]);
    kernel.to[at] = static_cast<std::uint8_t*>(to[i]);
    grid.blocks += grid_of_packs<std::uint8_t>(kernel.bytes[at]).blocks;
  }
  flush();
}

}  // namespace belfry::cuda
