// Errors about other processes, and errors that other processes have found.
#pragma once
#include <cstddef>
#include <exception>
#include <string>
#include <string_view>

#include "belfry/framework/base/error.h"
#include "belfry/framework/group/group.h"

namespace belfry {

// A message has waited longer than WatchOptions::stall_end, here or in another process.
class StallError : public CommError {
 public:
  using CommError::CommError;

 protected:
  ErrorFields of_class() const override { return {.kind = ErrorKind::kStalled}; }
};

// Another process has found that the command line is wrong: the same one would fail again.
class MistakeError : public CommError {
 public:
  using CommError::CommError;

 protected:
  ErrorFields of_class() const override { return {.kind = ErrorKind::kFlag, .is_mistake = true}; }
};

// Throws a CommError about another process. `host` is its machine.
[[noreturn]] void blame_peer(int rank, const std::string& host, std::string why);
[[noreturn]] void blame_peer(const ProcessGroup& group, int rank, std::string why);

// The error with these fields, as all processes throw it: a StallError, a MistakeError or a
// CommError.
std::exception_ptr error_of_group(ErrorFields error);

// The reason that ProcessGroup::end_others() sends: the fields of an error, as JSON. Its longest
// texts are cut if it would exceed kLongestReason.
std::string reason_of(ErrorFields error);
// Throws the error of another process (error_of_group()). A reason that is not JSON is the text of
// the error. An error that names no process is the sender's.
[[noreturn]] void throw_reason(int sender, const std::string& host, std::string_view reason);

}  // namespace belfry
