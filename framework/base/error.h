// The exceptions of Belfry. Every message names the op, device, flag or file at fault, the line
// that created it where there is one, and what to do. Checks stay on in release builds.
#pragma once
#include <stdexcept>

#include "belfry/framework/base/cat.h"

namespace belfry {

// Root of all errors thrown on purpose. Catch this in main.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The caller asked for something that cannot be: a wrong shape, flag, name or device.
class InvalidArgument : public Error {
 public:
  using Error::Error;
};

// Something named does not exist: a variable, a file, a kernel.
class NotFoundError : public Error {
 public:
  using Error::Error;
};

// A device's memory limit, or the machine's memory, is exhausted.
class OutOfMemory : public Error {
 public:
  using Error::Error;
};

// A device or its library failed.
class DeviceError : public Error {
 public:
  using Error::Error;
};

// A collective failed. Its communicator is dead afterwards.
class CommError : public Error {
 public:
  using Error::Error;
};

// A file could not be read or written. Names the file.
class IoError : public Error {
 public:
  using Error::Error;
};

// A bug in Belfry.
class InternalError : public Error {
 public:
  using Error::Error;
};

namespace detail {

// Sources of the library call this as `require` (require.h).
template <class E = InvalidArgument, class... Parts>
void require(bool condition, const Parts&... parts) {
  if (!condition) [[unlikely]]
    throw E(cat(parts...));
}

}  // namespace detail
}  // namespace belfry
