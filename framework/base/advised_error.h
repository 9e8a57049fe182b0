// Errors of files that say what to do, or what is known about them.
#pragma once
#include "belfry/framework/base/error.h"

namespace belfry {

// An IoError whose text ends with what to do about it: whoever catches it has no advice to add.
class AdvisedIoError : public IoError {
 public:
  using IoError::IoError;
};

// This process may not read or write the file, which may be intended.
class DeniedError : public IoError {
 public:
  using IoError::IoError;
};

}  // namespace belfry
