// Command lines of programs: flags with texts and groups, and --help.
#pragma once
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "belfry/trainers/program/flag_spellings.h"
#include "belfry/trainers/util/flag_values.h"

namespace belfry {

// Reads --name=value and --name value, with `-` and `_` alike in names; the last of several wins.
// A flag that has a letter, too, is also read as -n value, -nvalue and -n=value. Values stay text:
// flag_values.h reads numbers.
class FlagParser {
 public:
  FlagParser(std::string description, std::string program);
  ~FlagParser();
  FlagParser(const FlagParser&) = delete;
  FlagParser& operator=(const FlagParser&) = delete;

  // Heads the flags that are added next in --help.
  void group(std::string name);
  // A flag with a value, e.g. add("--seed", seed, "N", "of initial values [1]"), with a letter
  // add("-n,--iters", ...). `value` keeps what it holds unless the flag is given. A std::string
  // will do where no error has to name what was written.
  void add(const std::string& name, FlagValue& value, const std::string& unit,
           const std::string& text);
  void add(const std::string& name, std::string& value, const std::string& unit,
           const std::string& text);
  // A flag that stands for true by itself; --name=false and --noname are read, too.
  void add(const std::string& name, bool& value, const std::string& text);

  // The one argument that is no flag, shown as [unit]; it may be left out.
  void add_argument(const std::string& unit, std::string& value, const std::string& text);

  // Other spellings, listed at the end of --help. Those that are names of the program's own flags
  // are left out, so these have to be added before.
  void add_spellings(std::vector<FlagSpelling> spellings);

  // Returns the text of --help, at most 100 columns wide, if that was asked for, else "". Throws
  // FlagError for unknown flags, with the nearest name, for values that are missing or not wanted,
  // and for spellings that contradict each other.
  std::string parse(std::span<const char* const> arguments);

  // Whether parse() saw this flag, e.g. "--seed", in any spelling, and how it was written: "-n 3",
  // "" if it was not.
  bool given(const std::string& name) const { return !written(name).empty(); }
  std::string written(const std::string& name) const;

 private:
  struct State;
  class Reader;
  std::unique_ptr<State> state_;
};

}  // namespace belfry
