#include "belfry/tests/support/op_test.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <random>

#include <gtest/gtest.h>

#include "belfry/framework/base/text.h"
#include "belfry/framework/core_ops/constant.h"
#include "belfry/framework/core_ops/placeholder.h"
#include "belfry/framework/gradients/gradients.h"
#include "belfry/framework/kernels/half.h"
#include "belfry/framework/run/session.h"
#include "belfry/tests/support/interpreter.h"
#include "belfry/tests/support/sanitizers.h"

namespace belfry {
namespace {

// A builder's outputs and, for each floating one, its gradients along a fixed random direction.
class Case {
 public:
  Case(const OpTest& test, DType dtype, bool unknown = false) : gradient_(test.gradient >= 0) {
    for (const Tensor& input : test.inputs) {
      inputs_.push_back(is_floating(input.dtype()) ? to(input, dtype) : input);
      Shape shape = input.shape();
      if (unknown && inputs_.size() == 1) shape[0] = kUnknownSize;
      xs_.push_back(placeholder(graph_, cat("x", xs_.size()), inputs_.back().dtype(), shape));
    }
    outputs_ = test.build(xs_);
    forward_ = outputs_.size();
    if (gradient_) add_gradients();
  }

  // Outputs, then gradients.
  std::vector<Tensor> run(InterpreterOptions options = {}) const {
    return evaluate(outputs_, feeds(inputs_), options);
  }
  // Outputs alone, for other inputs.
  std::vector<Tensor> run_with(const std::vector<Tensor>& inputs) const {
    return evaluate(std::span(outputs_).first(forward_), feeds(inputs));
  }

  // As run(), by a session that cuts all inputs with as many rows as the first into shards.
  std::vector<Tensor> run_in_shards(int shards) const {
    std::vector<FeedType> types;
    for (std::size_t i = 0; i < xs_.size(); ++i) {
      const Shape& shape = inputs_[i].shape();
      const bool rows = shape.rank() > 0 && shape[0] == inputs_[0].shape()[0];
      types.push_back({xs_[i], shape, rows ? std::optional<std::int64_t>(0) : std::nullopt});
    }
    std::vector<Fetch> fetches(outputs_.begin(), outputs_.end());
    Session session(graph_, {.shards_per_device = shards, .threads = 2, .all_workers = true});
    CompiledStep& step = session.prepare(fetches, types);
    step.run(inputs_);
    std::vector<Tensor> results;
    for (std::size_t i = 0; i < outputs_.size(); ++i) {
      results.push_back(step.fetched(i));
      results.back().mutable_raw();  // memory of its own
    }
    return results;
  }

  std::vector<Tensor> inputs_;
  std::vector<Output> outputs_;
  std::size_t forward_ = 0;
  Graph graph_;

  bool any(WorkSplit split) const {
    for (std::size_t id = 0; id < graph_.size(); ++id)
      if (graph_.node(id).op().split == split) return true;
    return false;
  }

  // True if the outputs are one pointwise node over inputs of its own shape.
  bool is_pointwise() const {
    if (forward_ != 1) return false;
    const Node& node = outputs_[0].node();
    if (node.op().split != WorkSplit::kElements || node.inputs().size() != xs_.size()) return false;
    return std::ranges::all_of(xs_, [&](const Output& x) {
      return x.shape() == outputs_[0].shape() && x.shape().elements() > 0 &&
             std::ranges::find(node.inputs(), x) != node.inputs().end();
    });
  }

 private:
  void add_gradients() {
    std::vector<Output> floating;
    for (const Output& x : xs_)
      if (is_floating(x.dtype())) floating.push_back(x);
    const std::vector<Tensor> values = run();
    for (std::size_t i = 0; i < forward_; ++i) {
      if (!is_floating(outputs_[i].dtype())) continue;
      const Tensor direction = to(random_values(values[i].shape(), -1, 1, 23), values[i].dtype());
      const Output initial = constant(graph_, direction);
      for (const Output& gradient : gradients(outputs_[i], floating, {.initial = {initial}}))
        if (gradient) outputs_.push_back(gradient);
    }
  }

  std::vector<FeedValue> feeds(const std::vector<Tensor>& inputs) const {
    std::vector<FeedValue> result;
    for (std::size_t i = 0; i < xs_.size(); ++i) result.push_back({xs_[i], inputs[i]});
    return result;
  }

  bool gradient_;
  std::vector<Output> xs_;
};

std::string label(const Case& tested, std::size_t i) {
  return cat(i < tested.forward_ ? "output " : "gradient ",
             i < tested.forward_ ? i : i - tested.forward_, " of ",
             tested.outputs_[i].node().describe());
}

// Expects |a - b| within `tolerance`; 0 asks for equal bits.
void expect_near(const Case& tested, const std::vector<Tensor>& actual,
                 const std::vector<Tensor>& expected, double tolerance, const std::string& what) {
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (tolerance == 0) {
      EXPECT_TRUE(actual[i] == expected[i])
          << what << ": other bits in " << label(tested, i) << "\n"
          << actual[i].str() << "\ninstead of\n"
          << expected[i].str();
    } else {
      EXPECT_LE(difference(actual[i], expected[i]), tolerance)
          << what << ", " << label(tested, i) << "\n"
          << actual[i].str() << "\ninstead of\n"
          << expected[i].str();
    }
  }
}

void check_parts(const OpTest& test, const Case& tested, DType dtype,
                 const std::vector<Tensor>& whole) {
  const double tolerance = !test.library ? 0 : dtype == DType::kF32 ? 1e-6 : 1e-12;
  for (const bool reference : {false, true}) {
    const std::vector<Tensor> expected = reference ? tested.run({.reference = true}) : whole;
    for (const int parts : {2, 3})
      expect_near(tested, tested.run({.reference = reference, .parts = parts}), expected, tolerance,
                  cat(parts, " parts", reference ? " (reference)" : ""));
  }
  if (tested.any(WorkSplit::kElements))
    for (int shift = 0; shift < 32; ++shift)
      expect_near(tested, tested.run({.shift = shift}), whole, tolerance,
                  cat("a first part of ", shift));
}

// Some shards may have no rows.
void check_shards(const OpTest& test, const Case& tested, DType dtype) {
  if (test.inputs.empty() || test.inputs[0].shape().rank() == 0) return;
  const double tolerance = test.library || dtype == DType::kF32 ? 1e-6 : 1e-12;
  const std::vector<Tensor> whole = tested.run_in_shards(1);
  for (const int shards : {2, 3, 7})
    expect_near(tested, tested.run_in_shards(shards), whole, tolerance, cat(shards, " shards"));
}

void check_in_place(const Case& tested, const std::vector<Tensor>& whole) {
  for (const bool reference : {false, true}) {
    const std::vector<Tensor> expected = reference ? tested.run({.reference = true}) : whole;
    for (const int input : {0, 1, 2})
      expect_near(tested, tested.run({.reference = reference, .in_place = input}), expected, 0,
                  cat("in place of input ", input));
  }
}

Tensor rotated(const Tensor& tensor, std::int64_t by) {
  Tensor result(tensor.shape(), tensor.dtype());
  const auto unit = static_cast<std::int64_t>(size_of(tensor.dtype()));
  const std::int64_t n = tensor.elements();
  for (std::int64_t i = 0; i < n; ++i)
    std::memcpy(result.mutable_raw() + (i + by) % n * unit, tensor.raw() + i * unit,
                static_cast<std::size_t>(unit));
  return result;
}

void check_rotation(const Case& tested, const std::vector<Tensor>& whole) {
  if (!tested.is_pointwise()) return;
  for (int by = 0; by < 32; ++by) {
    std::vector<Tensor> inputs;
    for (const Tensor& input : tested.inputs_) inputs.push_back(rotated(input, by));
    EXPECT_TRUE(tested.run_with(inputs)[0] == rotated(whole[0], by))
        << "inputs rotated by " << by << " give other bits";
  }
}

Tensor nan_like(const Tensor& tensor) {
  Tensor result(tensor.shape(), tensor.dtype());
  visit_floating(tensor.dtype(), [&]<class T>(T) {
    for (T& value : result.mutable_data<T>()) value = std::numeric_limits<T>::quiet_NaN();
  });
  return result;
}

std::int64_t nan_count(const Tensor& tensor) {
  return std::ranges::count_if(doubles(tensor), [](double x) { return std::isnan(x); });
}

void check_nan(const Case& tested) {
  std::vector<Tensor> all;
  for (const Tensor& input : tested.inputs_)
    all.push_back(is_floating(input.dtype()) ? nan_like(input) : input);
  const std::vector<Tensor> poisoned = tested.run_with(all);
  for (std::size_t i = 0; i < poisoned.size(); ++i) {
    if (!is_floating(poisoned[i].dtype())) continue;
    EXPECT_EQ(nan_count(poisoned[i]), poisoned[i].elements())
        << "NaN in, but in " << label(tested, i) << "\n"
        << poisoned[i].str();
  }
  for (std::size_t i = 0; i < tested.inputs_.size(); ++i) {
    if (!is_floating(tested.inputs_[i].dtype())) continue;
    std::vector<Tensor> inputs = tested.inputs_;
    inputs[i] = all[i];
    std::int64_t found = 0;
    for (const Tensor& output : tested.run_with(inputs))
      if (is_floating(output.dtype())) found += nan_count(output);
    EXPECT_GT(found, 0) << "NaN in input " << i << " alone shows in no output";
  }
}

std::vector<Tensor> in_f64(const std::vector<Tensor>& tensors) {
  std::vector<Tensor> result;
  for (const Tensor& tensor : tensors)
    result.push_back(is_floating(tensor.dtype()) ? to(tensor, DType::kF64) : tensor);
  return result;
}

void check_gradient(const OpTest& test) {
  const GradientError error = gradient_error(test.build, in_f64(test.inputs), test.step);
  EXPECT_LE(error.largest, test.gradient) << "gradient: " << error.where;
}

// Checks gradients of gradients, unless one of the gradient's nodes has none.
void check_second_gradient(const OpTest& test) {
  const Builder first = [&](Inputs xs) {
    std::vector<Output> floating, result;
    for (const Output& x : xs)
      if (is_floating(x.dtype())) floating.push_back(x);
    const Built outputs = test.build(xs);
    for (const Output& y : outputs) {
      if (!is_floating(y.dtype())) continue;
      // Takes the gradient along y itself, so that all inputs of its nodes depend on the inputs.
      for (const Output& gradient : gradients(y, floating, {.initial = {y}}))
        if (gradient) result.push_back(gradient);
    }
    return Built(result);
  };
  try {
    const GradientError error = gradient_error(first, in_f64(test.inputs), test.step);
    EXPECT_LE(error.largest, std::max(test.gradient, 1e-5)) << "second gradient: " << error.where;
  } catch (const NotFoundError&) {
  }
}

void check_dtype(const OpTest& test, DType dtype) {
  SCOPED_TRACE(cat("in ", name_of(dtype)));
  const Case tested(test, dtype);
  const std::vector<Tensor> whole = tested.run();
  // Library kernels of GPUs may multiply by transforms, which round more (test_devices.h).
  const double slack = test.library && std::getenv("BELFRY_TEST_GPUS") ? 10 : 1;
  expect_near(tested, whole, tested.run({.reference = true}),
              slack * (dtype == DType::kF32 ? test.f32 : test.f64),
              "fast kernels against reference kernels");
  check_parts(test, tested, dtype, whole);
  check_shards(test, tested, dtype);
  check_in_place(tested, whole);
  check_rotation(tested, whole);
  if (test.nan) check_nan(tested);
  if (test.unknown && test.inputs[0].shape().rank() > 0) {
    const Case unknown(test, dtype, true);
    expect_near(unknown, unknown.run(), whole, dtype == DType::kF32 ? 1e-6 : 1e-12,
                "built with an unknown dimension");
  }
}

}  // namespace

void check_op(const OpTest& test) {
  try {
    check_dtype(test, DType::kF32);
    if (std::ranges::any_of(test.inputs, [](const Tensor& t) { return is_floating(t.dtype()); })) {
      check_dtype(test, DType::kF64);
      if (test.gradient >= 0) check_gradient(test);
      if (test.gradient >= 0 && !kSanitized) check_second_gradient(test);
    }
  } catch (const Error& error) {
    ADD_FAILURE() << error.what();
  }
}

void expect_refused(const Builder& build, const std::vector<TensorType>& types,
                    const std::string& message) {
  Graph graph;
  std::vector<Output> xs;
  for (const TensorType& type : types)
    xs.push_back(placeholder(graph, cat("x", xs.size()), type.dtype, type.shape));
  try {
    build(xs);
    ADD_FAILURE() << "was accepted; expected an error with: " << message;
  } catch (const InvalidArgument& error) {
    EXPECT_NE(std::string(error.what()).find(message), std::string::npos)
        << "the error is: " << error.what() << "\nexpected in it: " << message;
  }
}

Tensor random_values(Shape shape, double low, double high, unsigned seed) {
  Tensor tensor(std::move(shape), DType::kF32);
  std::mt19937 bits(seed);
  for (float& value : tensor.mutable_data<float>())
    value = static_cast<float>(low + (high - low) * (bits() * 0x1p-32));
  return tensor;
}

Tensor to(const Tensor& tensor, DType dtype) {
  if (is_half(tensor.dtype())) {
    Tensor wide(tensor.shape(), DType::kF32);
    kernels::half_conversion(tensor.dtype())
        .widen(reinterpret_cast<const std::uint16_t*>(tensor.raw()),
               wide.mutable_data<float>().data(), tensor.elements());
    return dtype == DType::kF32 ? wide : to(wide, dtype);
  }
  Tensor result(tensor.shape(), dtype);
  if (is_half(dtype)) {
    kernels::half_conversion(dtype).narrow(tensor.data<float>().data(),
                                           reinterpret_cast<std::uint16_t*>(result.mutable_raw()),
                                           tensor.elements());
    return result;
  }
  visit_any(tensor.dtype(), [&]<class From>(From) {
    visit_any(dtype, [&]<class To>(To) {
      std::ranges::transform(tensor.data<From>(), result.mutable_data<To>().begin(),
                             [](From value) { return static_cast<To>(value); });
    });
  });
  return result;
}

std::vector<double> doubles(const Tensor& tensor) {
  const Tensor wide = to(tensor, DType::kF64);
  return {wide.data<double>().begin(), wide.data<double>().end()};
}

double difference(const Tensor& a, const Tensor& b) {
  if (a.shape() != b.shape() || a.dtype() != b.dtype()) return HUGE_VAL;
  const std::vector<double> left = doubles(a), right = doubles(b);
  double largest = 0, scale = 0;
  for (std::size_t i = 0; i < left.size(); ++i) {
    if (std::isnan(left[i]) != std::isnan(right[i])) return HUGE_VAL;
    if (std::isnan(left[i]) || left[i] == right[i]) continue;
    largest = std::max(largest, std::abs(left[i] - right[i]));
  }
  for (const double value : right)
    if (std::isfinite(value)) scale = std::max(scale, std::abs(value));
  return largest / (scale == 0 ? 1 : scale);
}

Tensor compute(const Builder& build, const std::vector<Tensor>& inputs) {
  Graph graph;
  std::vector<Output> xs;
  for (const Tensor& input : inputs) xs.push_back(constant(graph, input));
  return evaluate(build(xs)[0]);
}

}  // namespace belfry
