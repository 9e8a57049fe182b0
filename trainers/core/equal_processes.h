// Checks that all processes of a training have the same variables, and names the one that has not.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "belfry/framework/base/json.h"
#include "belfry/framework/group/processes.h"
#include "belfry/framework/run/session.h"

namespace belfry {

// The check hashes of what all processes have alike: variables, and slots of which each process
// does not keep a part.
struct ReplicaHashes {
  std::int64_t steps = -1;                 // after so many
  std::vector<std::string> names = {};     // in their order
  std::vector<std::uint64_t> hashes = {};  // by these

  std::uint64_t all() const;  // one for all, never 0
};
// check_hash() of its value, which is not copied where the host has it.
std::uint64_t check_hash_of(Session& session, Variable variable);
ReplicaHashes replica_hashes(Session& session, const Graph& graph, std::int64_t steps);

// What the processes had when they differed. A run keeps it, until the steps before it have been
// computed again.
struct ReplicaDifference {
  struct Replica {
    std::string host;
    std::vector<std::string> hashes;  // by `variables`
    bool operator==(const Replica&) const = default;
  };

  // A step, counted from 1, with the loss of each tower: what a process with wrong variables
  // computes spoils the variables of all in the next update, but its loss is its own.
  struct Losses {
    std::int64_t step = 0;
    std::vector<double> of_towers;
    bool operator==(const Losses&) const = default;
  };

  std::int64_t steps = 0;
  std::vector<std::string> variables;  // those that differ, by their names
  std::vector<Replica> replicas;       // by rank
  std::vector<Losses> losses = {};     // of the steps since variables were equal

  JsonValue json() const;
  // Throws InvalidArgument unless it is a result of json().
  static ReplicaDifference read(const JsonValue& json);
  bool operator==(const ReplicaDifference&) const = default;

  // Which of them are wrong, if these are the right hashes after the same step: "rank 1 on node7
  // had wrong bits in 'fc0/W' after step 130, ...".
  std::string judged_by(const ReplicaHashes& right) const;
  // Which of them were wrong before a step, if these are the right losses of its towers: those with
  // another loss; "" if none has, or if all have.
  std::string judged_by(const Losses& right) const;
};

// In all processes.
class ReplicasDiffer : public CorruptionError {
 public:
  ReplicasDiffer(const std::string& text, ReplicaDifference difference)
      : CorruptionError(text), difference_(std::move(difference)) {}
  const ReplicaDifference& difference() const { return difference_; }
  void add(std::vector<ReplicaDifference::Losses> losses) {
    difference_.losses = std::move(losses);
  }

 private:
  ReplicaDifference difference_;
};

// All processes call it with their hashes after one step. Throws ReplicasDiffer in all of them
// unless these are equal. It names the ranks that differ from most of the others, and the first
// variable. If as many have other bits (as of two processes), it says that it cannot tell which of
// them are right. Processes that agree exchange 16 characters each.
void require_equal_processes(Processes& processes, const ReplicaHashes& own);

// Before all processes throw one error: returns when all have got so far, or one has failed. Who
// throws first ends the others, which may still be receiving what they need to know.
void wait_for_all(Processes& processes);

}  // namespace belfry
