// The recorder's notes of calls of cuBLASLt and cuDNN.
#pragma once

namespace belfry::recorder {

// How a product or convolution multiplies: Call::detail begins with it. ", groups 2, dilation
// [3,3]" follows if a convolution has them.
inline constexpr const char* kExact = "exact";
inline constexpr const char* kTf32 = "tf32";
inline constexpr const char* kHalf = "16 bits";

// The algorithms that cuDNN has for each convolution; it expects the first to be the fastest.
// Call::detail ends with the number.
inline constexpr int kFast = 0;    // gives other bits each time
inline constexpr int kSteady = 1;  // gives the same bits

}  // namespace belfry::recorder
