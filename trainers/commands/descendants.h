// Finds the processes that descend from this one.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <sys/types.h>

namespace belfry {

// A process that runs.
struct Descendant {
  pid_t pid = 0, parent = 0, group = 0;
  std::uint64_t caught = 0, ignored = 0;  // bit N - 1 for signal N
  // A fork of its parent that still has the parent's signal handlers: it may be about to start a
  // program.
  bool is_copy = false;
  std::string name = {};  // of its program

  bool catches(int signal) const { return has(caught, signal); }
  bool ignores(int signal) const { return has(ignored, signal); }

 private:
  static bool has(std::uint64_t signals, int signal) { return (signals >> (signal - 1) & 1) != 0; }
};

// From now on, a descendant of this process becomes its child when the descendant's own parent
// ends. So descendants() always finds it, whatever process group, session or environment it has.
void adopt_orphans();

// The processes that this one has started, those that these have started, and so on, but not those
// in `spared` and their descendants. Empty where the system lists no processes (/proc).
std::vector<Descendant> descendants(std::span<const pid_t> spared);

}  // namespace belfry
