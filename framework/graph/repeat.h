// Loops of the graph.
#pragma once
#include <functional>
#include <vector>

#include "belfry/framework/graph/graph.h"

namespace belfry {

// Calls body(round, values) for rounds 0, 1, ... and returns the values of the last round. Round 0
// gets `first`, each later one what the body returned. A round must return as many values as it
// gets, with their types. `rounds` is a constant of the graph, which holds the nodes of every
// round, so the loop can be differentiated and its memory is known before the first run. Rows
// that take fewer rounds choose between the old and the new value in the body.
//
//   const Output root = repeat(8, {guess}, [&](int, std::vector<Output> x) {
//     return std::vector<Output>{(x[0] + a / x[0]) * 0.5};
//   })[0];
//
// Round r has the name scope <name>/round<r>, "repeat" by default. Round 0 creates the variables of
// the body in the variable scope in force; later rounds find the same ones, of layers too, and
// throw NotFoundError for others. Throws InvalidArgument if there are no values, if one is
// empty, if they change in number, dtype or known dimensions, and if `rounds` is negative. Without
// rounds it returns `first`.
std::vector<Output> repeat(
    int rounds, std::vector<Output> first,
    const std::function<std::vector<Output>(int round, std::vector<Output> values)>& body,
    At at = {});

}  // namespace belfry
