// Shared by tests of optimizer updates: check_op cannot serve them, as an update has variables.
#pragma once
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "belfry/framework/graph/variable.h"
#include "belfry/tests/support/interpreter.h"
#include "belfry/tests/support/op_test.h"

namespace belfry {

// Adds the update of the variables, given its other inputs.
using UpdateBuilder = std::function<Node&(std::span<const Variable>, Inputs)>;

// Values of the variables after one update.
std::vector<Tensor> update(const UpdateBuilder& build, const std::vector<Tensor>& variables,
                           const std::vector<Tensor>& inputs, InterpreterOptions options = {});

// Checks, in f32 and f64, fast kernels against reference kernels and the outputs against the
// variables. 2 and 3 parts, and first parts of 0 to 31 elements, must have the bits of the whole.
// NaN in the first floating input must reach the first variable.
void check_update(const UpdateBuilder& build, const std::vector<Tensor>& variables,
                  const std::vector<Tensor>& inputs);

// Building throws InvalidArgument with `message` in its text.
void expect_update_refused(const UpdateBuilder& build, const std::vector<Tensor>& variables,
                           const std::vector<Tensor>& inputs, const std::string& message);

}  // namespace belfry
