// kSanitized: this is a build of a sanitizer, in which tests may do less. kThreadSanitized: it is
// the build of ThreadSanitizer, which finds nothing in work of a single thread.
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
