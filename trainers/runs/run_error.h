// Describes, in summary.json, how a run failed.
#pragma once
#include <exception>
#include <string>

#include "belfry/framework/base/json.h"
#include "belfry/trainers/core/trainer.h"

namespace belfry {

// An object with these members, which are null if they are not known:
//   code      DIVERGED, FLAG, OUT_OF_MEMORY, IO, STALLED, COLLECTIVE, DEVICE, OP or FAILED
//   what      `error` as people see it
//   rank      of the process that failed, if there are several; `host` is its machine
//   device    the full name of the op's device
//   step      counted from 1: the first whose loss was not finite; the step of the op, if it
//             is of this process; else the last complete one
//   op        the op whose kernel threw, or has not ended, in any process
//   where     that op with its line, gather() of a data set, or a callback: the origin of the error
//   variable  the first that is not finite, with its value
//   option    at fault, or to be changed
//   cause     the first error, if another process had it or it is nested in `error`
//             (std::throw_with_nested)
//   kept      what was saved last; null if `kept` is ""
//   do        advice
JsonValue error_json(const std::exception& error, Trainer& trainer, const std::string& kept);

}  // namespace belfry
