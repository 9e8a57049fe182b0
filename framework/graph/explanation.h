// Why a node is where it is, and how it is divided: what Graph::explain, Session::explain and
// explain_step answer.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace belfry {

// Devices are named in full, but for the request, which is as it was asked for.
struct Explanation {
  // A scope, setter or colocation that shaped the request, in the order of application.
  struct Scope {
    std::string file;  // without directories
    int line = 0;
    std::string what;
  };
  // A device of the session. What is kept may be chosen; `reason` says why it was or was not.
  struct Candidate {
    std::string device;
    bool kept = false;
    std::string reason;
  };
  // `who` has `whom` on its device, with all that is colocated with either.
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
  // A whole tensor that is planned beside the shards of an output, for nodes that run once.
  struct WholeCopy {
    std::string name;
    std::int64_t bytes = 0;
    std::vector<std::string> users;
  };

  std::string node, type;
  std::string requested;  // "" for none
  std::string device;     // "" where only the graph is known
  std::vector<Scope> scopes;
  // The nodes that must share its device, without itself. From a graph: the groups it names.
  std::vector<std::string> colocation;
  std::vector<Pull> pulls;
  std::vector<Candidate> candidates;
  // Elements per device when a setter decided.
  std::map<std::string, std::int64_t> load;
  std::string fallback;  // what soft placement let go, "" for nothing
  // Of a step (explain_step): the launch that does the node's work together with that of others, ""
  // for one of its own; shards of its device, 0 where no step was looked at or it has no such node;
  // how often the launch runs; what it makes.
  std::string fused_into;
  int shards = 0, runs = 0;
  std::vector<DividedOutput> outputs;
  std::vector<WholeCopy> copies;

  // For people, in lines.
  std::string str() const;

 private:
  std::string step_text() const;
};

}  // namespace belfry
