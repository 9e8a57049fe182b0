// A driver of CUDA that knows no GPU, as cuDNN compiles kernels only if it finds a libcuda.so.1.
// cuDNN looks for these functions. It calls few of them, and none computes anything.
#define BELFRY_DOES_NOTHING(name) \
  extern "C" int name() { return 0; }

BELFRY_DOES_NOTHING(cuCtxGetCurrent)
BELFRY_DOES_NOTHING(cuCtxGetDevice)
BELFRY_DOES_NOTHING(cuCtxGetLimit)
BELFRY_DOES_NOTHING(cuCtxPopCurrent)
BELFRY_DOES_NOTHING(cuCtxPushCurrent)
BELFRY_DOES_NOTHING(cuDeviceGet)
BELFRY_DOES_NOTHING(cuDeviceGetAttribute)
BELFRY_DOES_NOTHING(cuDeviceGetCount)
BELFRY_DOES_NOTHING(cuDevicePrimaryCtxRelease)
BELFRY_DOES_NOTHING(cuDevicePrimaryCtxReset)
BELFRY_DOES_NOTHING(cuDevicePrimaryCtxRetain)
BELFRY_DOES_NOTHING(cuFuncGetAttribute)
BELFRY_DOES_NOTHING(cuFuncSetAttribute)
BELFRY_DOES_NOTHING(cuGetErrorName)
BELFRY_DOES_NOTHING(cuGetErrorString)
BELFRY_DOES_NOTHING(cuKernelGetAttribute)
BELFRY_DOES_NOTHING(cuKernelSetAttribute)
BELFRY_DOES_NOTHING(cuLaunchCooperativeKernel)
BELFRY_DOES_NOTHING(cuLaunchKernel)
BELFRY_DOES_NOTHING(cuLaunchKernelEx)
BELFRY_DOES_NOTHING(cuLibraryLoadFromFile)
BELFRY_DOES_NOTHING(cuLibraryUnload)
BELFRY_DOES_NOTHING(cuLinkAddData)
BELFRY_DOES_NOTHING(cuLinkAddData_v2)
BELFRY_DOES_NOTHING(cuLinkAddFile_v2)
BELFRY_DOES_NOTHING(cuLinkComplete)
BELFRY_DOES_NOTHING(cuLinkCreate)
BELFRY_DOES_NOTHING(cuLinkCreate_v2)
BELFRY_DOES_NOTHING(cuLinkDestroy)
BELFRY_DOES_NOTHING(cuMemcpyDtoH_v2)
BELFRY_DOES_NOTHING(cuModuleGetFunction)
BELFRY_DOES_NOTHING(cuModuleGetGlobal_v2)
BELFRY_DOES_NOTHING(cuModuleLoadData)
BELFRY_DOES_NOTHING(cuModuleLoadDataEx)
BELFRY_DOES_NOTHING(cuModuleLoadFatBinary)
BELFRY_DOES_NOTHING(cuModuleUnload)
BELFRY_DOES_NOTHING(cuOccupancyMaxActiveBlocksPerMultiprocessor)
BELFRY_DOES_NOTHING(cuOccupancyMaxPotentialClusterSize)
BELFRY_DOES_NOTHING(cuStreamGetCtx)
BELFRY_DOES_NOTHING(cuStreamSynchronize)
BELFRY_DOES_NOTHING(cuTensorMapEncodeTiled)

// There is no GPU.
extern "C" int cuInit(unsigned) { return 100; }
extern "C" int cuDriverGetVersion(int* version) {
  *version = 13000;
  return 0;
}
// Handles that are not null.
extern "C" int cuLibraryLoadData(void** library) {
  *library = library;
  return 0;
}
extern "C" int cuLibraryGetKernel(void** kernel) {
  *kernel = kernel;
  return 0;
}
