#include "belfry/trainers/util/run_files.h"

#include <algorithm>
#include <string_view>

#include "belfry/framework/base/text.h"

namespace belfry {

bool is_run_file(FileSystem& files, const std::string& path) {
  constexpr std::string_view kNames[] = {kConfigFile, kStatsFile,   kLogFile,   kPlacementFile,
                                         kHashesFile, kSummaryFile, kGraphFile, kDifferenceFile};
  const std::size_t cut = path.rfind('/');
  if (cut == path.npos || std::ranges::find(kNames, path.substr(cut + 1)) == std::end(kNames))
    return false;
  const auto is_there = [&](const char* name) {
    return files.target_kind(cat(path.substr(0, cut), "/", name)) == FileKind::kFile;
  };
  return is_there(kConfigFile) && is_there(kStatsFile);
}

}  // namespace belfry
