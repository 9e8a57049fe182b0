// Linear algebra in training: a Gaussian process learns the length and the noise of functions by
// their likelihood.
#include <cmath>

#include <gtest/gtest.h>

#include "belfry/framework/core_ops/initializers.h"
#include "belfry/ops/exp.h"
#include "belfry/ops/expand_dims.h"
#include "belfry/ops/linear_algebra/cholesky.h"
#include "belfry/ops/log.h"
#include "belfry/ops/matmul.h"
#include "belfry/ops/shapes/constants.h"
#include "belfry/tests/support/op_test.h"
#include "belfry/tests/trainers/core/small_problem.h"
#include "belfry/trainers/core/independence.h"
#include "belfry/trainers/core/trainer.h"
#include "belfry/trainers/core/trainer_kinds.h"

namespace belfry {
namespace gaussian_process_test {

constexpr std::int64_t kPoints = 12, kFunctions = 256;
constexpr double kLength = 0.5, kNoise = 0.1;

// Of points x [functions, points].
Output covariance(Output x, Operand length, Operand noise) {
  const Output apart = square(expand_dims(x, 2) - expand_dims(x, 1)) / square(length.beside(x));
  const Output related = exp(-0.5 * apart);
  const Output same = related * eye(x.graph(), kPoints, x.dtype());  // for each function
  return related + square(noise.beside(x)) * same;
}

std::unique_ptr<Dataset> random_functions() {
  const Tensor x = to(random_values({kFunctions, kPoints}), DType::kF64);
  // Sums of 12 uniform numbers are near to normal ones.
  const Tensor normal = to(random_values({kFunctions, kPoints, 12}, -0.5, 0.5, 2), DType::kF64);
  const Tensor y = compute(
      [](Inputs xs) {
        const Output l = cholesky(covariance(xs[0], kLength, kNoise));
        return squeeze(matmul(l, reduce_sum(xs[1], {2}, ReducedAxes::kKept)), {2});
      },
      {x, normal});
  return std::make_unique<TensorDataset>(
      std::vector<TensorDataset::Source>{{"x", x, DType::kF64, {kPoints}},
                                         {"y", y, DType::kF64, {kPoints}}},
      "functions of a Gaussian process");
}

// Minus the logarithm of the likelihood of y, but for a constant.
Output unlikelihood(Tower& tower, Output x, Output y) {
  const auto positive = [&](const char* name) {
    return exp(variable(tower.graph(), name, {},
                        {.dtype = DType::kF64, .initializer = init::constant(0)}));
  };
  const Output length = positive("log_length"), noise = positive("log_noise");
  const Output l = cholesky(covariance(x, length, noise));
  const Output diagonal = reduce_sum(l * eye(x.graph(), kPoints, x.dtype()), {-1});
  return reduce_mean(reduce_sum(0.5 * y * cholesky_solve(l, y) + log(diagonal), {-1}));
}

std::unique_ptr<Trainer> trained(int devices, const Dataset& functions) {
  auto trainer = std::make_unique<Trainer>(
      find_trainer(devices == 1 ? "simple" : "replicated"),
      TrainerOptions{.model = unlikelihood,
                     .optimizer = adam(0.05),
                     .devices = cpus(devices),
                     .aggregation = {.allreduce = devices == 1 ? "" : "collective"},
                     .batch_size = 64 / devices,
                     .shards = 4,
                     .epochs = 40},
      functions);
  trainer->train();
  return trainer;
}

TEST(GaussianProcess, LearnsWhatFunctionsWereDrawnFromOnAnyNumberOfDevices) {
  const std::unique_ptr<Dataset> functions = random_functions();
  const auto values = [&](int devices) {
    const std::unique_ptr<Trainer> trainer = trained(devices, *functions);
    EXPECT_EQ(k_dependence(trainer->built()), "");
    std::vector<double> result;
    for (const Variable v : trainer->graph().variables(kTrainableVariables))
      if (!v.node().variable().local)
        result.push_back(trainer->session().read(v).data<double>()[0]);
    return result;
  };
  const std::vector<double> one = values(1);
  ASSERT_EQ(one.size(), 2u);
  EXPECT_NEAR(std::exp(one[0]), kLength, 0.02);
  EXPECT_NEAR(std::exp(one[1]), kNoise, 0.01);
  EXPECT_EQ(values(2), one);
}

}  // namespace gaussian_process_test
}  // namespace belfry
