// A GPU module of any build, with two GPUs that are not there.
#include "belfry/tests/framework/device/fake_gpus.h"

extern "C" const belfry::GpuBackend* belfry_gpu_backend(const char* wanted, const char** own) {
  static const belfry::test::FakeGpus backend(2);
  *own = wanted;
  return &backend;
}
