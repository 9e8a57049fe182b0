// GPU kernels of a program that was built with another Belfry.
extern "C" const char* belfry_gpu_kernels() { return "0.0.9-0123456789ab"; }
