// Common code of the main functions of programs.
#pragma once
#include <cstdio>
#include <functional>
#include <span>
#include <string>
#include <utility>

#include "belfry/framework/base/error.h"
#include "belfry/framework/base/json.h"

namespace belfry {

// The last part of argv[0]; "program" for none.
std::string program_name(int argc, const char* const* argv);

// The exit code of a program that ends with this error: 2 for a mistake (a FlagError or an
// OptionMistake), 1 for others, unless the error has one of its own.
int exit_code_of(const ErrorFields& error);

// Why standard output lacks a part of the printed text: it is closed, say, or its disk is full. ""
// if nothing is missing, or if the reader has gone (`| head -n 1`), which wanted no more.
std::string standard_output_failure();

// For a process that plans and then ends: it keeps freed memory for later allocations. Each pass
// frees lists of many megabytes. Otherwise the system would make their pages anew for the next
// pass.
void keep_freed_memory();

// The arguments behind argv[0].
std::span<const char* const> program_arguments(int argc, const char* const* argv);

// The line that run_program() prints for an error, without its end: "error: no such file".
std::string error_line(const std::exception& error);

// Calls body() and returns its exit code. An exception becomes one line "error: ..." on standard
// error, and exit_code_of() its code. Texts name flags instead of options (option_name.h). What is
// known of the exception goes to the error file, too (error_file.h). After body(),
// standard_output_failure() becomes such a line, and 1 if the code was 0. SIGPIPE and SIGXFSZ are
// ignored from the call on. Descriptors 0 to 2 are opened if they are closed, so that no file gets
// them. A stack that is too small for kernels becomes such a line, and 1, before body().
int run_program(const std::function<int()>& body);

// Runs a program without flags: --help prints the description, and all other arguments are refused.
int run_program_without_flags(int argc, const char* const* argv, const std::string& description,
                              const std::function<int()>& body);

// Runs a program whose only flag is --json=FILE. body() gets a function that prints lines for
// people, and the object for FILE, which has the member "program". It adds its results to the
// object.
int run_program_with_json(
    int argc, const char* const* argv, const std::string& description,
    const std::function<void(const std::function<void(const std::string&)>&, JsonValue&)>& body);

// A whole main function. parse(arguments, program name) gives the flags. If their `help` is not
// empty, it is printed; else run(flags) returns the exit code.
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
