// Common code of the main functions of programs.
#pragma once
#include <cstdio>
#include <functional>
#include <span>
#include <string>
#include <utility>

#include "belfry/framework/base/error.h"

namespace belfry {

// The last part of argv[0]; "program" for none.
std::string program_name(int argc, const char* const* argv);

// The exit code of a program that has found bits which flipped. A restart is right; if it
// happens again, on other machines.
inline constexpr int kCorruptedExitCode = 76;

// The exit code of a program that ends with this error: 2 for a mistake (a FlagError or an
// OptionMistake), kCorruptedExitCode for a CorruptionError, 1 for others, unless the error has one
// of its own.
int exit_code_of(const ErrorFields& error);

// Why a part of the printed text did not reach standard output, for example because it is closed or
// its disk is full. "" if nothing is missing, or if the reader has exited because it wanted no more
// (`| head -n 1`).
std::string standard_output_failure();

// For a process that plans and then ends: keeps freed memory for later allocations, instead of
// returning it to the system. Each pass frees lists of many megabytes, and the system would
// otherwise have to provide their pages anew for the next pass.
void keep_freed_memory();

// The arguments after argv[0].
std::span<const char* const> program_arguments(int argc, const char* const* argv);

// The line that run_program() prints for an error, without the line break: "error: no such file".
std::string error_line(const std::exception& error);

// Calls body() and returns its exit code. An exception becomes one line "error: ..." on standard
// error. Its code is exit_code_of(). Texts name flags instead of options (option_name.h). The
// fields of the exception also go to the error file (error_file.h). After body(),
// standard_output_failure() is printed in the same way, and an exit code of 0 becomes 1. SIGPIPE
// and SIGXFSZ are ignored from the call on. Descriptors 0 to 2 are opened if they are closed, so
// that no file gets them. If the stack is too small for kernels, it prints such a line and returns
// 1, without calling body().
int run_program(const std::function<int()>& body);

// Runs a program without flags: --help prints the description, and all other arguments are refused.
int run_program_without_flags(int argc, const char* const* argv, const std::string& description,
                              const std::function<int()>& body);

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
