// What is known of a failure as JSON: for other processes, reports and launchers.
#pragma once
#include <string_view>

#include "belfry/framework/base/error.h"
#include "belfry/framework/base/json.h"

namespace belfry {

// FAILED, FLAG, OUT_OF_MEMORY, IO, STALLED, COLLECTIVE, DEVICE, OP or DIVERGED.
std::string_view name_of(ErrorKind kind);

// An object with the members of ErrorFields that are known; `kind` as `code`.
JsonValue to_json(const ErrorFields& fields);
// Takes what it knows of such an object, and leaves out what is of another kind: it may come from a
// stranger. Texts get no character that would change the screen. Throws InvalidArgument for JSON
// that is no object.
ErrorFields error_from(const JsonValue& json);

}  // namespace belfry
