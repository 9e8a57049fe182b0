// The commands of `belfry checkpoint`: each looks at checkpoints that runs have saved, or moves
// weights in and out of them.
#pragma once
#include <span>
#include <string>

namespace belfry {

// The commands ls, verify, diff, export and import. Takes and returns what Subcommand::run does.
int run_checkpoint_command(std::span<const char* const> arguments, const std::string& program);

}  // namespace belfry
