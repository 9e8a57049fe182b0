// `belfry replay`: computes steps of a run again, to find which process computed wrong.
#pragma once
#include <span>
#include <string>

namespace belfry {

// Takes and returns what Subcommand::run does. It does not return if it starts the program.
int run_replay_command(std::span<const char* const> arguments, const std::string& program);

}  // namespace belfry
