// A problem small enough to train in milliseconds, for tests of whole training runs.
#pragma once
#include <cmath>
#include <memory>

#include "belfry/framework/core_ops/initializers.h"
#include "belfry/framework/graph/device_spec.h"
#include "belfry/ops/operand.h"
#include "belfry/ops/reduce.h"
#include "belfry/ops/square.h"
#include "belfry/ops/tanh.h"
#include "belfry/towers/layers.h"
#include "belfry/trainers/core/trainer_kinds.h"
#include "belfry/trainers/data/dataset.h"

namespace belfry {

inline std::vector<DeviceSpec> cpus(int count) {
  std::vector<DeviceSpec> devices;
  for (int i = 0; i < count; ++i) devices.push_back(DeviceSpec::local("CPU", i));
  return devices;
}

// Samples "x" f64 [4], "y" f64 [1], where y is a smooth function of x.
inline std::unique_ptr<Dataset> smooth_data(std::int64_t samples) {
  std::vector<double> x, y;
  for (std::int64_t i = 0; i < samples; ++i) {
    double sum = 0;
    for (int j = 0; j < 4; ++j) {
      x.push_back(std::sin(static_cast<double>(7 * i + 3 * j + 1)));
      sum += x.back() * (j + 1);
    }
    y.push_back(std::cos(sum));
  }
  return std::make_unique<TensorDataset>(
      std::vector<TensorDataset::Source>{{"x", Tensor({samples, 4}, x), DType::kF64, {4}},
                                         {"y", Tensor({samples, 1}, y), DType::kF64, {1}}},
      "a smooth function");
}

// Two layers of five and one units, and the metric "mean_x".
inline Output smooth_model(Tower& tower, Output x, Output y) {
  const Output hidden = tanh(dense(tower, "fc0", x, {.units = 5}));
  tower.metric("mean_x", reduce_mean(x));
  return reduce_mean(square(dense(tower, "fc1", hidden, {.units = 1}) - y));
}

// The same, whose input is multiplied by four factors that are not trained.
inline Output scaled_model(Tower& tower, Output x, Output y) {
  const Variable scale =
      variable(tower.graph(), "scale", {4},
               {.dtype = DType::kF64, .initializer = init::constant(0.5), .trainable = false});
  return smooth_model(tower, x * scale, y);
}

// The trainers of trainers/kinds. One that a test registers is called "test_..." and left out.
inline std::vector<std::string> library_trainers() {
  std::vector<std::string> names = trainer_names();
  std::erase_if(names, [](const std::string& name) { return name.starts_with("test_"); });
  return names;
}

}  // namespace belfry
