// `belfry plot`: draws the records of runs.
#pragma once
#include <span>
#include <string>

namespace belfry {

// Takes and returns what Subcommand::run does.
int run_plot_command(std::span<const char* const> arguments, const std::string& program);

}  // namespace belfry
