// How the processes of one training share the cores of their hosts.
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

  // For other processes to read().
  std::string str() const;
  static ProcessCores read(const std::string& text);
};

// Of this process.
ProcessCores own_cores(const std::string& host);

// How many workers process `rank` takes, at least 1: a core that n processes may use counts 1 / n.
// So processes on disjoint cores take all of their own, and equal ones divide theirs. The processes
// of a host together take no more than the quota.
int share_of_cores(std::span<const ProcessCores> all, int rank);

// One line for each process that may use fewer cores than its part of the host, e.g. as mpirun
// binds each to one; "" in place of those that may not.
std::vector<std::string> narrow_processes(std::span<const ProcessCores> all);

}  // namespace belfry
