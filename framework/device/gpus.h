// The GPUs of this machine, or one line that says why there are none. The module that drives them
// is loaded on first use, so programs without GPUs need no driver and no CUDA library.
#pragma once
#include <string>

#include "belfry/framework/device/gpu_backend.h"

namespace belfry {

class Gpus {
 public:
  // The GPUs that `backend` finds, which must outlive this.
  explicit Gpus(const GpuBackend& backend);
  // No GPUs, for the given reason.
  explicit Gpus(std::string why_none) : why_none_(std::move(why_none)) {}

  // The GPUs that the module in the file `path` finds. None if it cannot be loaded, or is of
  // another build. A name without a slash is looked up by the dynamic linker. A loaded module stays
  // loaded.
  static Gpus load(const std::string& path);

  int count() const { return count_; }
  const std::string& why_none() const { return why_none_; }  // "" if there are GPUs
  // Null if no module was loaded. There may be a backend without GPUs.
  const GpuBackend* backend() const { return backend_; }

 private:
  const GpuBackend* backend_ = nullptr;
  int count_ = 0;
  std::string why_none_;
};

// The GPUs of this process. The first call loads the module next to the library, or else the one
// that the dynamic linker finds. Thread safe.
const Gpus& gpus();
// Replaces gpus() in tests; null ends that. Set it while nothing else runs.
void set_gpus(const Gpus* instead);

// Why no device of a session can be a GPU, in one line; "" if it can.
std::string why_no_gpu_devices(const Gpus& found = gpus());

}  // namespace belfry
