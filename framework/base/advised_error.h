// Errors of files that say what to do.
#pragma once
#include "belfry/framework/base/error.h"

namespace belfry {

// An IoError whose text ends with what to do about it: who catches it has no advice to add.
class AdvisedIoError : public IoError {
 public:
  using IoError::IoError;
};

}  // namespace belfry
