#include "belfry/trainers/core/equal_processes.h"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/trainers/util/hash.h"

namespace belfry {
namespace {
namespace equal_processes {

// In one order in all processes.
std::vector<Variable> compared_variables(const Graph& graph) {
  std::vector<Variable> variables = original_variables(graph);
  std::erase_if(variables, [](Variable v) { return v.node().variable().part.has_value(); });
  std::ranges::sort(variables, {}, &Variable::logical_name);
  return variables;
}

constexpr std::size_t kDigits = 16;

// kDigits characters for each variable.
std::string fingerprints_of(Session& session, const std::vector<Variable>& variables) {
  std::string text;
  for (const Variable variable : variables) {
    const Tensor value = session.read(variable);
    text += hex(fingerprint({value.raw(), static_cast<std::size_t>(value.bytes())}), kDigits);
  }
  return text;
}

// The text that most processes have; the first of several such.
std::string text_of_most(const std::vector<std::string>& of_all) {
  std::map<std::string, int> counts;
  for (const std::string& one : of_all) ++counts[one];
  return *std::ranges::max_element(of_all, {}, [&](auto& one) { return counts.at(one); });
}

// "'fc0/W' and 2 other variables": what differs in the texts of two processes.
std::string differing_variables(const std::vector<Variable>& variables, std::string_view one,
                                std::string_view other) {
  std::size_t count = 0;
  std::string first;
  for (std::size_t v = 0; v < variables.size(); ++v) {
    if (one.substr(v * kDigits, kDigits) == other.substr(v * kDigits, kDigits)) continue;
    if (count++ == 0) first = variables[v].logical_name();
  }
  return cat("'", first, "'",
             count > 1
                 ? cat(" and ", count - 1, count == 2 ? " other variable" : " other variables")
                 : "");
}

[[noreturn]] void refuse(Processes& processes, const std::vector<Variable>& variables,
                         const std::vector<std::string>& of_all, std::int64_t steps) {
  const std::string most = text_of_most(of_all);
  std::vector<std::string> names;
  std::string what;
  int reference = -1;
  for (int r = 0; r < processes.size(); ++r) {
    const std::string& one = of_all[static_cast<std::size_t>(r)];
    if (one == most && reference < 0) reference = r;
    if (one == most) continue;
    names.push_back(cat("rank ", r, " on ", processes.host(r)));
    if (what.empty()) what = differing_variables(variables, one, most);
  }
  throw Error(cat("after step ", steps, " ", join(names), names.size() == 1 ? " has" : " have",
                  " other bits than rank ", reference, " on ", processes.host(reference), " in ",
                  what,
                  "; the memory of a machine or a device may be faulty, or code of yours writes to "
                  "variables in one process alone; go on from an older checkpoint"));
}

}  // namespace equal_processes
}  // namespace

void require_equal_processes(Processes& processes, Session& session, const Graph& graph,
                             std::int64_t steps) {
  using namespace equal_processes;
  const std::vector<Variable> variables = compared_variables(graph);
  const std::string own = fingerprints_of(session, variables);
  const std::vector<std::string> all =
      processes.gather(hex(fingerprint(std::as_bytes(std::span(own))), kDigits));
  if (std::ranges::all_of(all, [&](auto& one) { return one == all[0]; })) return;
  refuse(processes, variables, processes.gather(own), steps);
}

}  // namespace belfry
