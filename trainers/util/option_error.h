// Errors about options of a trainer or its data.
#pragma once
#include "belfry/framework/base/error.h"

namespace belfry {

// An option with an impossible value, or one that does not fit the model or the data. The text
// begins with the option's name, "batch_size=26 on each ...". Flags have the names of options, so
// programs put "--" before it (run_program).
class OptionError : public InvalidArgument {
 public:
  using InvalidArgument::InvalidArgument;
};

// An option whose value cannot be right for this program, e.g. because it names something that the
// model lacks. Programs exit with 2, as for other wrong flags.
class OptionMistake : public OptionError {
 public:
  using OptionError::OptionError;
};

// An option that this trainer does not take for this model. A program that compares several
// trainers leaves this one out.
class TrainerMistake : public OptionMistake {
 public:
  using OptionMistake::OptionMistake;
};

}  // namespace belfry
