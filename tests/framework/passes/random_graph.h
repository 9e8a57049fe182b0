// Random graphs over several devices: sums, collectives, matrix products, aliases, and variables.
// Control dependencies decide when a variable is read and written.
#pragma once
#include <memory>
#include <optional>

#include "belfry/framework/base/text.h"
#include "belfry/framework/core_ops/add_n.h"
#include "belfry/framework/core_ops/assign.h"
#include "belfry/framework/core_ops/constant.h"
#include "belfry/framework/core_ops/identity.h"
#include "belfry/framework/core_ops/initializers.h"
#include "belfry/framework/core_ops/random.h"
#include "belfry/framework/graph/scopes.h"
#include "belfry/ops/all_reduce.h"
#include "belfry/ops/arithmetic.h"
#include "belfry/ops/matmul.h"
#include "belfry/ops/relu.h"
#include "belfry/ops/split.h"
#include "belfry/ops/tanh.h"
#include "belfry/ops/transpose.h"
#include "belfry/ops/updates/momentum_update.h"
#include "belfry/tests/framework/framework_test_support.h"

namespace belfry {

// CPU devices.
inline std::vector<DeviceSpec> cpus_of(int count) {
  std::vector<DeviceSpec> devices;
  for (int d = 0; d < count; ++d) devices.push_back(cpu(d));
  return devices;
}

// All values are f32 [side, side].
class RandomGraph {
 public:
  RandomGraph(unsigned seed, int devices, int nodes, std::int64_t side = 4)
      : RandomGraph(seed, cpus_of(devices), {}, nodes, side) {}

  // The inputs of collectives are made on devices of `combined`. If that is empty, they stay where
  // they are.
  RandomGraph(unsigned seed, std::vector<DeviceSpec> devices, std::vector<DeviceSpec> combined,
              int nodes, std::int64_t side = 4)
      : random_(seed), devices_(std::move(devices)), combined_(std::move(combined)), side_(side) {
    const DeviceSpec shared = any_device();  // of v0 and v1, which one node may write together
    for (int v = 0; v < 3; ++v) {
      DeviceScope on(graph, v < 2 ? shared : any_device());
      variables.push_back(
          variable(graph, cat("v", v), {side, side}, {.initializer = init::uniform(-1, 1)}));
      writes_.emplace_back();
    }
    for (int i = 0; i < 2; ++i) {
      DeviceScope on(graph, any_device());
      values.push_back(random_uniform(graph, {side, side}, -1, 1));
    }
    for (int i = 0; i < nodes; ++i) add_node();
    for (const Output& value : values)
      if (one_in(4)) fetches.emplace_back(value);
    fetches.emplace_back(values.back());
    for (Node* write : writes_)
      if (write) fetches.emplace_back(*write);
  }

  Graph graph;
  std::vector<Variable> variables;
  std::vector<Output> values;
  std::vector<Fetch> fetches;

 private:
  bool one_in(int n) { return draw(random_, n) == 0; }
  DeviceSpec any_device() { return any_of(devices_); }
  DeviceSpec any_of(const std::vector<DeviceSpec>& devices) {
    return devices[static_cast<std::size_t>(draw(random_, static_cast<int>(devices.size())))];
  }
  Output any() { return values[values.size() - 1 - skewed()]; }
  // Mostly recent values, so that graphs are deep.
  std::size_t skewed() {
    const int most = static_cast<int>(values.size());
    return static_cast<std::size_t>(std::min(draw(random_, most), draw(random_, most)));
  }

  void add_node() {
    DeviceScope on(graph, any_device());
    std::optional<ControlDependencies> after;
    Node* const controls[] = {&any().node()};
    if (one_in(4)) after.emplace(graph, controls);
    switch (draw(random_, 12)) {
      case 0:
      case 1: return keep(add_n(some(1 + draw(random_, 5))));
      case 2: return keep(tanh(any()));
      case 3: return keep(relu(any()));
      case 4: return keep(tanh(mul(any(), any())));
      case 5: return keep(tanh(matmul(any(), any())));
      case 6: return keep(one_in(2) ? identity(any()) : transpose(any()));
      case 7: return keep(halves());
      case 8: return collective();
      case 9: return keep(one_in(2) ? static_cast<Output>(any_variable()) : any_variable().read());
      default: return write(draw(random_, 3));
    }
  }

  std::vector<Output> some(int count) {
    std::vector<Output> result;
    for (int i = 0; i < count; ++i) result.push_back(any());
    return result;
  }

  // Builds nodes that use both outputs of a split.
  Output halves() {
    const auto parts = split(any(), 2, 0);
    return tanh(matmul(transpose(parts[0]), parts[1]));
  }

  void collective() {
    std::vector<Output> parts;
    const int count = 1 + draw(random_, 5);
    const int tensors = one_in(2) ? 1 : 2;
    for (int i = 0; i < count * tensors; ++i) {
      DeviceScope on(graph, any_of(combined_.empty() ? devices_ : combined_));
      parts.push_back(combined_.empty() && one_in(2) ? any() : relu(any()));
    }
    for (const Output& sum : all_reduce(parts, {.mean = true, .participants = count})) keep(sum);
  }

  Variable any_variable() { return variables[static_cast<std::size_t>(draw(random_, 3))]; }

  // Adds a write of variable v behind the last write of it.
  void write(int v) {
    const auto index = static_cast<std::size_t>(v);
    std::vector<Node*> before;
    if (writes_[index]) before.push_back(writes_[index]);
    const std::size_t other = 1 - std::min<std::size_t>(index, 1);
    const bool two = v < 2 && one_in(3);
    if (two && writes_[other]) before.push_back(writes_[other]);
    ControlDependencies after(graph, before);
    Node* made = nullptr;
    if (two)
      made =
          &momentum_update(variables[index], variables[other], tanh(any()), constant(graph, 0.1));
    else if (one_in(2))
      made = &assign(variables[index], tanh(any()));
    else
      made = &assign_sub(variables[index], any());
    writes_[index] = made;
    if (two) writes_[other] = made;
    if (one_in(2)) keep(made->output());
  }

  void keep(const Output& value) { values.push_back(value); }

  std::mt19937 random_;
  std::vector<DeviceSpec> devices_, combined_;
  std::int64_t side_;
  std::vector<Node*> writes_;  // the last write of each variable
};

// before[l]: the launches that strands and waits order before launch l, by brute force.
inline std::vector<std::vector<char>> happens_before(const Plan& plan) {
  std::vector<std::vector<char>> before(plan.launches.size());
  for (std::size_t l = 0; l < plan.launches.size(); ++l) {
    before[l].resize(plan.launches.size());
    const auto add = [&](const Wait& wait) {
      const auto earlier = static_cast<std::size_t>(plan.awaited(wait).value());
      for (std::size_t i = 0; i < l; ++i) before[l][i] |= earlier < l ? before[earlier][i] : 0;
      before[l][earlier] = true;
    };
    const Launch& launch = plan.launches[l];
    if (launch.position > 0) add({launch.strand, launch.position - 1});
    for (const Wait& wait : launch.waits) add(wait);
  }
  return before;
}

// The launches that plan node n must wait for, directly or through aliases.
inline void collect_deps(const Plan& plan, NodeIndex n, std::vector<int>& deps) {
  const PlanNode& node = plan.node(n);
  const auto add = [&](NodeIndex earlier) {
    const int launch = launch_of(plan, earlier);
    if (launch >= 0)
      deps.push_back(launch);
    else
      collect_deps(plan, earlier, deps);
  };
  for (const Value& input : node.inputs) add(input.node);
  for (const NodeIndex earlier : node.after) add(earlier);
}

}  // namespace belfry
