// Finds checkpoints by their own path, or by the directory of their run.
#pragma once
#include <functional>
#include <string>
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

// All checkpoints of a run directory, by step. Names that saves use for their work are left out.
// Throws NotFoundError if there are none.
std::vector<RunCheckpoint> checkpoints_of_run(const std::string& run,
                                              FileSystem& files = local_file_system());

// Calls `visit` once with the path of each checkpoint of a run, by step. The run may still go on:
// it removes some that were listed, and saves others. If `visit` throws NotFoundError, they are
// listed again. Throws IoError if none could be visited in ten lists.
void visit_checkpoints(const std::string& run, const std::function<void(const std::string&)>& visit,
                       FileSystem& files = local_file_system());

// The checkpoint that `path` stands for: `path` itself, or for a run directory the target of its
// link `latest`. Without such a link it is the checkpoint of the last step.
std::string checkpoint_at(const std::string& path, FileSystem& files = local_file_system());

}  // namespace belfry
