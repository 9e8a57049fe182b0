// Gradient tables for tests: one constant per tower and variable.
#pragma once
#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "belfry/allreduce/verify/gradient_table.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/core_ops/constant.h"
#include "belfry/framework/core_ops/initializers.h"
#include "belfry/framework/graph/scopes.h"

namespace belfry {

inline DeviceSpec cpu(int index) { return DeviceSpec(cat("/cpu:", index)); }

inline std::vector<DeviceSpec> devices_of(const char* type, int count) {
  std::vector<DeviceSpec> devices;
  for (int i = 0; i < count; ++i) devices.push_back(DeviceSpec(cat("/", type, ":", i)));
  return devices;
}
inline std::vector<DeviceSpec> cpus(int count) { return devices_of("cpu", count); }
inline std::vector<DeviceSpec> gpus(int count) { return devices_of("gpu", count); }

// Variables v0, v1, ... replicated over towers on cpu:0, cpu:1, ..., or on the given devices. The
// sum of their gradients depends on the order of additions.
struct TestGradients {
  TestGradients(int towers, std::vector<Shape> of) : TestGradients(cpus(towers), std::move(of)) {}
  TestGradients(const std::vector<DeviceSpec>& devices, std::vector<Shape> of,
                ProcessPlace place = {})
      : graph(1, place), shapes(std::move(of)) {
    for (int t = 0; t < static_cast<int>(devices.size()); ++t) {
      const std::string name = cat("tower", t);
      DeviceScope on(graph, devices[static_cast<std::size_t>(t)]);
      NameScope names(graph, name + "/");
      ReplicaScope replica(graph, name + "/", t);
      VariableScope variables(graph, t == 0 ? "" : name);
      rows.emplace_back();
      for (std::size_t v = 0; v < shapes.size(); ++v) {
        VariableOptions options{.initializer = init::zeros()};
        if (t > 0) options.collections = {std::string(kLocalVariables)};
        const Variable variable = belfry::variable(graph, cat("v", v), shapes[v], options);
        rows.back().push_back({constant(graph, value(t, static_cast<int>(v))), variable});
      }
    }
  }

  GradientTable table() const { return GradientTable(rows); }

  // Numbers of very different sizes, as a function of tower, variable and element.
  Tensor value(int t, int v) const {
    Tensor tensor(shapes[static_cast<std::size_t>(v)], DType::kF32);
    std::uint64_t state = static_cast<std::uint64_t>(t) * 1000003 + static_cast<std::uint64_t>(v);
    for (float& x : tensor.mutable_data<float>()) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      x = std::ldexp(static_cast<float>(state >> 40) - 8388608.F,
                     static_cast<int>(state >> 32 & 7) - 27);
    }
    return tensor;
  }

  // The canonical tree over towers [begin, end), for each element of variable v.
  std::vector<float> tree(int v, int begin, int end) const {
    if (end - begin == 1) {
      const Tensor leaf = value(begin, v);
      return {leaf.data<float>().begin(), leaf.data<float>().end()};
    }
    const int middle = begin + (end - begin + 1) / 2;
    std::vector<float> left = tree(v, begin, middle);
    const std::vector<float> right = tree(v, middle, end);
    for (std::size_t i = 0; i < left.size(); ++i) left[i] += right[i];
    return left;
  }

  // For each element of variable v, the sum of magnitudes over all towers. Rounding errors of the
  // sum scale with it.
  std::vector<float> sum_of_magnitudes(int v) const {
    std::vector<float> sums(
        static_cast<std::size_t>(shapes[static_cast<std::size_t>(v)].elements()));
    for (int t = 0; t < static_cast<int>(rows.size()); ++t) {
      const Tensor leaf = value(t, v);
      for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += std::abs(leaf.data<float>()[i]);
    }
    return sums;
  }

  Graph graph;
  std::vector<Shape> shapes;
  std::vector<std::vector<Gradient>> rows;
};

// The error of a call.
template <class Call>
std::string message_of(const Call& call) {
  try {
    call();
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "nothing was thrown";
}

inline std::vector<Node*> nodes_of(const Graph& graph, const Op& op) {
  std::vector<Node*> found;
  for (std::size_t id = 0; id < graph.size(); ++id)
    if (&graph.node(id).op() == &op) found.push_back(&graph.node(id));
  return found;
}

// Counts tensors that cross devices on the way into nodes [first, end): one per tensor and
// destination.
inline int crossings(const Graph& graph, std::size_t first) {
  std::set<std::pair<std::string, std::string>> crossed;
  for (std::size_t id = first; id < graph.size(); ++id) {
    const Node& node = graph.node(id);
    if (node.op().collective) continue;  // each output stays with its input
    for (const Output& input : node.inputs())
      if (input.device() != node.device()) crossed.insert({input.name(), node.device().str()});
  }
  return static_cast<int>(crossed.size());
}

}  // namespace belfry
