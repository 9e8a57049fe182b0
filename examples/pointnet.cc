// PointNet (Qi et al. 2017) on clouds of points: the bright pixels of MNIST's digits, in no order.
// Two small networks learn to turn each cloud, and its features. Try: pointnet --devices=cpu:4
// --data_dir=DIR
#include "belfry/belfry.h"
using namespace belfry;

constexpr std::int64_t kPoints = 64, kSide = 28;

// Makes a cloud of a digit, in [-1, 1]. In training it has other points in each epoch, which are
// not quite in their places.
void scatter(MappedSample& sample) {
  const auto pixels = sample.from.get<float>(0);
  std::vector<std::int64_t> bright;
  for (std::int64_t at = 0; at < kSide * kSide; ++at)
    if (pixels[static_cast<std::size_t>(at)] > 0.5f) bright.push_back(at);
  if (bright.empty()) bright.push_back(kSide * (kSide + 1) / 2);  // the centre
  const float jitter = sample.training ? 0.035f : 0;
  const auto place = [&](std::int64_t pixel) {
    return static_cast<float>(pixel) / 14 - 1 + sample.random.uniform(-jitter, jitter);
  };
  auto* point = sample.to.get<float>(0).data();
  for (std::int64_t p = 0; p < kPoints; ++p) {
    const std::int64_t at = bright[sample.random.below(bright.size())];
    *point++ = place(at % kSide);
    *point++ = place(at / kSide);
  }
  sample.to.get<std::int32_t>(1)[0] = sample.from.get<std::int32_t>(1)[0];
}

std::unique_ptr<Dataset> clouds(const RunDirs& dirs, bool train) {
  return map_samples(data::mnist(dirs, train),
                     {{"points", DType::kF32, {kPoints, 2}}, {"label", DType::kI32, {}}}, scatter);
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
