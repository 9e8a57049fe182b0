// One variable and its gradient, for tests of optimizers.
#pragma once
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "belfry/framework/core_ops/initializers.h"
#include "belfry/framework/run/session.h"
#include "belfry/trainers/optimizers/optimizer.h"

namespace belfry::optimizer_support {

inline Variable weight(Graph& graph, std::string_view name, double value = 1,
                       DType dtype = DType::kF64) {
  return variable(graph, name, {2}, {.dtype = dtype, .initializer = init::constant(value)});
}

inline Gradient gradient(Variable w, double value) {
  Graph& graph = w.node().graph();
  return {init::constant(value)(graph, w.shape(), w.dtype()), w};
}

// The values of w[0], which begins at 1, after each of `steps` steps with the gradient 0.5.
inline std::vector<double> sequence(const Optimizer& optimizer, int steps) {
  Graph graph;
  const Variable w = weight(graph, "w");
  const Gradient g = gradient(w, 0.5);
  Node& step = optimizer.apply({&g, 1});
  Session session(graph);
  std::vector<double> values;
  for (int i = 0; i < steps; ++i) {
    session.run({step});
    values.push_back(session.read(w).data<double>()[0]);
    EXPECT_EQ(session.read(w).data<double>()[1], values.back());
  }
  return values;
}

inline void expect_near(const std::vector<double>& values, const std::vector<double>& wanted) {
  ASSERT_EQ(values.size(), wanted.size());
  for (std::size_t i = 0; i < values.size(); ++i) EXPECT_NEAR(values[i], wanted[i], 1e-12) << i;
}

}  // namespace belfry::optimizer_support
