// Errors of files that say what to do, or by which it is known.
#pragma once
#include "belfry/framework/base/error.h"

namespace belfry {

// An IoError whose text ends with what to do about it: who catches it has no advice to add.
class AdvisedIoError : public IoError {
 public:
  using IoError::IoError;
};

// This process may not read or write the file, which may be as it should be.
class DeniedError : public IoError {
 public:
  using IoError::IoError;
};

}  // namespace belfry
