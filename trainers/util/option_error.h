// Errors about options of a trainer or its data.
#pragma once
#include <string>
#include <string_view>

#include "belfry/framework/base/error.h"
#include "belfry/framework/base/option_name.h"

namespace belfry {

// An option with an impossible value, or one that does not fit the model or the data.
class OptionError : public InvalidArgument {
 public:
  using InvalidArgument::InvalidArgument;

 protected:
  ErrorFields of_class() const override { return {.kind = ErrorKind::kFlag}; }
};

// An option whose value cannot be right for this program, e.g. because it names something that the
// model lacks. Programs exit with 2, as for other wrong flags.
class OptionMistake : public OptionError {
 public:
  using OptionError::OptionError;

 protected:
  ErrorFields of_class() const override { return {.kind = ErrorKind::kFlag, .is_mistake = true}; }
};

// An option that this trainer does not take for this model. A program that compares several
// trainers then skips this one.
class TrainerMistake : public OptionMistake {
 public:
  using OptionMistake::OptionMistake;
};

// refuse_option("seed", "=", 3, " is odd") throws an E whose text is "seed=3 is odd". In a program
// it begins with the flag (option_name()).
template <class E = OptionError, class... Parts>
[[noreturn]] void refuse_option(std::string_view option, const Parts&... parts) {
  throw E(ErrorFields{.why = detail::cat(option_name(option), parts...),
                      .option = std::string(option)});
}

template <class E = OptionError, class... Parts>
void require_option(bool condition, std::string_view option, const Parts&... parts) {
  if (!condition) [[unlikely]]
    refuse_option<E>(option, parts...);
}

}  // namespace belfry
