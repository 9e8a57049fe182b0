// Texts about a program's flags: --help, a script for bash, and a page of docs.
#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "belfry/trainers/options/option.h"

namespace belfry {

// The group of another program's spellings, which comes last.
inline constexpr std::string_view kOtherProgram = "As in tf_cnn_benchmarks";

// An argument that is no flag.
struct ArgumentRow {
  std::string unit;  // "FOLDER"
  std::string text;
  bool needed = false;
  bool several = false;  // takes all arguments that follow
};

// --help, with lines of at most 100 columns. Rows without a text are not listed.
struct HelpText {
  std::string description;
  std::string program;
  std::span<const OptionRow> rows;
  std::vector<ArgumentRow> arguments = {};

  std::string str() const;
  // The groups whose names begin with these letters, in either case. Throws FlagError, with all
  // groups, if there is none.
  std::string group(std::string_view name) const;
};

// A script that tells bash the flags of a program, and the words that they take.
std::string completion_script(std::string_view program, std::span<const OptionRow> rows);

// The words of a row's unit: "drop" and "pad" of "drop|pad"; none if it takes other values, too.
std::vector<std::string_view> words_of(const OptionRow& row);

// A table of Markdown for each group, except those of other programs' spellings.
std::string flag_tables(std::span<const OptionRow> rows);

}  // namespace belfry
