// How each op becomes nodes of ONNX, by families.
#pragma once
#include <functional>
#include <vector>

#include "belfry/trainers/onnx/onnx_graph_impl.h"

namespace belfry::onnx {

// Adds what computes the outputs of a node, and sets them. An output that only gradients read may
// be left out.
using WriteOp = std::function<void(OnnxGraph&, const Node&)>;

struct OpWriter {
  const Op* op;
  WriteOp write;
};

std::vector<OpWriter> attention_writers();
std::vector<OpWriter> fourier_writers();
std::vector<OpWriter> image_writers();  // convolution, pooling, resizing
std::vector<OpWriter> indexing_writers();
std::vector<OpWriter> matrix_writers();  // products, and what takes rows: reductions, norms, losses
std::vector<OpWriter> pointwise_writers();
std::vector<OpWriter> recurrent_writers();
std::vector<OpWriter> shape_writers();

// The node as one of ONNX that takes the same inputs.
WriteOp as_node(const char* op, Attributes attributes = {});

// Throws InvalidArgument: this use of the op cannot be exported.
[[noreturn]] void refuse(const Node& node, const std::string& why);

// The axes of options as those of a tensor of this rank: none is negative.
Ints axes_of(const std::vector<int>& axes, std::size_t rank);
// `shape` for a Reshape. Throws if two dimensions are unknown.
Ints new_shape(const Node& node, const Shape& shape);
// The dimensions of x when the file runs.
std::string shape_of(OnnxGraph& g, const std::string& x);

}  // namespace belfry::onnx
