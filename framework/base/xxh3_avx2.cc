// This source alone is compiled for AVX2. So it must include nothing whose functions are inline,
// rather than static: the linker might give them to sources that run on every processor.
#if defined(__AVX2__)
#include "belfry/framework/base/xxh3_impl.h"

namespace belfry::detail {

std::uint64_t xxh3_avx2(const void* bytes, std::size_t size) { return XXH3_64bits(bytes, size); }

}  // namespace belfry::detail
#endif
