#include "belfry/framework/base/option_name.h"

#include <atomic>

#include "belfry/framework/base/text.h"

namespace belfry {
namespace {

std::atomic<int> programs_with_flags{0};

}  // namespace

FlagsNameOptions::FlagsNameOptions() { ++programs_with_flags; }
FlagsNameOptions::~FlagsNameOptions() { --programs_with_flags; }

std::string the_option(std::string_view name) {
  return cat(programs_with_flags > 0 ? "--" : "the option ", name);
}

std::string option_name(std::string_view name) {
  return cat(programs_with_flags > 0 ? "--" : "", name);
}

}  // namespace belfry
