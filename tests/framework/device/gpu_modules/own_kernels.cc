// GPU kernels of a program, without a kernel.
#include <belfry_build_identity.h>

extern "C" const char* belfry_gpu_kernels() { return BELFRY_BUILD_IDENTITY; }
