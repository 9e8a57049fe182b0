// Ends processes that a command would leave behind, even if the command itself is killed.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "belfry/trainers/commands/child_process.h"
#include "belfry/trainers/commands/descendants.h"

namespace belfry {

// The system kills the programs that a command starts when the command ends (start_child), but not
// what these have started: a program may be a shell script. This process adopts the orphans among
// them. It may be killed itself. So all of them have a mark in their environment, which they pass
// on to what they start, whatever process groups and sessions they make. A helper process waits
// until the command is gone, and then kills every process with the mark. It cannot find a process
// that has cleared its environment.
class OrphanWatch {
 public:
  static constexpr char kVariable[] = "BELFRY_COMMAND";

  // One thread calls this, while no other runs. Throws IoError if no process can be started.
  OrphanWatch();
  ~OrphanWatch();
  OrphanWatch(const OrphanWatch&) = delete;
  OrphanWatch& operator=(const OrphanWatch&) = delete;

  // The value of kVariable for the program of a rank. A command that such a program starts keeps
  // the mark of the first one.
  std::string value(int rank) const;
  // The rank whose program has started `process`; none if that has cleared its environment.
  std::optional<int> rank_of(pid_t process) const;
  // The programs that are still running, and everything that they have started.
  std::vector<Descendant> left() const { return descendants(spared_); }
  // Kills all of left().
  void end_all() const;

 private:
  std::string mark_;
  OpenFile alive_;  // closed when this process ends
  pid_t watcher_ = -1;
  std::vector<pid_t> spared_;  // it, and what ran before: a shell may have become the command
};

}  // namespace belfry
