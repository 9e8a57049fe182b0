// What the main functions of programs share.
#pragma once
#include <cstdio>
#include <functional>
#include <span>
#include <string>

#include "belfry/framework/base/error.h"
#include "belfry/framework/base/json.h"

namespace belfry {

// The last part of argv[0]; "program" for none.
std::string program_name(int argc, const char* const* argv);

// An error that ends run_program() with an exit code of its own.
class ExitError : public Error {
 public:
  ExitError(int code, const std::string& what) : Error(what), code_(code) {}
  int code() const { return code_; }

 private:
  int code_;
};

// Why standard output lacks some of what was printed: it is closed, say, or its disk is full. "" if
// it lacks nothing, or if its reader has gone (`| head -n 1`), which wanted no more.
std::string standard_output_failure();

// For a process that plans and then ends: what it frees stays its own, for what it allocates next.
// Each pass frees lists of many megabytes. The system would make their pages anew for the next.
void keep_freed_memory();

// The arguments behind argv[0].
std::span<const char* const> program_arguments(int argc, const char* const* argv);

// Calls body() and returns its exit code. What it throws becomes one line "error: ..." on standard
// error, and 2 if it was a FlagError or an OptionMistake, the code of an ExitError, else 1. The
// line of an OptionError names the option's flag, and "(the option NAME)" in any other becomes
// "(--NAME)". When body() has ended, standard_output_failure() becomes such a line, and 1 if the
// code was 0. SIGPIPE and SIGXFSZ are ignored from then on. Descriptors 0 to 2 are opened if they
// are closed, so that no file gets them. A stack that is too small for kernels becomes such a line,
// and 1, before body().
int run_program(const std::function<int()>& body);

// The same for a program without flags: --help prints what it does, and all else is refused.
int run_program_without_flags(int argc, const char* const* argv, const std::string& description,
                              const std::function<int()>& body);

// The same with one flag, --json=FILE. body() prints lines for people by what it is given, and adds
// what it finds to the object that is written there, which has the member "program".
int run_program_with_json(
    int argc, const char* const* argv, const std::string& description,
    const std::function<void(const std::function<void(const std::string&)>&, JsonValue&)>& body);

// A whole main function: parse(arguments, program name) gives flags, with what --help is to print
// in `help`, which is printed; else run(flags) returns the exit code.
template <class Parse, class Run>
int run_program(int argc, const char* const* argv, const Parse& parse, const Run& run) {
  return run_program([&] {
    const auto flags = parse(program_arguments(argc, argv), program_name(argc, argv));
    if (flags.help.empty()) return run(flags);
    std::fputs(flags.help.c_str(), stdout);
    return 0;
  });
}

}  // namespace belfry
