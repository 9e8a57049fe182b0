// What is wrong with an option of a trainer or its data.
#pragma once
#include "belfry/framework/base/error.h"

namespace belfry {

// An option that cannot be, or does not fit the model or the data. The text begins with its name,
// "batch_size=26 on each ...": programs, whose flags have the names of options, put "--" before it
// (run_program).
class OptionError : public InvalidArgument {
 public:
  using InvalidArgument::InvalidArgument;
};

// The same for a value that cannot be right for this program: it names what the model has not, say.
// Programs exit with 2, as for other wrong flags.
class OptionMistake : public OptionError {
 public:
  using OptionError::OptionError;
};

// The same for what one trainer does not take of a model: a program that compares several leaves
// this one out.
class TrainerMistake : public OptionMistake {
 public:
  using OptionMistake::OptionMistake;
};

}  // namespace belfry
