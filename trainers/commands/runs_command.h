// `belfry runs`: a table over the runs below a folder.
#pragma once
#include <span>
#include <string>

namespace belfry {

// Takes and returns what Subcommand::run does.
int run_runs_command(std::span<const char* const> arguments, const std::string& program);

}  // namespace belfry
