// The exceptions of Belfry. Every message names the op, device, option or file at fault, the line
// that created it, if any, and what to do. Checks stay on in release builds.
#pragma once
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>

#include "belfry/framework/base/cat.h"

namespace belfry {

// What failed, whatever the class of the exception.
enum class ErrorKind : std::uint8_t {
  kFailed,  // none of the others
  kFlag,    // an option, or another word of the command line
  kOutOfMemory,
  kIo,
  kStalled,
  kCollective,
  kDevice,
  kOp,
  kDiverged,
  kCorrupted  // bits have flipped, in memory or on their way
};

// What is known about a failure. Programs, other processes and reports read these fields; nobody
// parses a sentence. An unknown member is empty, 0, or -1.
struct ErrorFields {
  ErrorKind kind = ErrorKind::kFailed;
  bool is_mistake = false;  // the same command line would fail again
  int rank = -1;            // of the process that failed, if there are several
  std::string host = {};
  int reporter = -1;  // the rank of the process that reports it
  std::string reporter_host = {};
  std::string device = {}, op = {};  // full name of the device, name of the node
  // The op with its line, gather() of a data set, or a callback.
  std::string where = {};
  bool names_where = false;   // `why` already names it
  std::string variable = {};  // whose value is wrong
  std::int64_t step = 0;      // of the training, counted from 1
  std::string why = {};       // what is wrong
  std::string advice = {};    // what to do
  std::string option = {};    // its name: at fault, or to be changed
  std::string kept = {};      // what was saved last
  // Of the program that this failure ends; 0: that of its kind (exit_code_of()). It stays in its
  // process.
  int exit_code = 0;
};

// The sentence for people. Only this function composes it.
std::string error_text(const ErrorFields& fields);

// The same fields, for this process if they name none.
ErrorFields of_process(ErrorFields fields, int rank, const std::string& host);

// Root of all errors thrown on purpose. Catch this in main.
class Error : public std::runtime_error {
 public:
  // For errors of which only the sentence is known.
  using std::runtime_error::runtime_error;
  // what() is then error_text(fields).
  explicit Error(ErrorFields fields);

  ErrorFields fields() const;

 protected:
  // The kind of all errors of a class, and whether they are mistakes.
  virtual ErrorFields of_class() const { return {}; }

 private:
  std::shared_ptr<const ErrorFields> fields_;  // null: only what(). Copies do not throw
};

// The caller asked for something impossible: a wrong shape, flag, name or device.
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

 protected:
  ErrorFields of_class() const override { return {.kind = ErrorKind::kOutOfMemory}; }
};

// A device or its library failed.
class DeviceError : public Error {
 public:
  using Error::Error;

 protected:
  ErrorFields of_class() const override { return {.kind = ErrorKind::kDevice}; }
};

// A collective failed. Its communicator is dead afterwards.
class CommError : public Error {
 public:
  using Error::Error;

 protected:
  ErrorFields of_class() const override { return {.kind = ErrorKind::kCollective}; }
};

// Bits that must be equal are not: a variable of two processes or devices, or a message that came
// otherwise than it was sent. Programs exit with a code of its own, and a restart is right.
class CorruptionError : public Error {
 public:
  using Error::Error;

 protected:
  ErrorFields of_class() const override { return {.kind = ErrorKind::kCorrupted}; }
};

// A file could not be read or written. Names the file.
class IoError : public Error {
 public:
  using Error::Error;

 protected:
  ErrorFields of_class() const override { return {.kind = ErrorKind::kIo}; }
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
