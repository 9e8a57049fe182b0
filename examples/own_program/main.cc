// Learns whether points of a square lie inside a circle.
#include <random>

#include "belfry/belfry.h"
using namespace belfry;

std::unique_ptr<Dataset> points(bool train) {
  const int n = train ? 8192 : 1024;
  std::mt19937 random(train ? 1 : 2);
  std::uniform_real_distribution<float> coordinate(-1, 1);
  std::vector<float> at;
  std::vector<std::int32_t> inside;
  for (int i = 0; i < n; ++i) {
    const float x = coordinate(random), y = coordinate(random);
    at.insert(at.end(), {x, y});
    inside.push_back(x * x + y * y < 0.5f);
  }
  return std::make_unique<TensorDataset>(
      std::vector<TensorDataset::Source>{{"at", Tensor({n, 2}, at), DType::kF32, {2}},
                                         {"inside", Tensor({n}, inside), DType::kI32, {}}},
      std::to_string(n) + " random points of a square");
}

Output model(Tower& tower, Output at, Output inside) {
  Output hidden = relu(dense(tower, "hidden", at, {.units = 32}));
  Output logits = dense(tower, "logits", hidden, {.units = 2});
  tower.metric("accuracy", accuracy(logits, inside));
  return cross_entropy(logits, inside);
}

int main(int argc, char** argv) {
  return train(argc, argv, {.model = model, .data = points, .optimizer = adam(1e-2), .epochs = 5});
}
