// `belfry machine`: what moving and adding bytes costs here.
#pragma once
#include <span>
#include <string>

namespace belfry {

// Takes and returns what Subcommand::run does.
int run_machine_command(std::span<const char* const> arguments, const std::string& program);

}  // namespace belfry
