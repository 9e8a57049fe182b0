// The verifier at graph build: checks what strategies receive and what they return. Once shapes,
// feeds and fetches are known, compile() checks the rest (framework/passes/verify.cc).
#pragma once
#include <vector>

#include "belfry/allreduce/verify/gradient_table.h"

namespace belfry {

// Whether one tensor could stand for the other; dimensions may be unknown until a plan is compiled.
bool same_type(Output a, Output b);

// Rows agree among themselves, as GradientTable checks; they must also stand for towers. Throws
// InvalidArgument naming the variable and the lines if
// * a row has two gradients of one variable, or one of another shape than its variable;
// * two towers have the same tensor as gradient, unless it is a constant;
// * some towers share a variable and others do not, or rows are not in the order of their towers;
// * a gradient was computed in another tower than that of its variable;
// * some towers share a device and others do not (`devices`, one per row; empty ones are unknown).
void verify_rows(const GradientRows& rows, const std::vector<DeviceSpec>& devices);

// Checks that values[t][v] can stand for the gradients. Throws InvalidArgument naming the variable
// and the lines if a tower or variable is missing or one too many. Throws it, too, if a value is
// empty, or of another graph, shape or dtype.
void verify_layout(const GradientRows& rows, const OutputRows& values);

// Refuses to combine a table twice, which would count every tower K times. Throws InvalidArgument
// naming the variable and the lines if a strategy has combined these gradients for the same
// variables.
void verify_fresh(const GradientTable& grads);

// Means need floating types; throws InvalidArgument naming the variable and its line.
void verify_mean(const GradientTable& grads);

// The combined gradients values[t][v] as a table. Nodes from number `first` on compute them. Throws
// InvalidArgument naming the variable and the lines if
// * verify_layout() does;
// * a value, or a part of it that is next to others, is not made of the gradients of its variable
//   on all towers, each once, and of no other variable's;
// * participants of a collective are not in the order of towers, or are given each other's outputs.
GradientTable verified(const GradientTable& grads, const OutputRows& values, std::size_t first);

// Strategies sum 16 bits in f32 and round once, in one node. Throws InvalidArgument for a node from
// number `first` on that would round on the way.
void verify_rounded_once(const Graph& graph, std::size_t first);

// Records in the graph what was combined, for compile(): `results` are the combined gradients of
// `grads`.
void note_combined(const GradientTable& grads, const GradientTable& results);

}  // namespace belfry
