// Programs with commands: `belfry checkpoint ls`.
#pragma once
#include <cstdio>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace belfry {

// A word of the command line that names a command. It either runs, or has a list of further
// commands.
struct Subcommand {
  std::string name;
  std::string summary;  // for --help of the program that it belongs to
  // Gets the words after the name; `program` is the command line up to and including it: "belfry
  // checkpoint ls". Returns the exit code.
  std::function<int(std::span<const char* const> arguments, const std::string& program)> run;
  std::vector<std::string> commands =
      {};  // further commands, for a hint if the user leaves out this word
};

// Runs the command that the first argument names, and returns its exit code. For --help and help it
// prints the commands. Throws FlagError, with the names, for no command and for an unknown one.
int run_subcommand(std::span<const Subcommand> commands, const std::string& description,
                   std::span<const char* const> arguments, const std::string& program);

// Makes `run` of a Subcommand. parse(arguments, program) gives flags. If their `help` has a text
// for --help, it is printed; else run(flags) returns the exit code.
template <class Parse, class Run>
auto subcommand_of(const Parse& parse, const Run& run) {
  return [=](std::span<const char* const> arguments, const std::string& program) {
    const auto flags = parse(arguments, program);
    if (flags.help.empty()) return run(flags);
    std::fputs(flags.help.c_str(), stdout);
    return 0;
  };
}

}  // namespace belfry
