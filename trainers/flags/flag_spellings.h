// Other programs' spellings of flags, and what they stand for here.
#pragma once
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "belfry/trainers/util/flag_values.h"

namespace belfry {

struct FlagSpelling {
  // The flags of ours that it stands for, given the whole command line; those without `written` are
  // shown as `self`. Throws FlagError that names `self.written` and what to write instead.
  using Translate =
      std::function<std::vector<WrittenFlag>(const WrittenFlag& self, const WrittenFlags& all)>;

  std::string name;  // without dashes
  std::string unit;  // of its value; "" if it stands for itself and takes true or false
  std::string text;  // for --help; "" if it is not to be listed
  Translate translate;
};

// The value of our flag, under another name: renamed("num_epochs", "N", "epochs").
FlagSpelling renamed(std::string name, std::string unit, std::string flag);

// One that has no flag here because there is nothing to choose: `value` (in either case) is what
// happens anyway, and all else is refused with the reason. "" for a value refuses everything.
FlagSpelling only(std::string name, std::string unit, std::string value, std::string why);
FlagSpelling refused(std::string name, std::string why);

// The command line with flags of ours alone, as ours are written where two spellings mean the same.
// Throws FlagError if they contradict each other, naming both.
WrittenFlags in_our_spelling(const WrittenFlags& line, std::span<const FlagSpelling> spellings);

}  // namespace belfry
