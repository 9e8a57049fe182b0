// The files in the directory of a run (runs/run_directory.h).
#pragma once
#include <string>

#include "belfry/framework/base/file_system.h"

namespace belfry {

inline constexpr char kConfigFile[] = "config.json", kStatsFile[] = "stats.jsonl",
                      kLogFile[] = "log.txt", kPlacementFile[] = "placement.txt",
                      kHashesFile[] = "hashes.jsonl", kSummaryFile[] = "summary.json",
                      kGraphFile[] = "graph.safetensors", kDifferenceFile[] = "difference.json";

// Whether a run keeps its configuration, statistics or another of these files at a path, which is
// resolved.
bool is_run_file(FileSystem& files, const std::string& path);

}  // namespace belfry
