// An inverse problem in two dimensions: where is the chimney? Smoke enters the air at one place of
// a square, at a constant rate. It spreads, and wind blows it away. Five sensors measure it; from
// what they measure L-BFGS finds the place and the rate.
#include <cstdio>

#include "belfry/belfry.h"
using namespace belfry;

constexpr std::int64_t kSide = 32, kSteps = 100;  // of space and of time, both from 0 to 1
constexpr double kDx = 1.0 / kSide, kDt = 1.0 / kSteps;
constexpr double kSpread = 0.015, kWindX = 0.5, kWindY = 0.2, kWidth = 0.06;

// One step of time of the smoke [kSide,kSide]: its change is that by differences of neighbours,
// and what enters. Around the square the air is clean.
Output blown(Output smoke, Output entering) {
  const Output around = pad(smoke, {{1, 1}, {1, 1}});
  const auto beside = [&](int y, int x) { return slice(around, {1 + y, 1 + x}, {kSide, kSide}); };
  const Output left = beside(0, -1), right = beside(0, 1), up = beside(-1, 0), down = beside(1, 0);
  const Output curvature = (left + right + up + down - 4 * smoke) / (kDx * kDx);
  const Output carried = (kWindX * (right - left) + kWindY * (down - up)) / (2 * kDx);
  return smoke + kDt * (kSpread * curvature - carried + entering);
}

// What the sensors measure at all times, [kSteps,5]. `chimney` is its x, its y, and the logarithm
// of its rate.
Output measured(Output chimney) {
  Graph& graph = chimney.node().graph();
  const Output places = linspace(graph, kDx / 2, 1 - kDx / 2, kSide, DType::kF64);
  const std::vector<Output> of = unstack(chimney);
  const Output x = expand_dims(places, 0) - of[0], y = expand_dims(places, 1) - of[1];
  const Output entering = exp(of[2] - (square(x) + square(y)) / (2 * kWidth * kWidth));
  const Output sensors = constant(
      graph, Tensor({5, 2}, std::vector<std::int32_t>{8, 26, 14, 16, 18, 28, 24, 20, 28, 30}));
  Output smoke = zeros_like(entering);
  std::vector<Output> values;
  for (std::int64_t step = 0; step < kSteps; ++step) {
    smoke = blown(smoke, entering);
    values.push_back(gather_nd(smoke, sensors));
  }
  return stack(values);
}

int run() {
  Graph graph;
  Session session(graph);
  // Measurements come from a chimney at (0.3, 0.4) with the rate e.
  const Tensor real({3}, std::vector{0.3, 0.4, 1.0}), guess({3}, std::vector{0.5, 0.5, 0.0});
  const Output measurements = constant(graph, session.run(measured(constant(graph, real))));
  const Variable chimney =
      variable(graph, "chimney", {3}, {.dtype = DType::kF64, .initializer = init::value(guess)});
  const Output loss = reduce_sum(square(measured(chimney) - measurements));
  const auto print = [&](const MinimizeIteration& now) {
    const Tensor at = session.read(chimney);
    const std::span<const double> x = at.data<double>();
    std::printf("iteration %2d: loss %.7e, gradient %.7e, at (%.9f, %.9f), rate exp(%.9f)\n",
                now.iteration, now.loss, now.gradient_norm, x[0], x[1], x[2]);
    return true;
  };
  std::printf("%s\n", minimize(session, loss, {chimney}, {.callback = print}).str().c_str());
  return 0;
}

int main(int argc, char** argv) {
  return run_program_without_flags(argc, argv, "Finds a chimney. Takes no flags.", run);
}
