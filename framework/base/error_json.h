// A failure as JSON, as far as it is known: for other processes, reports and launchers.
#pragma once
#include <string_view>

#include "belfry/framework/base/error.h"
#include "belfry/framework/base/json.h"

namespace belfry {

// FAILED, FLAG, OUT_OF_MEMORY, IO, STALLED, COLLECTIVE, DEVICE, OP or DIVERGED.
std::string_view name_of(ErrorKind kind);

// An object with the members of ErrorFields that are known; `kind` as `code`.
JsonValue to_json(const ErrorFields& fields);
// Takes what it knows from such an object, and ignores members of the wrong kind: it may come from
// a stranger. Texts get no character that would change the screen. Throws InvalidArgument for JSON
// that is not an object.
ErrorFields error_from(const JsonValue& json);

}  // namespace belfry
