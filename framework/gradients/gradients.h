// Reverse-mode differentiation: adds the nodes that compute dy/dx.
#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "belfry/framework/graph/graph.h"

namespace belfry {

// The gradient of an x that y does not depend on.
enum class UnconnectedGradients {
  kNone,  // an empty Output
  kZero,  // zeros of x's shape and dtype
};

// Which gradients become available together, through identities that wait for all of them. Results
// do not depend on it: variables are versioned, so an update never changes what gradients read.
// Gates order work. With kGraph no update starts before the last gradient is ready, so a backward
// pass that fails leaves all variables unchanged.
enum class GradientGate {
  kNone,   // each as soon as it is computed: the most parallelism
  kOp,     // the gradients of one op's inputs together
  kGraph,  // all results together
};

struct GradientOptions {
  // Each gradient node, the initial gradient and zeros share the device of the node they
  // differentiate; otherwise the scopes around the call apply. gradients() says where sums are
  // placed.
  bool colocate = false;
  std::vector<Output> initial = {};  // dL/dy for each y, of its shape; ones where empty or left out
  std::vector<Output> stop = {};     // constants: they get gradients, but pass none on
  UnconnectedGradients unconnected = UnconnectedGradients::kNone;
  GradientGate gate = GradientGate::kNone;
  // Name scopes to recompute (rematerialise) where gradients need their outputs, instead of keeping
  // these from the forward pass: the same bits for less memory and more arithmetic. Outputs used by
  // nodes outside a scope are kept. Names have no tower prefix. A star in a component stands for
  // any characters: "block*" is each of block0, block1, ... separately, and "*/fc*" what they hold.
  std::vector<std::string> recompute = {};
};

// Collection of the recomputed nodes.
inline constexpr std::string_view kRecomputed = "recomputed";

// The scope among `scopes` (GradientOptions::recompute) that contains a node of this logical name,
// with stars replaced: "block3" of "block3/fc/MatMul". "" if none does.
std::string recompute_scope(std::string_view name, std::span<const std::string> scopes);

// dy/dx for each x, of x's shape and dtype; several ys add up. Nodes are named
// gradients/<op>_grad/... ("gradients" made unique; At's name instead of it, if there is one) and
// carry the line of the node whose gradient they compute.
//
// Several uses of a tensor are summed by one canonical tree (add_n) over the uses in the order in
// which their consumers were created, an initial gradient first, wherever they are. So bits do not
// depend on placement (TensorFlow sums per device first). Uses that request one device are one AddN
// next to the first, as in TensorFlow. Otherwise the tree is cut at its root, as often as needed.
// With `colocate` the whole sum is then placed with the tensor, as in TensorFlow. Each inner sum,
// and without `colocate` the whole one, is placed on the device that most of the uses below it
// request (the first of several such devices).
//
// Throws NotFoundError "No gradient defined for operation '<name>' (op type: <T>)" with its line if
// an op on the path has none. Throws InvalidArgument naming op, input and both shapes if the shape
// of a gradient differs from its input's. Also throws it if y is not floating point, or if the
// tensors belong to different graphs.
std::vector<Output> gradients(Output y, std::span<const Output> xs, GradientOptions options = {},
                              At at = {});
std::vector<Output> gradients(Output y, std::initializer_list<Output> xs,
                              GradientOptions options = {}, At at = {});
std::vector<Output> gradients(std::span<const Output> ys, std::span<const Output> xs,
                              GradientOptions options = {}, At at = {});
// Gradients with respect to variables: each is the sum over all reads of the variable. (A variable
// as an Output is its value from before the step: only that read.)
std::vector<Output> gradients(Output y, std::span<const Variable> xs, GradientOptions options = {},
                              At at = {});

// The gradient of a loss with respect to one variable.
struct Gradient {
  Output value;  // empty: none
  Variable variable;
};

// Gradients of a scalar loss; variables that it does not depend on are left out, with a warning.
// All trainable variables are graph.variables(kTrainableVariables). Throws InvalidArgument "No
// variables to optimize." or "No gradients provided for any variable: [...]" with the line.
std::vector<Gradient> compute_gradients(Output loss, std::span<const Variable> variables,
                                        GradientOptions options = {.colocate = true}, At at = {});

}  // namespace belfry
