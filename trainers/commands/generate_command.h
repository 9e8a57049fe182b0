// `belfry generate`: a trained model continues text.
#pragma once
#include <span>
#include <string>

namespace belfry {

// Takes and returns what Subcommand::run does.
int run_generate_command(std::span<const char* const> arguments, const std::string& program);

}  // namespace belfry
