// PointNet (Qi et al. 2017) on clouds of points: the bright pixels of MNIST's digits, in no order.
// Two small networks learn to turn each cloud, and its features. Try: pointnet --devices=cpu:4
// --data_dir=DIR
#include "belfry/belfry.h"
using namespace belfry;

constexpr std::int64_t kPoints = 64, kSide = 28;

// A cloud of a digit: points [kPoints,2] in [-1, 1]. In training they are others in each epoch, and
// not quite in their places.
void make_cloud(MappedSample& sample) {
  const auto pixels = sample.from.get<float>(0), points = sample.to.get<float>(0);
  std::vector<std::size_t> bright;
  for (std::size_t at = 0; at < pixels.size(); ++at)
    if (pixels[at] > 0.5f) bright.push_back(at);
  if (bright.empty()) bright.push_back(kSide * (kSide + 1) / 2);  // the centre
  const float jitter = sample.training ? 0.02f : 0.f;
  const std::uint64_t key = sample.random.bits();
  for (std::size_t p = 0; p < kPoints; ++p) {
    const std::size_t at = bright[sample.random.below(bright.size())];
    const auto noise = [&](std::size_t i) {
      return jitter * functors::normal_number(0.f, key, 0, i);
    };
    points[2 * p] = static_cast<float>(at % kSide) / 14 - 1 + noise(2 * p);
    points[2 * p + 1] = static_cast<float>(at / kSide) / 14 - 1 + noise(2 * p + 1);
  }
  sample.to.get<std::int32_t>(1)[0] = sample.from.get<std::int32_t>(1)[0];
}

std::unique_ptr<Dataset> clouds(const RunDirs& dirs, bool train) {
  return map_samples(data::mnist(dirs, train),
                     {{"points", DType::kF32, {kPoints, 2}}, {"label", DType::kI32, {}}},
                     make_cloud);
}

// A dense layer with batch norm and ReLU. Points share it.
Output layer(Tower& tower, std::string_view name, Output x, int units) {
  const VariableScope scope(tower.graph(), name);
  x = dense(tower, "fc", x, {.units = units, .bias = false});
  return relu(batch_norm(tower, "bn", x, {.synchronised = true}));
}

// A matrix [N,k,k] for each cloud x [N,kPoints,k]: at first the identity.
Output transform(Tower& tower, std::string_view name, Output x, int k) {
  const VariableScope scope(tower.graph(), name);
  x = layer(tower, "shared0", x, 32);
  x = layer(tower, "shared1", x, 128);
  x = reduce_max(x, {1});
  x = layer(tower, "fc0", x, 64);
  x = dense(tower, "matrix", x, {.units = k * k, .init = init::zeros()});
  return reshape(x, {kUnknownSize, k, k}) + eye(tower.graph(), k);
}

Output pointnet(Tower& tower, Output points, Output label) {
  Output x = matmul(points, transform(tower, "input", points, 2));
  x = layer(tower, "shared0", x, 32);
  const Output turn = transform(tower, "features", x, 32);
  x = layer(tower, "shared1", matmul(x, turn), 64);
  x = reduce_max(layer(tower, "shared2", x, 256), {1});  // of all points, in whatever order
  x = dropout(tower, layer(tower, "fc0", x, 128), 0.3);
  const Output logits = dense(tower, "fc1", x, {.units = 10});
  // How far the turn of the features is from an orthogonal matrix.
  const Output apart = matmul(turn, turn, {.transpose_b = true}) - eye(tower.graph(), 32);
  const Output skew = reduce_mean(reduce_sum(square(apart), {1, 2}));
  tower.output("logits", logits);
  tower.metric("accuracy", accuracy(logits, label));
  tower.metric("skew", skew);
  return cross_entropy(logits, label) + 0.001 * skew;
}

int main(int argc, char** argv) {
  return train(argc, argv,
               {.model = pointnet,
                .data = clouds,
                .optimizer = adam(1e-3),
                .global_batch_size = 128,
                .epochs = 5});
}
