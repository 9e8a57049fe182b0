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
struct OptionRow;

// Reads --name=value and --name value. `-` and `_` are alike in names, and the last of several
// values wins, unless the row has a separator, which joins them. A flag with a letter is also read
// as -n value, -nvalue and -n=value. parse() sets the variables of flags in the order in which the
// flags were added.
class FlagParser {
 public:
  FlagParser(std::string description, std::string program);
  ~FlagParser();

  // The heading in --help of the flags that are added next.
  void group(std::string name);
  // Adds a flag with a value; with a letter, add("-n,--iters", ...). `read` gets the flag if it is
  // given. If not, it gets `otherwise`, as if that had been written; "": it is not called. A row
  // may have a group, which is its heading (option_flags.h), and `start` may find what `otherwise`
  // is: parse() calls it, if at all.
  using Read = std::function<void(const WrittenFlag&)>;
  void add(OptionRow row, Read read, std::function<std::string()> start);
  void add(const std::string& names, Read read, const std::string& unit, const std::string& text,
           const std::string& otherwise = "");
  // Takes any text. `value` keeps its content unless the flag is given; the same holds below.
  void add(const std::string& names, std::string& value, const std::string& unit,
           const std::string& text);
  // Takes a whole number in [least, most].
  template <class T>
  void add(const std::string& names, T& value, std::type_identity_t<T> least,
           std::type_identity_t<T> most, const std::string& unit, const std::string& text) {
    const auto read = [&value, least, most](const WrittenFlag& flag) {
      read_integer(flag, least, most, value);
    };
    add(names, read, unit, text);
  }
  // Takes a value that `make` makes from the flag, or from its text. If it takes the text, errors
  // of `make` are turned into errors about the flag. `otherwise` as above.
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
  // Takes a finite number for which `allowed` is true; `wanted` describes such numbers
  // (read_number()). T is double or std::optional<double>.
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
  // Takes what parse_switch() reads.
  void add(const std::string& names, bool& value, const std::string& unit, const std::string& text);
  // A switch: without a value it sets true. --name=false and --noname are read, too.
  void add(const std::string& names, bool& value, const std::string& text);

  // Adds an argument that is no flag. --help shows its unit, in brackets if it may be left out.
  // Arguments are read in the order in which they were added, needed ones first.
  enum class Needed : bool { kNo, kYes };
  void add_argument(const std::string& unit, std::string& value, const std::string& text,
                    Needed needed = Needed::kNo);
  // Takes all arguments that follow, at least one.
  void add_arguments(const std::string& unit, std::vector<std::string>& values,
                     const std::string& text);

  // Adds other spellings, which --help lists at its end. A spelling that is the name of a flag is
  // left out, so the program's own flags must be added before.
  void add_spellings(std::vector<FlagSpelling> spellings);

  // Returns the text of --help, at most 100 columns wide, or of --help=GROUP, --version or
  // --completion, if one of these flags is given, else "". Programs print it, and do nothing else.
  // Throws FlagError for unknown flags, with the nearest name, and for spellings that contradict
  // each other. Also throws it for values and arguments that are missing, unexpected, or of the
  // wrong kind. The first `of_file` arguments come from a file (WrittenFlag::of_file).
  std::string parse(std::span<const char* const> arguments, std::size_t of_file = 0);

  // Whether parse() adds this flag, by its name without dashes: "help".
  static bool is_of_all(std::string_view name);
  // Whether the flag, e.g. "--seed", was added, or is a spelling.
  bool has(const std::string& name) const;
  // Whether parse() saw this flag, e.g. "--seed", in any spelling.
  bool given(const std::string& name) const;
  // The flag as written: "-n 3". If it was not given, it has the value `otherwise` of add().
  WrittenFlag flag(const std::string& name) const;
  // All flags that parse() saw, in our spelling.
  std::span<const WrittenFlag> line() const;
  // row(): the row of a flag, by its name without dashes; null if there is none. rows(): those of
  // all flags and spellings.
  const OptionRow* row(std::string_view name) const;
  std::span<const OptionRow> rows() const;

 private:
  struct State;
  class Reader;
  std::unique_ptr<State> state_;
};

}  // namespace belfry
