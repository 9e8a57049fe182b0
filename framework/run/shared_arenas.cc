#include "belfry/framework/run/shared_arenas.h"

namespace belfry {

void SharedArenas::resize(std::span<const std::int64_t> bytes) {
  for (std::size_t d = 0; d < blocks_.size(); ++d)
    if (blocks_[d].bytes() != static_cast<std::size_t>(bytes[d])) blocks_[d].reset();
  make(bytes);
  bytes_.assign(bytes.begin(), bytes.end());
}

void SharedArenas::make(std::span<const std::int64_t> bytes) {
  for (std::size_t d = 0; d < blocks_.size(); ++d) {
    const auto wanted = static_cast<std::size_t>(bytes[d]);
    // Tensors without elements have an address, too.
    if (blocks_[d].data() && blocks_[d].bytes() >= wanted) continue;
    blocks_[d].reset();
    blocks_[d] = MemoryBlock(devices_[d]->memory, wanted);
  }
}

}  // namespace belfry
