// `belfry trace summary`: where the time of a traced step goes.
#pragma once
#include <span>
#include <string>

namespace belfry {

// Takes and returns what Subcommand::run does.
int run_trace_command(std::span<const char* const> arguments, const std::string& program);

}  // namespace belfry
