#include "belfry/tests/support/update_check.h"

#include <limits>

#include <gtest/gtest.h>

#include "belfry/framework/base/text.h"
#include "belfry/framework/core_ops/constant.h"
#include "belfry/framework/core_ops/initializers.h"

namespace belfry {
namespace {

Tensor in(DType dtype, const Tensor& tensor) {
  return is_floating(tensor.dtype()) ? to(tensor, dtype) : tensor;
}

std::vector<Tensor> all_in(DType dtype, const std::vector<Tensor>& tensors) {
  std::vector<Tensor> result;
  for (const Tensor& tensor : tensors) result.push_back(in(dtype, tensor));
  return result;
}

struct BuiltUpdate {
  std::vector<Variable> variables;
  Node* node;
};

BuiltUpdate build_update(Graph& graph, const UpdateBuilder& build,
                         const std::vector<Tensor>& variables, const std::vector<Tensor>& inputs) {
  BuiltUpdate built;
  std::vector<Output> xs;
  for (const Tensor& tensor : inputs) xs.push_back(constant(graph, tensor));
  for (const Tensor& tensor : variables)
    built.variables.push_back(
        variable(graph, cat("v", built.variables.size()), tensor.shape(),
                 {.dtype = tensor.dtype(), .initializer = init::value(tensor)}));
  built.node = &build(built.variables, xs);
  return built;
}

void check_in(DType dtype, const UpdateBuilder& build, const std::vector<Tensor>& variables,
              const std::vector<Tensor>& inputs) {
  SCOPED_TRACE(cat("in ", name_of(dtype)));
  const auto run = [&](InterpreterOptions options) {
    return update(build, all_in(dtype, variables), all_in(dtype, inputs), options);
  };
  const std::vector<Tensor> whole = run({}), plain = run({.reference = true});
  for (std::size_t i = 0; i < whole.size(); ++i)
    EXPECT_LE(difference(whole[i], plain[i]), dtype == DType::kF32 ? 1e-6 : 1e-14)
        << "fast kernel against reference kernel, variable " << i;
  for (const int parts : {2, 3}) EXPECT_EQ(run({.parts = parts}), whole) << parts << " parts";
  for (int shift = 0; shift < 32; ++shift) EXPECT_EQ(run({.shift = shift}), whole) << shift;
}

void check_outputs(const UpdateBuilder& build, const std::vector<Tensor>& variables,
                   const std::vector<Tensor>& inputs) {
  Graph graph;
  const BuiltUpdate built = build_update(graph, build, variables, inputs);
  ASSERT_EQ(built.node->outputs(), variables.size());
  std::vector<Fetch> fetches;
  for (std::size_t i = 0; i < variables.size(); ++i) fetches.emplace_back(built.node->output(i));
  const std::vector<Tensor> outputs = Interpreter().run(fetches);
  EXPECT_EQ(outputs, update(build, variables, inputs));
}

}  // namespace

std::vector<Tensor> update(const UpdateBuilder& build, const std::vector<Tensor>& variables,
                           const std::vector<Tensor>& inputs, InterpreterOptions options) {
  Graph graph;
  const BuiltUpdate built = build_update(graph, build, variables, inputs);
  Interpreter interpreter(options);
  interpreter.run({*built.node});
  std::vector<Tensor> after;
  for (const Variable& v : built.variables) after.push_back(interpreter.read(v));
  return after;
}

void check_update(const UpdateBuilder& build, const std::vector<Tensor>& variables,
                  const std::vector<Tensor>& inputs) {
  for (const DType dtype : {DType::kF32, DType::kF64}) check_in(dtype, build, variables, inputs);
  check_outputs(build, variables, inputs);
  std::vector<Tensor> poisoned = inputs;
  for (Tensor& tensor : poisoned) {
    if (!is_floating(tensor.dtype())) continue;
    tensor.mutable_data<float>()[0] = std::numeric_limits<float>::quiet_NaN();
    break;
  }
  const Tensor after = update(build, variables, poisoned)[0];
  EXPECT_NE(after.data<float>()[0], after.data<float>()[0]);
}

void expect_update_refused(const UpdateBuilder& build, const std::vector<Tensor>& variables,
                           const std::vector<Tensor>& inputs, const std::string& message) {
  Graph graph;
  try {
    build_update(graph, build, variables, inputs);
    FAIL() << "was built";
  } catch (const InvalidArgument& error) {
    EXPECT_NE(std::string(error.what()).find(message), std::string::npos) << error.what();
  }
}

}  // namespace belfry
