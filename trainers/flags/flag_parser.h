// Command lines of programs: flags with texts and groups, and --help.
#pragma once
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "belfry/trainers/util/flag_values.h"

namespace belfry {

struct FlagSpelling;

// Reads --name=value and --name value, with `-` and `_` alike in names; the last of several wins.
// A flag that has a letter, too, is also read as -n value, -nvalue and -n=value. parse() sets the
// variables that flags are bound to, in the order in which these were added.
class FlagParser {
 public:
  FlagParser(std::string description, std::string program);
  ~FlagParser();
  FlagParser(const FlagParser&) = delete;
  FlagParser& operator=(const FlagParser&) = delete;

  // Heads the flags that are added next in --help.
  void group(std::string name);
  // A flag with a value; with a letter, add("-n,--iters", ...). `read` gets it if it is given, else
  // `otherwise`, as if that had been written, if there is such a value.
  using Read = std::function<void(const WrittenFlag&)>;
  void add(const std::string& names, Read read, const std::string& unit, const std::string& text,
           const std::string& otherwise = "");
  // With any text. `value` keeps what it holds unless the flag is given; so below.
  void add(const std::string& names, std::string& value, const std::string& unit,
           const std::string& text);
  // With a whole number in [least, most].
  template <class T>
  void add(const std::string& names, T& value, std::type_identity_t<T> least,
           std::type_identity_t<T> most, const std::string& unit, const std::string& text) {
    const auto read = [&value, least, most](const WrittenFlag& flag) {
      read_integer(flag, least, most, value);
    };
    add(names, read, unit, text);
  }
  // With what `make` makes of the flag, or of its text: then an error of `make` becomes one of
  // the flag. `otherwise` as above.
  template <class T, class Make>
  void add_parsed(const std::string& names, T& value, Make make, const std::string& unit,
                  const std::string& text, const std::string& otherwise = "") {
    const auto read = [&value, make](const WrittenFlag& flag) {
      if constexpr (std::is_invocable_v<Make, const WrittenFlag&>)
        value = make(flag);
      else
        value = as_flag(flag.written, [&] { return make(flag.value); });
    };
    add(names, read, unit, text, otherwise);
  }
  // With a finite number that is `allowed`, which `wanted` describes (read_number()). T is double
  // or std::optional<double>.
  template <class T>
  void add_number(const std::string& names, T& value, const std::string& wanted,
                  bool (*allowed)(double), const std::string& unit, const std::string& text) {
    const auto read = [&value, wanted, allowed](const WrittenFlag& flag) {
      double number = 0;
      read_number(flag, wanted, allowed, number);
      value = number;
    };
    add(names, read, unit, text);
  }
  // With what parse_switch() takes.
  void add(const std::string& names, bool& value, const std::string& unit, const std::string& text);
  // A flag that stands for true by itself; --name=false and --noname are read, too.
  void add(const std::string& names, bool& value, const std::string& text);

  // An argument that is no flag, shown as its unit, in brackets if it may be left out. Arguments
  // are read in the order in which they were added, those that are needed first.
  enum class Needed : bool { kNo, kYes };
  void add_argument(const std::string& unit, std::string& value, const std::string& text,
                    Needed needed = Needed::kNo);
  // All that follow, one at least.
  void add_arguments(const std::string& unit, std::vector<std::string>& values,
                     const std::string& text);

  // Other spellings, listed at the end of --help. Those that are names of the program's own flags
  // are left out, so these have to be added before.
  void add_spellings(std::vector<FlagSpelling> spellings);

  // Returns the text of --help, at most 100 columns wide, or of --version, if that was asked for,
  // else "": programs print it, and do nothing else. Throws FlagError for unknown flags, with the
  // nearest name, for values and arguments that are missing, not wanted or not what the flag takes,
  // and for spellings that contradict each other.
  std::string parse(std::span<const char* const> arguments);

  // Whether it was added, e.g. "--seed", or is one of the spellings.
  bool has(const std::string& name) const;
  // Whether parse() saw this flag, e.g. "--seed", in any spelling.
  bool given(const std::string& name) const;
  // How it was written: "-n 3". With `otherwise` of add() if it was not.
  WrittenFlag flag(const std::string& name) const;
  // All that parse() saw, in our spelling.
  std::span<const WrittenFlag> line() const;

 private:
  struct State;
  class Reader;
  std::unique_ptr<State> state_;
};

}  // namespace belfry
