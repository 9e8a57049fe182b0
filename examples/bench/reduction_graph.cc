#include "reduction_graph.h"

#include <utility>

#include "belfry/allreduce/prediction/tower_buffers.h"
#include "belfry/framework/core_ops/assign.h"
#include "belfry/framework/core_ops/no_op.h"
#include "belfry/framework/graph/scopes.h"

namespace belfry {
namespace {

std::vector<TensorType> tensor_types(const std::vector<Shape>& shapes, DType dtype) {
  std::vector<TensorType> types;
  for (const Shape& shape : shapes) types.push_back({shape, dtype});
  return types;
}

std::vector<DeviceSpec> own_devices(const ReductionBenchOptions& options) {
  std::vector<DeviceSpec> devices = options.devices;
  for (DeviceSpec& device : devices) device = device.of_process(options.place);
  return devices;
}

std::vector<Node*> nodes_behind(const std::vector<Output>& outputs) {
  std::vector<Node*> nodes;
  for (const Output& output : outputs) nodes.push_back(&output.node());
  return nodes;
}

}  // namespace

ReductionGraph::ReductionGraph(const std::vector<Shape>& shapes,
                               const ReductionBenchOptions& options)
    : options_(options),
      types_(tensor_types(shapes, options.dtype)),
      graph_(1, options.place),
      rows_(tower_buffers(graph_, types_, own_devices(options))) {
  for (const Shape& shape : shapes) elements_ += shape.elements();
}

std::int64_t ReductionGraph::bytes() const {
  return elements_ * static_cast<std::int64_t>(size_of(options_.dtype));
}

ReductionNodes ReductionGraph::add(const Strategy& strategy) {
  Reduced in_place = reduce(strategy, rows_);
  Reduced out_of_place = in_place;
  ReductionNodes nodes{.sums = in_place.sums,
                       .place = &group(graph_, in_place.writes),
                       .compute = &group(graph_, nodes_behind(out_of_place.sums))};
  for (int i = 1; i < options_.aggregate; ++i) {
    in_place = reduce(strategy, rows_behind(in_place.writes));
    out_of_place = reduce(strategy, rows_behind(nodes_behind(out_of_place.sums)));
  }
  nodes.places = &group(graph_, in_place.writes);
  nodes.computes = &group(graph_, nodes_behind(out_of_place.sums));
  return nodes;
}

ReductionGraph::Reduced ReductionGraph::reduce(const Strategy& strategy, GradientRows rows) {
  const GradientTable sums =
      strategy.reduce(GradientTable(std::move(rows)), {.reduction = options_.reduction});
  Reduced reduced;
  for (int n = 0; n < sums.variables(); ++n)
    for (int t = 0; t < towers(); ++t) {
      reduced.sums.push_back(sums.at(t, n).value);
      reduced.writes.push_back(&assign(buffer(t, n), reduced.sums.back()));
    }
  return reduced;
}

// The values of all variables after these nodes; `nodes` are of all towers, tensor by tensor.
GradientRows ReductionGraph::rows_behind(const std::vector<Node*>& nodes) {
  GradientRows rows = rows_;
  for (std::size_t t = 0; t < rows.size(); ++t)
    for (std::size_t n = 0; n < rows[t].size(); ++n) {
      Node* const before = nodes[n * rows.size() + t];
      const DeviceScope on(graph_, options_.devices[t].of_process(options_.place));
      const ControlDependencies behind(graph_, std::span(&before, 1));
      rows[t][n].value = rows[t][n].variable.read();
    }
  return rows;
}

}  // namespace belfry
