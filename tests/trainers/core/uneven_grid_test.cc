// For any numbers of samples, samples per batch and towers, training ends with the result of one
// device.
#include <random>

#include <gtest/gtest.h>

#include "belfry/framework/base/text.h"
#include "belfry/framework/core_ops/initializers.h"
#include "belfry/ops/matmul.h"
#include "belfry/tests/support/sanitizers.h"
#include "belfry/tests/trainers/core/uneven_support.h"

namespace belfry {
namespace uneven_grid_test {

constexpr double kRate = 0.1;

// The smallest model: y = x w, with squared errors.
Output line(Tower& tower, Output x, Output y) {
  const Variable w =
      variable(tower.graph(), "w", {4, 1}, {.dtype = DType::kF64, .initializer = init::zeros()});
  return reduce_mean(square(matmul(x, w) - y));
}

struct Cell {
  std::int64_t samples;
  int batch, towers;
  std::string str() const {
    return cat(samples, " samples, batch ", batch, ", ", towers, " towers");
  }
};

struct Outcome {
  std::vector<double> w;
  double loss = 0;
};

// Trains on one device with the whole batch, in plain C++, over `samples` in the order of the seed.
Outcome plain_training(const Dataset& data, const Cell& cell, std::int64_t samples) {
  std::vector<std::int64_t> order(static_cast<std::size_t>(cell.samples));
  BatchPlan(cell.samples, 1, 1, 1).shuffle(0, order);
  const std::vector<Tensor> rows = gather_tensors(data, order);
  const auto x = rows[0].data<double>(), y = rows[1].data<double>();
  Outcome result{.w = std::vector<double>(4)};
  const std::int64_t global = static_cast<std::int64_t>(cell.batch) * cell.towers;
  for (std::int64_t begin = 0; begin < samples; begin += global) {
    const std::int64_t end = std::min(begin + global, samples);
    const auto n = static_cast<double>(end - begin);
    double gradient[4] = {};
    result.loss = 0;
    for (std::int64_t i = begin; i < end; ++i) {
      const auto row = x.subspan(static_cast<std::size_t>(4 * i), 4);
      double error = -y[static_cast<std::size_t>(i)];
      for (std::size_t j = 0; j < 4; ++j) error += row[j] * result.w[j];
      for (std::size_t j = 0; j < 4; ++j) gradient[j] += 2 * error * row[j] / n;
      result.loss += error * error / n;
    }
    for (std::size_t j = 0; j < 4; ++j) result.w[j] -= kRate * gradient[j];
  }
  return result;
}

void check(const Cell& cell, Uneven uneven) {
  const auto data = smooth_data(cell.samples);
  const std::int64_t global = static_cast<std::int64_t>(cell.batch) * cell.towers;
  TrainerOptions options{.model = line,
                         .optimizer = sgd(kRate),
                         .devices = cpus(cell.towers),
                         .batch_size = cell.batch,
                         .batches = {.uneven = uneven},
                         .session = {.threads = 1 + static_cast<int>(cell.samples % 2)}};
  const bool refused = (uneven == Uneven::kDrop && cell.samples < global) ||
                       (uneven == Uneven::kError && cell.samples % global != 0);
  const auto make = [&] { return Trainer(find_trainer("replicated"), options, *data); };
  if (refused) {
    EXPECT_THROW(make(), InvalidArgument) << cell.str();
    return;
  }
  Trainer trainer(find_trainer("replicated"), options, *data);
  trainer.train();
  const std::int64_t taken =
      uneven == Uneven::kDrop ? cell.samples / global * global : cell.samples;
  const Outcome want = plain_training(*data, cell, taken);
  ASSERT_EQ(trainer.steps(), (taken + global - 1) / global) << cell.str();
  expect_near(trained(trainer), want.w, 1e-12, cell.str());
  expect_near({trainer.metric("loss")}, {want.loss}, 1e-12, cell.str());
  ASSERT_TRUE(differing_replicas(trainer.session(), trainer.graph()).empty()) << cell.str();
}

constexpr int kSamples = 200, kBatch = 16, kTowers = 8;

// Checks some cells, the same ones every time.
void check_some(int count, Uneven uneven) {
  std::mt19937 random(20 + static_cast<unsigned>(uneven));
  const auto up_to = [&](int most) {
    return 1 + static_cast<int>(random() % static_cast<unsigned>(most));
  };
  for (int i = 0; i < count && !testing::Test::HasFatalFailure(); ++i) {
    const int samples = up_to(kSamples), batch = up_to(kBatch), towers = up_to(kTowers);
    // Makes some cells acceptable.
    const int whole = samples < batch * towers ? 1 : samples / (batch * towers);
    const bool fills = uneven == Uneven::kError && i % 2 == 0;
    check({fills ? static_cast<std::int64_t>(whole) * batch * towers : samples, batch, towers},
          uneven);
  }
}

constexpr int kSomeCells = kSanitized ? 150 : 500;

TEST(UnevenGrid, WeightIsOneDeviceInSomeCells) {
  check_some(kSanitized ? kSomeCells : 2000, Uneven::kWeight);
}
TEST(UnevenGrid, PadIsOneDeviceInSomeCells) { check_some(kSomeCells, Uneven::kPad); }
TEST(UnevenGrid, DropIsOneDeviceInSomeCells) { check_some(kSomeCells, Uneven::kDrop); }
TEST(UnevenGrid, ErrorIsOneDeviceInSomeCells) { check_some(kSomeCells, Uneven::kError); }

TEST(UnevenGrid, LongWeightIsOneDeviceInEveryCell) {
  if (kSanitized) GTEST_SKIP() << "sanitizers take some cells";
  for (int samples = 1; samples <= kSamples; ++samples)
    for (int batch = 1; batch <= kBatch; ++batch)
      for (int towers = 1; towers <= kTowers && !HasFatalFailure(); ++towers)
        check({samples, batch, towers}, Uneven::kWeight);
}

}  // namespace uneven_grid_test
}  // namespace belfry
