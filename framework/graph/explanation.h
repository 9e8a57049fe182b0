// Why a node is where it is: what Graph::explain and Session::explain answer.
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

  // For people, in lines.
  std::string str() const;
};

}  // namespace belfry
