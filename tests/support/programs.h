// Runs programs as people run them.
#pragma once
#include <string>
#include <vector>

namespace belfry {

// The exit status, or -1 if the program did not start or was killed, and its output.
struct Finished {
  int status;
  std::string output, errors;
};

// A `path` without a slash is looked for on PATH.
Finished run_program(const std::string& path, const std::vector<std::string>& arguments);

// Runs a program of this build.
Finished run_built(const std::string& program, const std::vector<std::string>& arguments);

// The content of a file.
std::string text_of_file(const std::string& path);

// Runs scripts/check_trace, the independent checker. Status -1 if there is no python3, which
// scripts/setup installs.
Finished check_traces(const std::vector<std::string>& files);

// A name for a file that no other test writes to.
std::string temporary_path(const std::string& ending);

}  // namespace belfry
