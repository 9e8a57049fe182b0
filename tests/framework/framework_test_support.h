// Shared by tests of the framework.
#pragma once
#include <random>
#include <span>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/framework/base/tensor.h"
#include "belfry/framework/device/session_options.h"
#include "belfry/framework/passes/compile.h"
#include "belfry/framework/placement/placement.h"

namespace belfry {

// The message of the E that f() throws. If it throws nothing, or something else, an expectation
// fails.
template <class E, class F>
std::string message_of(const F& f) {
  try {
    f();
  } catch (const E& error) {
    return error.what();
  } catch (const std::exception& error) {
    ADD_FAILURE() << "threw something else: " << error.what();
    return "";
  }
  ADD_FAILURE() << "threw nothing";
  return "";
}

inline std::vector<std::string> names_of(std::span<const Node* const> nodes) {
  std::vector<std::string> names;
  for (const Node* node : nodes) names.emplace_back(node->name());
  return names;
}

inline DeviceSpec cpu(int index) { return DeviceSpec::local("CPU", index); }
inline DeviceSpec gpu(int index) { return DeviceSpec::local("GPU", index); }

inline Tensor floats(const std::vector<float>& values) {
  return Tensor({static_cast<std::int64_t>(values.size())}, values);
}

// CPU devices without a session.
inline std::vector<std::unique_ptr<Device>> cpu_devices(int count) {
  return make_devices({.device_count = {{"CPU", count}}});
}

// The input of passes for a graph on `devices`, with variables nowhere yet.
inline PlanContext plan_context(const std::vector<std::unique_ptr<Device>>& devices,
                                const Graph& graph, bool soft = false) {
  return {.devices = devices,
          .placement =
              std::make_shared<const Placement>(graph, PlacementContext{devices, soft, false, {}})};
}

// A plan for fetches on `devices`, with variables nowhere yet.
inline Plan compiled(const std::vector<std::unique_ptr<Device>>& devices,
                     const std::vector<Fetch>& fetches, const std::vector<FeedType>& feeds = {},
                     bool soft = false) {
  return compile(fetches, feeds, plan_context(devices, fetches[0].node->graph(), soft));
}

// The plan node that runs `node` itself, or none.
inline NodeIndex planned(const Plan& plan, const Node& node) { return plan.find(node); }

// The first plan node of `op`, or none.
inline NodeIndex planned(const Plan& plan, const Op& op) {
  for (const NodeIndex n : plan.nodes.indices())
    if (plan.nodes[n].op == &op) return n;
  return {};
}

inline int device_of(const Plan& plan, const Output& output) {
  return plan.node(planned(plan, output.node())).devices[static_cast<std::size_t>(output.index())];
}

// The launch of `node`, or -1.
inline int launch_of(const Plan& plan, NodeIndex node) {
  for (std::size_t l = 0; l < plan.launches.size(); ++l)
    if (plan.launches[l].node == node) return static_cast<int>(l);
  return -1;
}

// Whether two values lie in the same memory. A variable may have several buffers: its own, and one
// for each value that is made there to be assigned.
inline bool same_memory(const Plan& plan, Value a, Value b) {
  const BufferRecord &of_a = plan.buffers[plan.buffer(a)], &of_b = plan.buffers[plan.buffer(b)];
  return plan.buffer(a) == plan.buffer(b) ||
         (of_a.kind == BufferKind::kState && of_b.kind == BufferKind::kState &&
          of_a.node == of_b.node);
}

// A number in [0, n), uniform.
inline int draw(std::mt19937& random, int n) {
  return static_cast<int>(random() % static_cast<unsigned>(n));
}

}  // namespace belfry
