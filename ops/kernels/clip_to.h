// The functor of ops/clip.h, for hosts and GPUs.
#pragma once
#include "belfry/framework/kernels/math.h"

namespace belfry::functors {

struct ClipTo {
  template <class T>
  BELFRY_HD T operator()(T x, T limit) const {
    return x > limit ? limit : x < -limit ? -limit : x;  // NaN stays
  }
};

}  // namespace belfry::functors
