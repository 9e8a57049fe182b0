// Ends processes that a command would leave behind, also when it is killed itself.
#pragma once
#include <string>

#include "belfry/trainers/commands/child_process.h"

namespace belfry {

// The system kills the programs that a command starts when the command ends (start_child), but not
// what these have started: a program may be a shell script. So they all have a mark in their
// environment, which they pass on, whatever groups and sessions they make. A process of its own
// waits until the command is gone, and then kills those that have the mark.
class OrphanWatch {
 public:
  static constexpr char kVariable[] = "BELFRY_COMMAND";

  // One thread calls this, while no other runs. Throws IoError if no process can be started.
  OrphanWatch();
  ~OrphanWatch();
  OrphanWatch(const OrphanWatch&) = delete;
  OrphanWatch& operator=(const OrphanWatch&) = delete;

  // The value of kVariable for the programs. A command that such a program starts keeps the mark of
  // the first one.
  std::string value() const;
  // Kills the marked processes that are left.
  void end_all() const;

 private:
  std::string mark_;
  OpenFile alive_;  // closed when this process ends
  pid_t watcher_ = -1;
};

}  // namespace belfry
