// An option of a run, as a row of a table. Loops over rows make flags and --help, configurations,
// what processes must agree on, the fingerprint of a run, reports, and refusals.
#pragma once
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "belfry/framework/base/json.h"
#include "belfry/framework/base/option_name.h"
#include "belfry/framework/base/text.h"
#include "belfry/trainers/options/own_option.h"
#include "belfry/trainers/util/flag_values.h"

namespace belfry {

// What another value of an option changes about a run.
enum class Scope {
  kResults,       // another run: the option is part of the fingerprint of a run
  kExecution,     // the same run, carried out in another way or to another length
  kRunDirectory,  // the same run, but its directory keeps other files
  kThisCall       // only this call of the program: no configuration keeps the option
};

// The properties of a trainer that rows need to know.
struct TrainerFacts {
  std::string name;
  bool takes_one_device = false;  // and no more
  bool combines = false;          // it combines the towers' gradients before they update variables
  bool linear = true;             // ... by a function that is linear in them
  bool updates_between = false;   // it has updates between the batches of a step
  bool takes_async = false;
  bool spreads_variables = false;
  bool replicates_variables = false;
  bool packs_gradients = false;
  bool makes_buckets = false;
  bool takes_partition = false;
};

// What a row's answer depends on besides the options, and how the answer names options.
struct OptionQuestion {
  TrainerFacts kind;
  int processes = 1;
  std::string trainer;  // "the trainer async", or "--trainer=async"
  // An option with its value: "async=free", or the flag as the user wrote it.
  std::function<std::string(std::string_view name)> written;

  // What to write instead: "precision=bf16", or "--precision=bf16" in programs.
  std::string other(std::string_view text) const { return option_name(text); }
};

// The end of a refusal by a trainer that combines no gradients.
inline constexpr std::string_view kCombinesNone =
    " combines none: each tower updates the variables by its own; leave it out, or use the trainer "
    "replicated";

// The members of a row that do not depend on the struct that holds the option.
struct OptionRow {
  std::string name;  // "bucket_mb"; its flag is --bucket_mb
  std::string unit;  // of the value; "drop|pad" if it is one of these words; "": true or false
  // What it does, for --help and docs/flags.md. There an option in backquotes, `seed`, is --seed.
  std::string text;
  std::string otherwise = {};  // the default, for people; "" if the text has it
  std::string here = {};       // what --help adds about this machine
  std::string group = {};      // the heading in --help
  Scope scope = Scope::kExecution;
  bool own_process = false;    // processes may differ in it
  bool needs_run_dir = false;  // it needs a run directory, as options of scope kRunDirectory do
  bool kept = false;  // a resumed run keeps its value, as with kRunDirectory, unless it is given
  bool combines = false;     // it is about combining gradients, so it has no use with one device
  bool of_training = false;  // it is about files of a training run, so inspections refuse it
  bool trains = false;       // it is about training alone, so an evaluation alone refuses it
  // The default depends on the devices and other options. So a configuration records the value
  // under `chosen`, and has the option itself only if it was given.
  bool chosen = false;
  bool noted = true;       // a configuration has the option even if it has the default
  bool reported = false;   // it is in the JSON report, as all options of scope kResults are
  bool benchmarks = true;  // programs that only measure have it, too
  bool compared = true;    // it works with --check_equivalence, which tries all trainers
  std::string words = {};  // "the seed"; "": "the option NAME"
  std::string key = {};    // its name in identities; "": `name`
  char letter = 0;         // of the short flag, -n
  char separator = 0;  // joins the values of a flag that is given several times; 0: the last wins
  std::vector<std::string> older = {};  // other names, which --help does not list
  // Its names in other programs or earlier versions: the error for such a flag names this one.
  std::vector<std::string> elsewhere = {};
  // Whether trainers of a kind take the option; null: all do. The sentence of those that do not
  // follows the option and its value: " has no use for ...".
  bool (*taken)(const TrainerFacts& kind) = nullptr;
  std::string (*not_taken)(const OptionQuestion& asking) = nullptr;

  std::vector<OwnOption::Choice> stands_for = {};  // values that stand for other options
  std::string only_of = {};  // the trainer whose own option it is; "": it is none
  bool of_program = false;   // the recipe's own

  bool is_taken_by(const TrainerFacts& kind) const {
    return (!taken || taken(kind)) && (only_of.empty() || only_of == kind.name);
  }
  // Why this trainer does not take it; "" if it does.
  std::string refusal_of(const OptionQuestion& asking) const;
  bool is_about_run_dir() const { return needs_run_dir || scope == Scope::kRunDirectory; }
  // Whether an evaluation alone has no use for it.
  bool is_about_training() const { return trains || combines || is_about_run_dir(); }
  // The text with the default, in which options are flags.
  std::string help() const;
  std::string in_words() const { return words.empty() ? cat("the option ", name) : words; }
  const std::string& fingerprint_key() const { return key.empty() ? name : key; }
};

// A row for a field of S.
template <class S>
struct Option : OptionRow {
  // Sets the field. Throws FlagError for a value that the option never takes.
  std::function<void(S&, const WrittenFlag&)> read = {};
  // The value, null for none. Options without this function are known as they were written.
  std::function<JsonValue(const S&)> value = {};
  // Why these options contradict each other or this trainer; "" if they do not. It follows the
  // option and its value: " has no use for ...".
  std::function<std::string(const S&, const OptionQuestion&)> refusal = {};
  // The same, asked only if the option was given.
  std::function<std::string(const S&, const OptionQuestion&)> refusal_if_given = {};
  std::function<std::string()> start = {};  // gives what is read if the option is not given
};

template <class S>
using Options = std::vector<Option<S>>;

// The option of a part of a Whole; part(whole) is that part.
template <class Whole, class S, class Part>
Option<Whole> of_part(const Option<S>& option, Part part) {
  // None of these functions changes the options.
  const auto look = [part](const Whole& whole) -> decltype(auto) {
    return part(const_cast<Whole&>(whole));
  };
  Option<Whole> lifted{OptionRow(option)};
  lifted.start = option.start;
  lifted.read = [part, read = option.read](Whole& whole, const WrittenFlag& flag) {
    auto&& held = part(whole);
    read(held, flag);
  };
  if (option.value)
    lifted.value = [look, value = option.value](const Whole& whole) { return value(look(whole)); };
  const auto asked = [look](const auto& refusal) {
    return [look, refusal](const Whole& whole, const OptionQuestion& asking) {
      return refusal(look(whole), asking);
    };
  };
  if (option.refusal) lifted.refusal = asked(option.refusal);
  if (option.refusal_if_given) lifted.refusal_if_given = asked(option.refusal_if_given);
  return lifted;
}

// Adds options of a part, in a group of --help.
template <class Whole, class S, class Part>
void add_part(Options<Whole>& all, const Options<S>& options, std::string_view group, Part part) {
  for (const Option<S>& option : options) {
    all.push_back(of_part<Whole>(option, part));
    all.back().group = group;
  }
}

// The option of that name; null if there is none.
template <class S>
const Option<S>* find_option(const Options<S>& all, std::string_view name) {
  for (const Option<S>& option : all)
    if (option.name == name) return &option;
  return nullptr;
}

// `text` with a flag for each option in backquotes: "--seed" for "`seed`".
std::string with_flags(std::string_view text);

// A value as text, the same for 4 and 4.0, and for true and 1. Commas join an array; "" for null.
std::string text_of(const JsonValue& value);

}  // namespace belfry
