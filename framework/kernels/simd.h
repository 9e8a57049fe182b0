// Macros for functors and loops that run on every instruction set. Three rules keep a loop fast:
//   1. Functions called in the loops of a BELFRY_KERNEL are BELFRY_HD. g++ does not inline others
//      into clones, not even std::sqrt or std::min.
//   2. Loops are plain, counted and without branches; a select is a `?:` of two computed values.
//   3. The file is compiled with -O3 -fno-math-errno -fno-trapping-math, which change no result.
//      Without the first, loops of unknown length stay scalar. Without the second, sqrt does.
//      Without the third, so do selects with computed sides, except on AVX-512.
#pragma once

// Put it before a function that is inlined into every clone of its caller, and callable from GPU
// kernels.
#if defined(__CUDACC__)
#define BELFRY_HD __host__ __device__ __forceinline__
#else
#define BELFRY_HD [[gnu::always_inline]] inline
#endif

// Put it before a function, template or not. The function is compiled for AVX-512, AVX2 and the
// baseline, and the loader chooses one. g++ ignores it for lambdas and for functions that are
// declared elsewhere without it. The AVX-512 clone uses 512-bit registers: on Zen 4 the functions
// of math.h run 1.2-1.5 times as fast as with 256-bit ones, and memory-bound loops equally fast.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__CUDACC__) && \
    !defined(__SANITIZE_THREAD__) && !defined(BELFRY_NO_TARGET_CLONES)
#define BELFRY_KERNEL [[gnu::target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")]]
#else
#define BELFRY_KERNEL
#endif

// Put it before a loop whose outputs are disjoint from its inputs, or coincide with them element by
// element (in place). It avoids the run-time check that would send in-place calls to a scalar loop.
#if defined(__GNUC__) && !defined(__clang__) && !defined(__CUDACC__)
#define BELFRY_INDEPENDENT _Pragma("GCC ivdep")
#else
#define BELFRY_INDEPENDENT
#endif
