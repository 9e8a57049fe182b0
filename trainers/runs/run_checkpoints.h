// Finds checkpoints by their own path, or by the directory of their run.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "belfry/framework/base/file_system.h"

namespace belfry {

struct RunCheckpoint {
  std::string name;  // "step-00000040"
  std::string path;
  bool is_latest = false, is_best = false;  // links of the run lead to it
};

// Whether there is a folder `checkpoints` in `path`.
bool is_run_directory(const std::string& path, FileSystem& files = local_file_system());

// The run directory that `path` is, or that keeps it as a checkpoint; "" if there is none.
std::string run_of(const std::string& path, FileSystem& files = local_file_system());

// All checkpoints of a run directory, by step. Temporary names of unfinished saves are left out.
// Throws NotFoundError if there are none.
std::vector<RunCheckpoint> checkpoints_of_run(const std::string& run,
                                              FileSystem& files = local_file_system());

// Calls `visit` once with the path of each checkpoint of a run, by step. The run may still be
// training, and so remove listed checkpoints and save others. If `visit` throws NotFoundError, the
// checkpoints are listed again. Throws IoError if none could be visited in ten lists.
void visit_checkpoints(const std::string& run, const std::function<void(const std::string&)>& visit,
                       FileSystem& files = local_file_system());

// Which checkpoint of a run to take.
struct CheckpointChoice {
  enum class Kind : std::uint8_t { kBest, kLatest, kStep } kind = Kind::kBest;
  std::int64_t step = 0;  // of kStep

  std::string str() const;  // as parse_checkpoint_choice() reads it
};
// Reads "best", "latest" or a step. Throws InvalidArgument.
CheckpointChoice parse_checkpoint_choice(std::string_view text);

// The checkpoint that `path` stands for: `path` itself, or one of a run directory. That is the one
// that `choice` names; by default the best one, or the latest if the run had no metric for the
// best. Throws NotFoundError if the run lacks the requested one, and InvalidArgument for a choice
// if `path` is no run.
std::string checkpoint_at(const std::string& path, std::optional<CheckpointChoice> choice = {},
                          FileSystem& files = local_file_system());

// The checkpoint to which the run's link `latest` leads. Without such a link, the one of the last
// step.
std::string latest_checkpoint_of(const std::string& run, FileSystem& files = local_file_system());

}  // namespace belfry
