#include "belfry/framework/base/host_cores.h"

#include <limits>
#include <sstream>

#include "belfry/framework/base/error.h"

namespace belfry {
namespace {

// The numbers that a file of the system begins with; none if there is no file, or it says "max".
std::vector<std::int64_t> numbers_in(FileSystem& files, const char* path) {
  std::vector<std::int64_t> numbers;
  try {
    const std::vector<std::byte> bytes = files.read(path);
    std::istringstream text({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
    for (std::int64_t number = 0; text >> number;) numbers.push_back(number);
  } catch (const Error&) {
  }
  return numbers;
}

}  // namespace

int core_limit(FileSystem& files) {
  std::vector<std::int64_t> times = numbers_in(files, "/sys/fs/cgroup/cpu.max");
  if (times.empty())
    for (const char* path :
         {"/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "/sys/fs/cgroup/cpu/cpu.cfs_period_us"})
      for (const std::int64_t time : numbers_in(files, path)) times.push_back(time);
  if (times.size() != 2 || times[0] <= 0 || times[1] <= 0) return 0;
  const std::int64_t cores = times[0] / times[1] + (times[0] % times[1] > 0 ? 1 : 0);
  return cores > std::numeric_limits<int>::max() ? 0 : static_cast<int>(cores);
}

}  // namespace belfry
