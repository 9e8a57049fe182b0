// Whether this is the build of a sanitizer, in which tests may ask for less. Whether it is that of
// ThreadSanitizer, in which what runs on one thread shows nothing.
#pragma once

namespace belfry {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

#ifdef __SANITIZE_THREAD__
inline constexpr bool kThreadSanitized = true;
#else
inline constexpr bool kThreadSanitized = false;
#endif

}  // namespace belfry
