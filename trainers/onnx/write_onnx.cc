#include "belfry/trainers/onnx/write_onnx.h"

#include <algorithm>
#include <unordered_map>

#include "belfry/framework/base/require.h"
#include "belfry/framework/core_ops/constant.h"
#include "belfry/framework/core_ops/placeholder.h"
#include "belfry/trainers/onnx/onnx_file_impl.h"
#include "belfry/trainers/onnx/op_writers_impl.h"

namespace belfry {
namespace onnx {

WriteOp as_node(const char* op, Attributes attributes) {
  return [op, attributes = std::move(attributes)](OnnxGraph& g, const Node& node) {
    Names inputs;
    for (const Output& x : node.inputs()) inputs.push_back(g.in(x));
    g.set(node.output(), g.add(op, inputs, attributes));
  };
}

void refuse(const Node& node, const std::string& why) {
  throw InvalidArgument(cat(node.describe(), " cannot be exported to ONNX: ", why));
}

namespace {

const WriteOp* writer_of(const Op& op) {
  static const auto writers = [] {
    std::unordered_map<const Op*, WriteOp> all;
    for (const auto family : {attention_writers, fourier_writers, image_writers, indexing_writers,
                              matrix_writers, pointwise_writers, recurrent_writers, shape_writers})
      for (OpWriter& writer : family()) all.emplace(writer.op, std::move(writer.write));
    return all;
  }();
  const auto at = writers.find(&op);
  return at == writers.end() ? nullptr : &at->second;
}

bool is_value(const Node& node) { return node.is_variable() || &node.op() == &kConst; }

// The shapes of tensors for a batch of this size.
class ShapesForBatch {
 public:
  ShapesForBatch(const std::vector<const Node*>& nodes, const std::vector<Output>& inputs,
                 std::int64_t batch) {
    for (const Output& input : inputs) {
      TensorType type = input.type();
      if (type.shape.rank() > 0 && type.shape[0] == kUnknownSize) type.shape[0] = batch;
      types_[input.key()] = type;
    }
    for (const Node* node : nodes) add(*node);
  }

  const Shape& of(Output x) const { return types_.at(x.key()).shape; }

 private:
  void add(const Node& node) {
    if (types_.contains(node.output().key())) return;  // fed
    std::vector<TensorType> inputs;
    if (!is_value(node))
      for (const Output& x : node.inputs()) inputs.push_back(types_.at(x.key()));
    const std::vector<TensorType> outputs = infer_types(node, inputs);
    for (std::size_t i = 0; i < outputs.size(); ++i) types_[node.output(i).key()] = outputs[i];
  }

  std::map<std::pair<int, int>, TensorType> types_;
};

std::string name_of(Output input) { return std::string(input.node().logical_name()); }

std::vector<std::string> sizes_of_input(Output input) {
  std::vector<std::string> names;
  for (std::size_t axis = 0; axis < input.shape().rank(); ++axis)
    names.push_back(axis == 0 ? "batch" : cat(name_of(input), "_", axis));
  return names;
}

// The names of dimensions of an output that are a multiple of the batch, by its shapes for batches
// of 2 and 3.
std::vector<std::string> sizes_of_output(const Shape& of_two, const Shape& of_three) {
  std::vector<std::string> names;
  for (std::size_t axis = 0; axis < of_two.rank(); ++axis) {
    const std::int64_t each = of_three[axis] - of_two[axis];
    const bool multiple = each > 0 && of_two[axis] == 2 * each;
    names.push_back(!multiple ? "" : each == 1 ? "batch" : cat(each, "*batch"));
  }
  return names;
}

class ModelWriter {
 public:
  explicit ModelWriter(const PredictingGraph& graph)
      : outputs_(graph.outputs), nodes_(nodes_of(graph)) {
    for (const Output& input : graph.inputs)
      if (std::ranges::find(nodes_, &input.node()) != nodes_.end()) inputs_.push_back(input);
  }

  // The graph without its initialisers.
  ProtoMessage write() {
    for (const Output& input : inputs_) {
      reserve(name_of(input));
      g_.set(input, name_of(input));
    }
    for (const auto& [name, output] : outputs_) reserve(name);
    for (const Node* node : nodes_) write(*node);
    for (const auto& [name, output] : outputs_)
      g_.add_named("Identity", {g_.in(output)}, {}, {name});
    return with_ends();
  }

  const OnnxGraph& graph() const { return g_; }

 private:
  void reserve(const std::string& name) {
    require(g_.unique(name) == name, "two inputs or outputs of the ONNX file are called '", name,
            "'; give them different names");
  }

  void write(const Node& node) {
    if (is_value(node) || std::ranges::find(inputs_, node.output()) != inputs_.end()) return;
    const WriteOp* const write = writer_of(node.op());
    if (!write) refuse(node, why_not(node));
    g_.begin(node);
    (*write)(g_, node);
  }

  std::string why_not(const Node& node) const {
    std::vector<std::string> names;
    for (const Output& input : inputs_) names.push_back(name_of(input));
    if (&node.op() == &kPlaceholder)
      return cat("it is fed, but is no input of the file; its inputs are ", join(names));
    return cat(
        "there is no form of the op ", node.op().name,
        " in ONNX files; export an output that does not depend on it, or compute it by other "
        "ops");
  }

  ProtoMessage with_ends() const {
    enum { kName = 2, kInput = 11, kOutput = 12 };
    const ShapesForBatch two(nodes_, inputs_, 2), three(nodes_, inputs_, 3);
    ProtoMessage graph = g_.nodes();
    graph.add(kName, std::string_view("belfry"));
    for (const Output& input : inputs_)
      graph.add(kInput, value_info(name_of(input), input.type(), sizes_of_input(input)));
    for (const auto& [name, output] : outputs_)
      graph.add(kOutput,
                value_info(name, output.type(), sizes_of_output(two.of(output), three.of(output))));
    return graph;
  }

  const std::vector<std::pair<std::string, Output>>& outputs_;
  const std::vector<const Node*> nodes_;
  std::vector<Output> inputs_;  // that outputs depend on
  OnnxGraph g_;
};

}  // namespace
}  // namespace onnx

void write_onnx(const PredictingGraph& graph,
                const std::map<std::string, std::span<const std::byte>>& weights,
                const std::string& path, FileSystem& files, const OnnxOptions& options) {
  require(!graph.outputs.empty(), "an ONNX file needs an output at least");
  onnx::ModelWriter writer(graph);
  const ProtoMessage nodes = writer.write();
  onnx::write_onnx_file({.graph = nodes,
                         .initialisers = writer.graph().initialisers(),
                         .weights = weights,
                         .inside = options.most_bytes},
                        path, files);
}

}  // namespace belfry
