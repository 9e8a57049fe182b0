// Divides the cores of hosts among the processes of one training.
#pragma once
#include <span>
#include <string>
#include <vector>

namespace belfry {

struct ProcessCores {
  std::string host;
  std::vector<bool> allowed;  // the cores that the process may use, by number
  int online = 1;             // cores of the host
  int quota = 0;              // cores that control groups leave the processes of the host; 0: all

  // The text that other processes read().
  std::string str() const;
  static ProcessCores read(const std::string& text);
};

// The cores of this process.
ProcessCores own_cores(const std::string& host);

// The number of workers of process `rank`, at least 1. A core that n processes may use counts 1 / n
// for each. So a process gets all cores that only it may use, and a share of the others. The
// processes of a host together take no more than the quota.
int share_of_cores(std::span<const ProcessCores> all, int rank);

// One line for each process that may use fewer cores than its part of the host, e.g. because mpirun
// binds each process to one core; "" for every other process.
std::vector<std::string> narrow_processes(std::span<const ProcessCores> all);

}  // namespace belfry
