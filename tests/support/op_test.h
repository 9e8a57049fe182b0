// Checks in one call what every op must hold:
//
//   TEST(Relu, KeepsItsContract) {
//     check_op({.build = [](Inputs x) { return relu(x[0]); }, .inputs = {random_values({5, 7})}});
//   }
//   TEST(Relu, RefusesIntegers) {
//     expect_refused([](Inputs x) { return relu(x[0]); }, {{{2}, DType::kI32}}, "Relu");
//   }
#pragma once
#include <initializer_list>
#include <string>
#include <vector>

#include "belfry/framework/graph/op.h"
#include "belfry/tests/support/grad_check.h"

namespace belfry {

struct OpTest {
  Builder build;
  // Floating inputs in f32; they are cast where a check runs in f64.
  std::vector<Tensor> inputs;
  // Largest difference between fast and reference kernels, relative to the largest magnitude in the
  // tensor, per type.
  double f32 = 1e-6;
  double f64 = 1e-13;
  // Largest difference between analytic and numeric gradients in f64; negative if the op has none.
  double gradient = 1e-6;
  // Step of the numeric gradient.
  double step = 1e-5;
  // The op's kernels are a library's: parts may differ from the whole by the tolerances of
  // batch-reduce, 1e-6 (f64: 1e-12), instead of having equal bits.
  bool library = false;
  // NaN in every floating input gives NaN in every element of floating outputs, and NaN in one
  // input gives some.
  bool nan = true;
  // Also builds with dimension 0 of input 0 unknown.
  bool unknown = true;
};

// Checks, with GoogleTest expectations, for f32 and f64, outputs and gradients alike:
//   fast kernels against reference kernels;
//   2 and 3 parts against the whole: equal bits, or near for libraries and batch-reduce;
//   2, 3 and 7 shards of the first input's rows against one: near;
//   first parts of 0 to 31 units: equal bits;
//   for one pointwise node, inputs rotated by 0 to 31;
//   NaN; unknown dimensions;
//   gradients, and gradients of gradients, against central differences in f64.
void check_op(const OpTest& test);

// Building from placeholders of these types throws InvalidArgument with `message` in its text.
void expect_refused(const Builder& build, const std::vector<TensorType>& types,
                    const std::string& message);

// f32 tensors for tests: uniform in [low, high); equal arguments give equal values.
Tensor random_values(Shape shape, double low = -2, double high = 2, unsigned seed = 1);
// The tensor in another dtype; values are converted as in C++. f32 is rounded to 16 bits, which
// become other types by way of f32.
Tensor to(const Tensor& tensor, DType dtype);
// All elements as doubles.
std::vector<double> doubles(const Tensor& tensor);
// Largest |a - b| over the largest |b| (1 if all are 0); infinite if NaNs or shapes do not match.
double difference(const Tensor& a, const Tensor& b);

// Builds from constant inputs and evaluates with fast kernels: for hand values.
//   EXPECT_EQ(doubles(compute(relu_of, {Tensor({2}, std::vector{-1.f, 2.f})})),
//   (std::vector{0., 2.}));
Tensor compute(const Builder& build, const std::vector<Tensor>& inputs);

}  // namespace belfry
