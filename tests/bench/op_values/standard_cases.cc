// The ops of the folder `ops` itself.
#include "belfry/belfry.h"
#include "belfry/tests/bench/op_values/op_cases.h"

namespace belfry::bench {
namespace {

// One floating input of any shape.
OpCase unary(std::string name, std::function<Output(Output)> op, double low = -2, double high = 2) {
  return {std::move(name), [=](Random& random) -> OpUse {
            return {[=](Inputs x) { return op(x[0]); }, {random.values(random.shape(), low, high)}};
          }};
}

OpUse gelu_use(Random& random) {
  const bool tanh = random.coin();
  return {[=](Inputs x) { return gelu(x[0], {tanh ? GeluForm::kByTanh : GeluForm::kExact}); },
          {random.values(random.shape())},
          JsonValue::object().set("approximate", tanh ? "tanh" : "none")};
}

OpUse reduce_sum_use(Random& random) {
  const Shape shape = random.shape();
  const int axis = random.integer(0, shape.rank() - 1);
  return {[=](Inputs x) { return reduce_sum(x[0], {axis}); },
          {random.values(shape)},
          JsonValue::object().set("axis", axis)};
}

OpUse matmul_use(Random& random) {
  const int m = random.integer(1, 9), k = random.integer(1, 9), n = random.integer(1, 9);
  return {[](Inputs x) { return matmul(x[0], x[1]); },
          {random.values({m, k}), random.values({k, n})}};
}

}  // namespace

std::vector<OpCase> standard_cases() {
  return {unary("relu", [](Output x) { return relu(x); }),
          unary("exp", [](Output x) { return exp(x); }),
          unary(
              "log", [](Output x) { return log(x); }, 0.5, 4),
          unary("sigmoid", [](Output x) { return sigmoid(x); }),
          unary("tanh", [](Output x) { return tanh(x); }),
          unary("silu", [](Output x) { return silu(x); }),
          unary(
              "sqrt", [](Output x) { return sqrt(x); }, 0.5, 4),
          {"gelu", gelu_use},
          {"reduce_sum", reduce_sum_use},
          {"matmul", matmul_use}};
}

}  // namespace belfry::bench
