// Why a node is where it is, and how it is divided: the answer of Graph::explain, Session::explain
// and explain_step.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace belfry {

// Devices are named in full. `requested` is as the user wrote it.
struct Explanation {
  // A scope, setter or colocation that shaped the request, in the order of application.
  struct Scope {
    std::string file;  // without directories
    int line = 0;
    std::string what;
  };
  // A device of the session. If `kept`, it may be chosen; `reason` says why, or why not.
  struct Candidate {
    std::string device;
    bool kept = false;
    std::string reason;
  };
  // `whom` must share the device of `who`, with everything that is colocated with either.
  struct Pull {
    std::string who, whom;
    std::string why;  // "reference edge", "colocation group w"
  };

  // How a step cuts an output into the shards of its device's batch.
  struct DividedOutput {
    std::string type;                   // of the whole
    std::string division;               // "whole", "2 rows of each sample", "partial sums"
    std::vector<std::string> added_by;  // fusions that add up its partial sums
  };
  // A whole tensor planned in addition to the shards of an output, for nodes that run once.
  struct WholeCopy {
    std::string name;
    std::int64_t bytes = 0;
    std::vector<std::string> users;
  };

  std::string node, type;
  std::string requested;  // "" for none
  std::string device;     // "" where only the graph is known
  std::vector<Scope> scopes;
  // The nodes that must share its device, without itself. From Graph::explain: the colocation
  // groups that it requests.
  std::vector<std::string> colocation;
  std::vector<Pull> pulls;
  std::vector<Candidate> candidates;
  // Elements per device, if a setter decided.
  std::map<std::string, std::int64_t> load;
  std::string fallback;  // what soft placement gave up, "" for nothing
  // From explain_step. `fused_into` is the launch that does the node's work together with other
  // nodes, or "". `shards` are those of its device, 0 if no step with this node was inspected.
  // `runs` is how often the launch runs.
  std::string fused_into;
  int shards = 0, runs = 0;
  std::vector<DividedOutput> outputs;
  std::vector<WholeCopy> copies;

  // For people, in several lines.
  std::string str() const;

 private:
  std::string step_text() const;
};

}  // namespace belfry
