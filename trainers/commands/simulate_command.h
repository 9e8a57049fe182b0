// `belfry simulate`: what training would do on machines that are not here.
#pragma once
#include <span>
#include <string>

namespace belfry {

// Takes and returns what Subcommand::run does.
int run_simulate_command(std::span<const char* const> arguments, const std::string& program);

}  // namespace belfry
