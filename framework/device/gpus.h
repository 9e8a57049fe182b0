// The GPUs of this machine, or one line of why there are none. The module that drives them is
// loaded at the first question, so that programs without GPUs need no driver and no library of
// CUDA.
#pragma once
#include <string>

#include "belfry/framework/device/gpu_backend.h"

namespace belfry {

class Gpus {
 public:
  // What `backend` finds, which must outlive this.
  explicit Gpus(const GpuBackend& backend);
  // None, for the reason given.
  explicit Gpus(std::string why_none) : why_none_(std::move(why_none)) {}

  // What the GPU module in the file `path` finds: none, if it cannot be loaded or is of another
  // build. A name without a slash is looked for as the dynamic linker does. What was loaded stays.
  static Gpus load(const std::string& path);

  int count() const { return count_; }
  const std::string& why_none() const { return why_none_; }  // "" if there are GPUs
  // Null if no module was loaded. It can be there without GPUs.
  const GpuBackend* backend() const { return backend_; }

 private:
  const GpuBackend* backend_ = nullptr;
  int count_ = 0;
  std::string why_none_;
};

// Of this process. The first call loads the module that lies beside the library, or else the one
// that the dynamic linker finds. Thread safe.
const Gpus& gpus();
// In place of those, for tests; null for those again. Set it while nothing else runs.
void set_gpus(const Gpus* instead);

// Why no device of a session can be a GPU, in one line; "" if it can.
std::string why_no_gpu_devices(const Gpus& found = gpus());

}  // namespace belfry
