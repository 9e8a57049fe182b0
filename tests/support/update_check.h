// What tests of optimizer updates share: check_op cannot serve, as an update has variables.
#pragma once
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "belfry/framework/graph/variable.h"
#include "belfry/tests/support/interpreter.h"
#include "belfry/tests/support/op_test.h"

namespace belfry {

// Adds the update of variables given its other inputs.
using UpdateBuilder = std::function<Node&(std::span<const Variable>, Inputs)>;

// Values of the variables after one update.
std::vector<Tensor> update(const UpdateBuilder& build, const std::vector<Tensor>& variables,
                           const std::vector<Tensor>& inputs, InterpreterOptions options = {});

// In f32 and f64: fast kernels against reference kernels, 2 and 3 parts and first parts of 0 to 31
// elements against the whole (equal bits), the outputs against the variables, and NaN in the first
// floating input reaching the first variable.
void check_update(const UpdateBuilder& build, const std::vector<Tensor>& variables,
                  const std::vector<Tensor>& inputs);

// Building throws InvalidArgument with `message` in its text.
void expect_update_refused(const UpdateBuilder& build, const std::vector<Tensor>& variables,
                           const std::vector<Tensor>& inputs, const std::string& message);

}  // namespace belfry
