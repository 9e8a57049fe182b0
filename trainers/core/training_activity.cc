#include "belfry/trainers/core/training_activity.h"

#include "belfry/framework/base/error_origin.h"
#include "belfry/framework/base/text.h"

namespace belfry {

std::string TrainingActivity::Place::str() const {
  switch (what) {
    case What::kSetup: return hook;
    case What::kCallback:
      return cat("the callback ", class_name(*callback), "::", hook, " at step ", step);
    case What::kEnd: return cat("the end of the training behind step ", step - 1);
    default: return cat("step ", step);
  }
}

}  // namespace belfry
