// PointNet (Qi et al. 2017) on clouds of points: the bright pixels of MNIST's digits, in no order.
// Two small networks learn to turn each cloud, and its features. Try: pointnet --devices=cpu:4
// --data_dir=DIR
#include <algorithm>

#include "belfry/belfry.h"
using namespace belfry;

constexpr std::int64_t kPoints = 64, kSide = 28;

// Clouds of digits: "points" f32 [kPoints,2] in [-1, 1], and "label".
class Clouds final : public Dataset {
 public:
  explicit Clouds(std::unique_ptr<Dataset> digits) : digits_(std::move(digits)) {}

  std::vector<Field> signature() const override {
    return {{"points", DType::kF32, {kPoints, 2}}, {"label", DType::kI32, {}}};
  }
  std::int64_t size() const override { return digits_->size(); }
  std::string describe() const override { return "points of " + digits_->describe(); }
  std::vector<std::string> files() const override { return digits_->files(); }
  std::int64_t left_out() const override { return digits_->left_out(); }
  void check() const override { digits_->check(); }

  // The same points each time.
  void gather(std::span<const std::int64_t> indices,
              std::span<std::byte* const> out) const override {
    fill({.seed = 0, .epoch = 0}, 0, indices, out);
  }
  // Others in each epoch, and not quite in their places.
  void gather_training(const DataPass& pass, std::span<const std::int64_t> indices,
                       std::span<std::byte* const> out) const override {
    fill(pass, 0.02f, indices, out);
  }

 private:
  void fill(const DataPass& pass, float jitter, std::span<const std::int64_t> indices,
            std::span<std::byte* const> out) const {
    const std::vector<Tensor> digits = gather_tensors(*digits_, indices);
    const float* pixel = digits[0].data<float>().data();
    auto* point = reinterpret_cast<float*>(out[0]);
    for (const std::int64_t sample : indices) {
      std::vector<std::int64_t> bright;
      for (std::int64_t at = 0; at < kSide * kSide; ++at)
        if (*pixel++ > 0.5f) bright.push_back(at);
      if (bright.empty()) bright.push_back(kSide * (kSide + 1) / 2);  // the centre
      const std::uint64_t key = kernels::mix(pass.seed, pass.epoch, sample);
      for (std::int64_t p = 0; p < kPoints; ++p) {
        const std::int64_t at = bright[kernels::mix(key, 0, p) % bright.size()];
        const auto noise = [&](int axis) {
          return jitter * functors::normal_number(0.f, key, 1, 2 * p + axis);
        };
        *point++ = static_cast<float>(at % kSide) / 14 - 1 + noise(0);
        *point++ = static_cast<float>(at / kSide) / 14 - 1 + noise(1);
      }
    }
    const std::span<const std::int32_t> labels = digits[1].data<std::int32_t>();
    std::copy(labels.begin(), labels.end(), reinterpret_cast<std::int32_t*>(out[1]));
  }

  std::unique_ptr<Dataset> digits_;
};

std::unique_ptr<Dataset> clouds(const RunDirs& dirs, bool train) {
  return std::make_unique<Clouds>(data::mnist(dirs, train));
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
