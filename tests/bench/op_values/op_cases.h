// Random uses of ops, whose values scripts/compare_with_torch compares with PyTorch's.
#pragma once
#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "belfry/framework/base/json.h"
#include "belfry/framework/base/tensor.h"
#include "belfry/tests/support/grad_check.h"

namespace belfry::bench {

class Random {
 public:
  explicit Random(std::uint64_t seed) : bits_(seed) {}

  // Both bounds may come out.
  int integer(int low, int high);
  bool coin() { return integer(0, 1) == 1; }
  // Ranks in these bounds, sizes from 1 to 5.
  Shape shape(int least_rank = 1, int most_rank = 4);
  // f64, in [low, high). They have 20 bits, so that f32 holds them, too.
  Tensor values(const Shape& shape, double low = -2, double high = 2);
  // i32 or i64. Both bounds may come out.
  Tensor integers(const Shape& shape, int low, int high, DType dtype = DType::kI32);

 private:
  std::mt19937_64 bits_;
};

// One use of an op.
struct OpUse {
  Builder build;
  std::vector<Tensor> inputs;  // floating ones in f64
  // What the script passes to the function of PyTorch besides the inputs, by name.
  JsonValue options = JsonValue::object();
};

struct OpCase {
  std::string name;  // a function of scripts/torch_ops.py
  std::function<OpUse(Random&)> make;
  int derivatives = 2;  // how often it can be differentiated: 0, 1 or 2
};

// By rooms of `ops`.
std::vector<OpCase> attention_cases();
std::vector<OpCase> indexing_cases();
std::vector<OpCase> linear_algebra_cases();
std::vector<OpCase> loss_cases();
std::vector<OpCase> pointwise_cases();
std::vector<OpCase> recurrent_cases();
std::vector<OpCase> shapes_cases();
std::vector<OpCase> standard_cases();
std::vector<OpCase> window_cases();

}  // namespace belfry::bench
