// The form in which a kernel's library wants weights.
#pragma once
#include <cstdint>
#include <string>

#include "belfry/framework/graph/kernel.h"

namespace belfry {

// Kernels of one form share weights that a plan packs once (passes/pack_weights.cc).
struct PackedForm {
  std::string layout;      // equal texts are one layout
  std::int64_t bytes = 0;  // a multiple of 64
  KernelRun pack;          // input 0: the dense weights; output 0: `bytes` bytes
};

}  // namespace belfry
