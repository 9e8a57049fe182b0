// Which part of a user's program an exception came from: an op, a data set or a callback. Programs
// name it beside the text of the exception, whose class and text stay as they are.
#pragma once
#include <cstdint>
#include <exception>
#include <optional>
#include <string>
#include <typeinfo>

#include "belfry/framework/base/error.h"

namespace belfry {

struct ErrorOrigin {
  std::string what;        // "Swish 'x' (built at model.cc:14)", "gather() of 'digits'"
  std::string op, device;  // of a kernel: name of the node, full name of the device; else ""
  std::int64_t step = 0;   // of a training, counted from 1; 0: not known
  bool is_told = false;    // the text of the exception says so already
};

// Call it in a handler. Throws the exception again, and notes where it came from. If that has been
// noted before, it adds ", in <what>", and the device and the step that it lacks. What is no
// std::exception becomes an Error that names its type.
[[noreturn]] void rethrow_from(ErrorOrigin origin);

// Adds ", in step <step>" if the origin of the exception has been noted, and has no step yet.
void add_step_to_origin(const std::exception& error, std::int64_t step);

// What was noted of an exception that is handled now, or was lately; none for others.
std::optional<ErrorOrigin> origin_of(const std::exception& error);

// All that is known of an exception: what it says itself, its origin, and what the exceptions know
// that it is nested around (std::throw_with_nested). An exception without a text is named by its
// class.
ErrorFields fields_of(const std::exception& error);

// "MyCallback", "Evaluation" for a class of Belfry.
std::string class_name(const std::type_info& type);
// Whether it is a class of Belfry. Its errors, if of a class of base/error.h, need no origin.
bool is_of_belfry(const std::type_info& type);

}  // namespace belfry
