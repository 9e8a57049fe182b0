// Preloaded into a program, it replaces each sentence of an error by "x". So a program that reads
// sentences takes wrong decisions. error_fields_test.cc uses it.
#include <memory>
#include <stdexcept>
#include <utility>

#include "belfry/framework/base/error.h"

namespace std {

const char* runtime_error::what() const noexcept { return "x"; }

}  // namespace std

namespace belfry {

std::string error_text(const ErrorFields&) { return "x"; }

Error::Error(ErrorFields fields) : std::runtime_error("x") {
  for (std::string ErrorFields::*const text :
       {&ErrorFields::why, &ErrorFields::advice, &ErrorFields::kept})
    if (!(fields.*text).empty()) fields.*text = "x";
  fields_ = std::make_shared<const ErrorFields>(std::move(fields));
}

}  // namespace belfry
