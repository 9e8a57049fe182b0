// Where a step went wrong: the first op with a result that is not finite, or is too large for a
// gradient, though what it was computed from is not.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "belfry/framework/base/error.h"

namespace belfry {

class BuiltTraining;
struct Batch;
struct TrainerOptions;

struct BadValue {
  std::string op, kind;   // the name of the node, and its op: "tower0/Log", "Log"
  std::string where;      // "Log 'tower0/Log' (built at model.cc:7)"
  std::string of = {};    // for a gradient: the op whose gradient it is, "Sqrt"
  std::string variable;   // that is not finite itself, or whose gradient is not; "": none
  std::string input;      // the field of the data that is not finite; "": none
  std::string device;     // full name
  std::string type;       // "f16"
  std::string value;      // "nan", "inf", "-inf", or a number beyond `limit`
  int tower = -1;         // among those of all processes; -1: in none, such as a sum over towers
  std::int64_t step = 0;  // of the training, counted from 1
  // The row of the global batch, and the number of the training sample in it; -1: the tensor has no
  // rows, or they are not known.
  std::int64_t row = -1, sample = -1;
  bool state = false;  // `variable` was not finite before the step
  double limit = 0;    // of gradients, which are finite (GradientRange::largest()); 0: they are not
  bool clipped = false;  // gradients are clipped, after they are compared with that limit

  // "nan first appears in Log 'tower0/Log' (built at model.cc:7), in row 5 of the batch (training
  // sample 37), on tower 0 (/job:...)".
  std::string text() const;
  // What to change, according to the op.
  std::string advice() const;
};

// What is wrong with gradients that a step has refused: "are not finite". `bad`: the op that is to
// blame, if it is known.
std::string refused_gradients(const std::optional<BadValue>& bad, const TrainerOptions& options);

// Runs a step for this batch and losses[loss] again, from the present values of the variables,
// which stay as they are, and unfused, with each output tested: losses and gradients, then combined
// gradients. If all are finite, it runs once more, for gradients that are too large. Infinities on
// purpose, such as those of a constant mask, are to blame only if nothing else is. None if all are
// finite, or if that cannot be known: towers run free, or computing the loss changes variables.
// `run`: Session::step() before the step ran, for its random numbers. `step` is noted. All
// processes call it together, and get the same. It compiles a step at its first use, which needs
// memory for activations of its own. Throws what a run throws.
std::optional<BadValue> find_bad_value(BuiltTraining& built, const Batch& batch, std::size_t loss,
                                       std::int64_t step, std::uint64_t run);

}  // namespace belfry
