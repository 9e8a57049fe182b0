// Runs one model in every mode on the same data and compares the results: --check_equivalence.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "belfry/framework/base/json.h"
#include "belfry/trainers/core/divergence.h"
#include "belfry/trainers/modes/modes.h"
#include "belfry/trainers/util/console.h"
#include "belfry/trainers/util/output_file.h"

namespace belfry {

// The largest distance of two elements at the same place, in representable values between them; a
// pair of NaNs has distance 0, a single NaN 2^bits - 1. It is 0 if and only if the bits are equal
// (except NaNs): -0 and +0 are neighbours. For integers it is the largest difference. Throws
// InvalidArgument unless types and shapes are equal.
std::uint64_t max_ulp(const Tensor& a, const Tensor& b);

// The largest difference of two elements at the same place, relative to the largest absolute value
// in both tensors. It is at most 2, and 0 if all elements are equal; 0 and -0 are equal, and pairs
// of NaNs. Near zero it is small where max_ulp is huge. It is infinite if an element of only one
// tensor is NaN or infinite. Throws InvalidArgument unless types and shapes are equal.
double max_relative(const Tensor& a, const Tensor& b);

struct Equivalence {
  // The distance of a variable (by logical name) from the first canonical mode's, or from the first
  // mode's if none that ran is canonical.
  struct Distance {
    std::string variable;
    std::uint64_t max_ulp = 0;
    double max_relative = 0;
  };
  struct Entry {
    Mode mode;
    bool canonical = false;
    std::string refusal;           // why the mode did not run; all below is then empty
    std::vector<Distance> values;  // variables and optimizer slots that are no copies
    std::vector<std::string> differing_replicas;  // copies that differ from tower 0's variables
    std::int64_t peak_bytes = 0;                  // planned, of all devices together
    std::int64_t bytes_moved = 0;                 // across devices in one step
    double seconds = 0;                           // of all steps
    Divergence divergence = {};

    // The largest distance of all variables.
    std::uint64_t max_ulp() const;
    double max_relative() const;
  };

  std::int64_t steps = 0;
  std::vector<Entry> entries;

  // Whether all canonical modes have the same bits, and all replicas have tower 0's bits.
  bool holds() const;
  // Whether no mode diverged. If one did, equal bits say little: all NaNs count as equal.
  bool finite() const;
  // A list with an object per mode that ran and variable: {mode, trainer, allreduce, canonical,
  // variable, max_ulp, max_relative (null if infinite), peak_bytes, bytes_moved, seconds,
  // first_nonfinite_step (null if the loss is finite)}; allreduce is what "auto" chose.
  JsonValue to_json() const;
  // A line per mode, with one more per variable that differs, and a verdict; for people.
  std::string to_table() const;
};

// `options` sets everything but the mode; its callbacks, epochs and numbers of steps are ignored,
// and all runs are deterministic. One session exists at a time. Modes that cannot serve the options
// are listed with the reason; throws InvalidArgument if none can. Shows progress on the console, if
// there is one, whenever that is due.
Equivalence check_equivalence(const TrainerOptions& options, const Dataset& train,
                              std::int64_t steps, std::span<const Mode> modes,
                              Console* console = nullptr);

// The body of --check_equivalence: all_modes(), the table on the console, the list in `json`, if
// there is one. Returns the exit code: 0 if it holds and no mode diverged, else 1.
int report_equivalence(const TrainerOptions& options, const Dataset& train, std::int64_t steps,
                       Console& console, OutputFile* json);

}  // namespace belfry
