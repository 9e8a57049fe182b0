// `belfry plot`: draws what runs have noted of themselves.
#pragma once
#include <span>
#include <string>

namespace belfry {

// As Subcommand::run.
int run_plot_command(std::span<const char* const> arguments, const std::string& program);

}  // namespace belfry
