// XXH3 of the library xxHash, compiled into each source that includes this.
#pragma once
#include <cstddef>
#include <cstdint>

// With -Og, as sanitizers are built, GCC cannot inline all that xxHash insists on.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define XXH_NO_INLINE_HINTS 1
#endif
#define XXH_INLINE_ALL
#include <xxhash.h>

namespace belfry::detail {

// XXH3_64bits() in vectors of AVX2, in less than half the time. For processors that have them.
std::uint64_t xxh3_avx2(const void* bytes, std::size_t size);

}  // namespace belfry::detail
