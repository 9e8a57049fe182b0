#include "belfry/allreduce/prediction/tower_buffers.h"

#include "belfry/framework/base/text.h"
#include "belfry/framework/core_ops/initializers.h"
#include "belfry/framework/graph/scopes.h"

namespace belfry {

GradientRows tower_buffers(Graph& graph, const std::vector<TensorType>& types,
                           const std::vector<DeviceSpec>& devices) {
  GradientRows rows;
  for (std::size_t t = 0; t < devices.size(); ++t) {
    const std::string name = cat("tower", t);
    DeviceScope on(graph, devices[t]);
    NameScope names(graph, name + "/");
    ReplicaScope replica(graph, name + "/", static_cast<int>(t));
    VariableScope variables(graph, name);
    rows.emplace_back();
    for (std::size_t n = 0; n < types.size(); ++n) {
      const auto& [shape, dtype] = types[n];
      VariableOptions options{.dtype = dtype, .initializer = init::zeros()};
      if (t > 0) options.collections = {std::string(kLocalVariables)};
      const Variable buffer = variable(graph, cat("buffer", n), shape, options);
      rows.back().push_back({buffer, buffer});
    }
  }
  return rows;
}

}  // namespace belfry
