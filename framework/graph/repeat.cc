#include "belfry/framework/graph/repeat.h"

#include "belfry/framework/base/require.h"
#include "belfry/framework/graph/scopes.h"

namespace belfry {
namespace {

void require_carried(const std::vector<Output>& before, const std::vector<Output>& after, int round,
                     SourceLine site) {
  require(after.size() == before.size(), "repeat (built at ", site, "): round ", round, " returns ",
          after.size(), " values, but gets ", before.size());
  for (std::size_t i = 0; i < after.size(); ++i) {
    require(static_cast<bool>(after[i]), "repeat (built at ", site, "): value ", i, " of round ",
            round, " is empty");
    require(after[i].dtype() == before[i].dtype() && after[i].shape().compatible(before[i].shape()),
            "repeat (built at ", site, "): value ", i, " is ", before[i].type(),
            ", but after round ", round, " it is ", after[i].type());
  }
}

}  // namespace

std::vector<Output> repeat(
    int rounds, std::vector<Output> first,
    const std::function<std::vector<Output>(int round, std::vector<Output> values)>& body, At at) {
  require(rounds >= 0, "repeat (built at ", at.site, "): ", rounds, " rounds are too few");
  require(!first.empty(), "repeat (built at ", at.site,
          "): needs at least one value that it carries from round to round");
  for (std::size_t i = 0; i < first.size(); ++i)
    require(static_cast<bool>(first[i]), "repeat (built at ", at.site, "): first value ", i,
            " is empty");
  Graph& graph = first[0].graph();
  const NameScope all(graph, at.name.empty() ? "repeat" : at.name, at.site);
  std::vector<Output> values = std::move(first);
  for (int round = 0; round < rounds; ++round) {
    const NameScope names(graph, cat("round", round), at.site);
    const VariableScope variables(
        graph, "", round == 0 ? VariableReuse::kInherit : VariableReuse::kMustExist, at.site);
    std::vector<Output> next = body(round, values);
    require_carried(values, next, round, at.site);
    values = std::move(next);
  }
  return values;
}

}  // namespace belfry
