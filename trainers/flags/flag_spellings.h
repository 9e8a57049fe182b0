// Other programs' spellings of flags, and their translations into ours.
#pragma once
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "belfry/trainers/util/flag_values.h"

namespace belfry {

struct FlagSpelling {
  // Returns our flags in place of `self`, given the whole command line. Flags without `written` are
  // shown as `self`. Throws FlagError that names `self.written` and what to write instead.
  using Translate =
      std::function<std::vector<WrittenFlag>(const WrittenFlag& self, const WrittenFlags& all)>;

  std::string name;  // without dashes
  std::string unit;  // of its value; "" for a switch, which takes true or false
  std::string text;  // for --help; "": not listed
  Translate translate;
};

// Our flag under another name: renamed("num_epochs", "N", "epochs").
FlagSpelling renamed(std::string name, std::string unit, std::string flag);

// A flag that we do not have, because there is nothing to choose. `value` (in upper or lower case)
// names what happens anyway; all other values are refused with the reason. If `value` is "", every
// value is refused.
FlagSpelling only(std::string name, std::string unit, std::string value, std::string why);
FlagSpelling refused(std::string name, std::string why);

// The command line with our flags only. If two spellings mean the same, the value is written as
// ours is. Throws FlagError if they contradict each other, naming both.
WrittenFlags in_our_spelling(const WrittenFlags& line, std::span<const FlagSpelling> spellings);

}  // namespace belfry
