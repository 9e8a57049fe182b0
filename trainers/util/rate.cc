#include "belfry/trainers/util/rate.h"

#include <cmath>

#include "belfry/framework/base/error.h"

namespace belfry {

double Rate::at(const StepInfo& info) const {
  require(given_,
          "the learning rate is an empty function; give a number or a function of StepInfo");
  const double value = schedule_ ? schedule_(info) : value_;
  require(std::isfinite(value) && value >= 0, "the learning rate",
          schedule_ ? cat(" of step ", info.step) : "", " is ", value,
          "; it must be finite and not negative");
  return value;
}

}  // namespace belfry
