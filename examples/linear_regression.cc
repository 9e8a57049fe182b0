// The smallest whole program: finds w and b of y = 3 x0 - 2 x1 + 1 from noisy samples.
#include <cmath>

#include "belfry/belfry.h"
using namespace belfry;

std::unique_ptr<Dataset> samples(bool train) {
  const std::int64_t n = train ? 4096 : 512;
  std::vector<float> x, y;
  for (std::int64_t i = train ? 0 : 4096; std::ssize(y) < n; ++i) {
    // Irrational steps cover the square evenly, and no two samples are equal.
    const double a = std::fmod(i * 0.7548776662, 1), b = std::fmod(i * 0.5698402910, 1);
    const double noise = 0.02 * (std::fmod(i * 0.6180339887, 1) - 0.5);
    x.insert(x.end(), {static_cast<float>(a), static_cast<float>(b)});
    y.push_back(static_cast<float>(3 * a - 2 * b + 1 + noise));
  }
  return std::make_unique<TensorDataset>(
      std::vector<TensorDataset::Source>{{"x", Tensor({n, 2}, x), DType::kF32, {2}},
                                         {"y", Tensor({n, 1}, y), DType::kF32, {1}}},
      std::to_string(n) + " samples of 3 x0 - 2 x1 + 1 with noise");
}

Output model(Tower& tower, Output x, Output y) {
  return reduce_mean(square(dense(tower, "fc", x, {.units = 1}) - y));
}

int main(int argc, char** argv) {
  return train(argc, argv, {.model = model, .data = samples, .optimizer = sgd(0.5), .epochs = 5});
}
