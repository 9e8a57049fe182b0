// Command lines of programs: flags with texts and groups, and --help.
#pragma once
#include <memory>
#include <span>
#include <string>

#include "belfry/trainers/flag_values.h"

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
  // add("-n,--iters", ...). `value` keeps what it holds unless the flag is given.
  void add(const std::string& name, std::string& value, const std::string& unit,
           const std::string& text);
  // A flag without.
  void add(const std::string& name, bool& value, const std::string& text);

  // Returns the text of --help if that was asked for, else "". Throws FlagError for unknown flags,
  // with the nearest name, and for values that are missing or not wanted.
  std::string parse(std::span<const char* const> arguments);

  // Whether parse() saw this flag, e.g. "--seed".
  bool given(const std::string& name) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace belfry
