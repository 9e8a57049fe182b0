#include "belfry/trainers/machine/gpu_shares.h"

#include <algorithm>
#include <iterator>
#include <sstream>

#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"

namespace belfry {
namespace {

std::vector<std::string> sorted_uuids(const ProcessGpus& process) {
  std::vector<std::string> uuids = process.uuids;
  std::ranges::sort(uuids);
  return uuids;
}

std::string seen_by(std::span<const ProcessGpus> all, std::size_t rank) {
  return cat("rank ", rank, " on ", all[rank].host, " sees ", join(all[rank].uuids));
}

// Throws unless processes of a host see the same GPUs, or none in common.
void require_same_or_disjoint(std::span<const ProcessGpus> all) {
  for (std::size_t r = 0; r < all.size(); ++r)
    for (std::size_t s = 0; s < r; ++s) {
      if (all[r].host != all[s].host) continue;
      const std::vector<std::string> one = sorted_uuids(all[s]), other = sorted_uuids(all[r]);
      std::vector<std::string> both;
      std::ranges::set_intersection(one, other, std::back_inserter(both));
      if (both.empty() || one == other) continue;
      throw InvalidArgument(cat(
          seen_by(all, s), ", and ", seen_by(all, r),
          ": processes of one host see the same GPUs, or none in common; set CUDA_VISIBLE_DEVICES "
          "alike for all, or give each its own"));
    }
}

}  // namespace

std::string ProcessGpus::str() const {
  std::string text = host;
  for (const std::string& uuid : uuids) text += " " + uuid;
  return text;
}

ProcessGpus ProcessGpus::read(const std::string& text) {
  std::istringstream words(text);
  ProcessGpus process;
  words >> process.host;
  for (std::string uuid; words >> uuid;) process.uuids.push_back(uuid);
  return process;
}

ProcessGpus own_gpus(const std::string& host, const Gpus& found) {
  ProcessGpus own{.host = host, .uuids = {}};
  for (int gpu = 0; gpu < found.count(); ++gpu) own.uuids.push_back(found.backend()->uuid(gpu));
  return own;
}

std::vector<int> share_of_gpus(std::span<const ProcessGpus> all, int rank, bool several_ranks) {
  require_same_or_disjoint(all);
  const ProcessGpus& own = all[static_cast<std::size_t>(rank)];
  const std::vector<std::string> sorted = sorted_uuids(own);
  std::vector<int> sharers;  // ranks, this one included
  bool number_alike = true;
  for (int r = 0; r < std::ssize(all); ++r) {
    const ProcessGpus& other = all[static_cast<std::size_t>(r)];
    if (other.host != own.host || sorted_uuids(other) != sorted) continue;
    sharers.push_back(r);
    number_alike = number_alike && other.uuids == own.uuids;
  }
  // Neighbours in number share a switch or a socket, where the launcher has bound the process.
  // UUIDs are random, but all processes sort them alike.
  const std::vector<std::string>& gpus = number_alike ? own.uuids : sorted;
  const std::size_t count = gpus.size(), processes = sharers.size();
  require(count >= processes || several_ranks || count == 0, processes, " processes on ", own.host,
          " would share ", count, " GPUs (", join(gpus),
          "), and NCCL takes one GPU for one process; start no more processes than GPUs");
  const auto place = static_cast<std::size_t>(std::ranges::find(sharers, rank) - sharers.begin());
  const std::size_t each = std::max<std::size_t>(count / processes, 1);
  const std::size_t first = count >= processes ? place * each : place * count / processes;
  std::vector<int> share;
  for (std::size_t i = first; i < std::min(first + each, count); ++i)
    share.push_back(static_cast<int>(std::ranges::find(own.uuids, gpus[i]) - own.uuids.begin()));
  std::ranges::sort(share);
  return share;
}

}  // namespace belfry
