// What summary.json says of a run that failed.
#pragma once
#include <exception>
#include <string>

#include "belfry/framework/base/json.h"
#include "belfry/trainers/core/trainer.h"

namespace belfry {

// An object whose members are null where nothing is known:
//   code      DIVERGED, FLAG, OUT_OF_MEMORY, IO, COLLECTIVE, DEVICE, OP or FAILED
//   what      `error` as people see it
//   device    of the op, in full
//   step      counted from 1: the first whose loss was not finite; that of the op; else the last
//   one
//             that was completed
//   op        whose kernel threw
//   variable  the first that is not finite, with its value
//   cause     the first error, where `error` is nested around another (std::throw_with_nested)
//   kept      what was saved last; null if `kept` is ""
//   do        advice
Json error_json(const std::exception& error, Trainer& trainer, const std::string& kept);

}  // namespace belfry
