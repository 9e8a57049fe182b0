// `belfry run`: starts a program as several processes of this machine, which train together.
#pragma once
#include <span>
#include <string>

namespace belfry {

// As Subcommand::run.
int run_run_command(std::span<const char* const> arguments, const std::string& program);

}  // namespace belfry
