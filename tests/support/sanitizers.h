// Whether this is the build of a sanitizer, in which tests may ask for less.
#pragma once

namespace belfry {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

}  // namespace belfry
