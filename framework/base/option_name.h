// How texts for people name the library's options: a program may have flags of the same names.
#pragma once
#include <string>
#include <string_view>

namespace belfry {

// While one lives, texts of this process name flags instead.
class FlagsNameOptions {
 public:
  FlagsNameOptions();
  ~FlagsNameOptions();
  FlagsNameOptions(const FlagsNameOptions&) = delete;
  FlagsNameOptions& operator=(const FlagsNameOptions&) = delete;
};

// For the middle of a sentence: "the option seed", or "--seed".
std::string the_option(std::string_view name);
// Before a value, or as the subject: "seed", or "--seed".
std::string option_name(std::string_view name);

}  // namespace belfry
