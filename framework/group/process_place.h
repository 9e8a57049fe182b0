// The rank of a process, and the number of processes.
#pragma once
#include <string>

namespace belfry {

// Towers are numbered over all processes: with K devices each, rank r has r * K .. r * K + K - 1.
struct ProcessPlace {
  int rank = 0;
  int size = 1;
  // Each host has this many consecutive ranks; 1 if the hosts have different numbers.
  int per_host = 1;
  std::string str() const { return std::to_string(rank) + ',' + std::to_string(size); }
  bool operator==(const ProcessPlace&) const = default;
};

}  // namespace belfry
