#include "belfry/towers/verify_towers.h"

#include "belfry/framework/base/require.h"

namespace belfry {

void verify_tower_collectives(const Graph& graph, std::size_t first, int towers) {
  for (std::size_t id = first; id < graph.size(); ++id) {
    const Node& node = graph.node(id);
    if (!node.op().collective) continue;
    const int inputs = static_cast<int>(node.inputs().size());
    require(inputs % towers == 0, node.describe(), " was built by the function of tower ",
            node.origin().replica, " with ", inputs, " inputs; it needs one from each of the ",
            towers, " towers: let the last tower build it of what all have given");
    for (int i = 0; i < inputs; ++i) {
      const Node& input = node.input(static_cast<std::size_t>(i)).node();
      require(input.origin().prefix.empty() || input.origin().replica == i % towers,
              node.describe(), " was built by a tower function: its input ", i, ", ",
              input.describe(), ", is of tower ", input.origin().replica, " instead of tower ",
              i % towers, "; each tower takes part once, in their order");
    }
  }
}

}  // namespace belfry
