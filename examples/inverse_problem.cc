// An inverse problem: how well does a rod conduct heat? Its diffusivity is a + b x. Heated from
// time 0 on, it is insulated at x = 0 and kept at 0 degrees at x = 1. Only the temperatures at
// x = 0 are measured; from them L-BFGS finds a and b.
#include <cmath>
#include <cstdio>

#include "belfry/belfry.h"
using namespace belfry;

constexpr std::int64_t kNodes = 50, kSteps = 50;  // of space and of time, both from 0 to 1
constexpr double kDx = 1.0 / kNodes, kDt = 1.0 / kSteps;

Output column(Graph& graph, const std::function<double(double x)>& f) {
  std::vector<double> values;
  for (std::int64_t i = 0; i < kNodes; ++i) values.push_back(f(i * kDx));
  return constant(graph, Tensor({kNodes, 1}, values));
}

// The second derivative by x, from differences of neighbours. The left end is a mirror.
Output second_derivative(Graph& graph) {
  Tensor matrix({kNodes, kNodes}, DType::kF64);
  const std::span<double> at = matrix.mutable_data<double>();
  for (std::size_t i = 0, n = kNodes; i < n; ++i) {
    at[i * n + i] = -2 / (kDx * kDx);
    if (i > 0) at[i * n + i - 1] = 1 / (kDx * kDx);
    if (i + 1 < n) at[i * n + i + 1] = (i == 0 ? 2 : 1) / (kDx * kDx);
  }
  return constant(graph, matrix);
}

// The temperatures at x = 0. Each step of time solves (1 - dt k d2/dx2) new = old + dt heat.
Output measured_at_end(Graph& graph, Output a, Output b) {
  const Output k = a + b * column(graph, [](double x) { return x; });
  const Output heat =
      column(graph, [](double x) { return kDt * std::exp(-10 * (x - 0.5) * (x - 0.5)); });
  const LuFactors step =
      lu_factor(eye(graph, kNodes, DType::kF64) - kDt * k * second_derivative(graph));
  Output u = column(graph, [](double) { return 0; });
  std::vector<Output> ends;
  for (std::int64_t i = 0; i < kSteps; ++i) {
    u = lu_solve(step, u + heat);
    ends.push_back(slice(u, {0, 0}, {1, 1}));
  }
  return concat(ends, 0);
}

int run() {
  Graph graph;
  Session session(graph);
  // Measurements come from a rod with a = 2 and b = 1.5.
  const Output rod =
      measured_at_end(graph, constant(graph, 2, DType::kF64), constant(graph, 1.5, DType::kF64));
  const Output measurements = constant(graph, session.run(rod));
  const VariableOptions unknown{.dtype = DType::kF64, .initializer = init::ones()};
  const Variable a = variable(graph, "a", {}, unknown), b = variable(graph, "b", {}, unknown);
  const Output loss = reduce_sum(square(measured_at_end(graph, a, b) - measurements));
  const auto print = [&](const MinimizeIteration& now) {
    std::printf("iteration %2d: loss %.3e, a %.6f, b %.6f\n", now.iteration, now.loss,
                session.read(a).item<double>(), session.read(b).item<double>());
    return true;
  };
  const MinimizeResult result = minimize(session, loss, {a, b}, {.callback = print});
  std::printf("%s\n", result.str().c_str());
  return 0;
}

int main(int argc, char** argv) {
  return run_program_without_flags(
      argc, argv, "Finds two parameters of a heated rod by L-BFGS. Takes no flags.", run);
}
