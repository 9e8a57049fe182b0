#include "belfry/trainers/machine/core_shares.h"

#include <algorithm>
#include <sstream>

#include <sched.h>
#include <unistd.h>

#include "belfry/framework/base/text.h"
#include "belfry/framework/device/cpu_quota.h"

namespace belfry {
namespace {

bool may_use(const ProcessCores& process, std::size_t core) {
  return core < process.allowed.size() && process.allowed[core];
}

auto count_on_host(std::span<const ProcessCores> all, const std::string& host) {
  return std::ranges::count(all, host, &ProcessCores::host);
}

}  // namespace

std::string ProcessCores::str() const {
  std::string cores;
  for (const bool may : allowed) cores += may ? '1' : '0';
  return cat(online, " ", quota, " ", cores.empty() ? "-" : cores, " ", host);
}

ProcessCores ProcessCores::read(const std::string& text) {
  std::istringstream words(text);
  ProcessCores process;
  std::string cores;
  words >> process.online >> process.quota >> cores >> process.host;
  for (const char core : cores) process.allowed.push_back(core == '1');
  return process;
}

ProcessCores own_cores(const std::string& host) {
  ProcessCores own{.host = host};
  own.online = static_cast<int>(std::max(1L, ::sysconf(_SC_NPROCESSORS_ONLN)));
  if (const auto quota = cpu_quota()) own.quota = std::max(1, static_cast<int>(*quota));
  cpu_set_t mask;
  CPU_ZERO(&mask);
  if (::sched_getaffinity(0, sizeof(mask), &mask) != 0) return own;
  for (int core = 0; core < CPU_SETSIZE; ++core) own.allowed.push_back(CPU_ISSET(core, &mask));
  while (!own.allowed.empty() && !own.allowed.back()) own.allowed.pop_back();
  return own;
}

int share_of_cores(std::span<const ProcessCores> all, int rank) {
  const ProcessCores& own = all[static_cast<std::size_t>(rank)];
  double share = 0;
  for (std::size_t core = 0; core < own.allowed.size(); ++core)
    if (own.allowed[core])
      share += 1.0 / static_cast<double>(std::ranges::count_if(all, [&](const ProcessCores& other) {
                 return other.host == own.host && may_use(other, core);
               }));
  if (own.quota > 0)
    share = std::min(share, own.quota / static_cast<double>(count_on_host(all, own.host)));
  constexpr double kRounding = 1e-6;
  return std::max(1, static_cast<int>(share + kRounding));
}

std::vector<std::string> narrow_processes(std::span<const ProcessCores> all) {
  std::vector<std::string> lines;
  for (const ProcessCores& process : all) {
    const auto cores = std::ranges::count(process.allowed, true);
    const int usable = process.quota > 0 ? std::min(process.quota, process.online) : process.online;
    const auto part = usable / count_on_host(all, process.host);
    lines.push_back(cores >= part || cores == 0
                        ? ""
                        : cat("rank ", lines.size(), " on ", process.host, " may use ", cores,
                              " of ", process.online, " cores, and its part of them is ", part));
  }
  return lines;
}

}  // namespace belfry
