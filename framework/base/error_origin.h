// Which part of a user's program an exception came from: an op, a data set or a callback. Programs
// print it next to the text of the exception. Its class and text stay unchanged.
#pragma once
#include <cstdint>
#include <exception>
#include <optional>
#include <string>
#include <string_view>
#include <typeinfo>

#include "belfry/framework/base/error.h"

namespace belfry {

struct ErrorOrigin {
  std::string what;        // "Swish 'x' (built at model.cc:14)", "gather() of 'digits'"
  std::string op, device;  // of a kernel: name of the node, full name of the device; else ""
  std::int64_t step = 0;   // of a training, counted from 1; 0: not known
  bool is_told = false;    // the text of the exception already says so
};

// Call it in a handler. Rethrows the exception and records where it came from. If an origin is
// already recorded, it adds ", in <what>", and the device and the step if they are missing. An
// exception that is no std::exception becomes an Error that names its type.
[[noreturn]] void rethrow_from(ErrorOrigin origin);

// Calls f(), a part of a user's program that `what` names. An exception that is no Error gets this
// origin; the errors of Belfry name what they are about.
template <class F>
auto naming_part(std::string_view what, const F& f) {
  try {
    return f();
  } catch (const Error&) {
    throw;
  } catch (...) {
    rethrow_from({.what = std::string(what)});
  }
}

// Adds ", in step <step>" if the exception has a recorded origin without a step.
void add_step_to_origin(const std::exception& error, std::int64_t step);

// The recorded origin of an exception that is being handled, or was recently; none for others.
std::optional<ErrorOrigin> origin_of(const std::exception& error);

// All that is known about an exception: its own fields, its origin, and the fields of the
// exceptions nested in it (std::throw_with_nested). An exception without a text is named by its
// class.
ErrorFields fields_of(const std::exception& error);

// "MyCallback"; for a class of Belfry "Evaluation", without the namespace.
std::string class_name(const std::type_info& type);
// Whether it is a class of Belfry. Errors of base/error.h that it throws need no origin.
bool is_of_belfry(const std::type_info& type);

}  // namespace belfry
