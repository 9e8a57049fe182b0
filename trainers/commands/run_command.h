// `belfry run`: starts a program as several processes of this machine, which train together.
#pragma once
#include <span>
#include <string>

namespace belfry {

// Takes and returns what Subcommand::run does.
int run_run_command(std::span<const char* const> arguments, const std::string& program);

}  // namespace belfry
