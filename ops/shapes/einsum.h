// Sums of products of tensors, by the names of their axes.
#pragma once
#include <initializer_list>
#include <span>
#include <string_view>

#include "belfry/framework/graph/graph.h"

namespace belfry {

// einsum("bij,bjk->bik", {a, b}), as in NumPy: letters name the axes of each operand, and axes that
// the result lacks are summed over. Without "->" the result has the letters that occur once, in
// alphabetical order. Spaces are ignored. Operands are multiplied by pairs from the left, as
// products of matrices (matmul) where an axis is summed over.
//
// Throws InvalidArgument for a letter that one operand has twice (a diagonal), for "...", for
// letters of the result that no operand has, and for axes of one name whose sizes differ.
Output einsum(std::string_view equation, std::span<const Output> operands, At at = {});
Output einsum(std::string_view equation, std::initializer_list<Output> operands, At at = {});

}  // namespace belfry
