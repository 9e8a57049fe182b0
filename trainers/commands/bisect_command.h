// `belfry bisect`: finds the step at which two runs diverge.
#pragma once
#include <span>
#include <string>

namespace belfry {

// Takes and returns what Subcommand::run does.
int run_bisect_command(std::span<const char* const> arguments, const std::string& program);

}  // namespace belfry
