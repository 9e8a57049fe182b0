#include "belfry/trainers/onnx/write_onnx.h"

#include <algorithm>
#include <unordered_map>

#include "belfry/framework/base/require.h"
#include "belfry/framework/core_ops/constant.h"
#include "belfry/framework/core_ops/placeholder.h"
#include "belfry/framework/graph/graph.h"
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
    for (const auto family : {attention_writers, image_writers, indexing_writers, matrix_writers,
                              pointwise_writers, recurrent_writers, shape_writers})
      for (OpWriter& writer : family()) all.emplace(writer.op, std::move(writer.write));
    return all;
  }();
  const auto at = writers.find(&op);
  return at == writers.end() ? nullptr : &at->second;
}

bool is_value(const Node& node) { return node.is_variable() || &node.op() == &kConst; }

// The nodes that outputs depend on, in their order, without those that only inputs depend on.
std::vector<const Node*> needed_nodes(const OnnxModel& model) {
  Graph& graph = model.outputs.front().value.graph();
  std::vector<bool> needed(graph.size()), fed(graph.size());
  for (const NamedOutput& input : model.inputs)
    fed[static_cast<std::size_t>(input.value.node().id())] = true;
  for (const NamedOutput& output : model.outputs)
    needed[static_cast<std::size_t>(output.value.node().id())] = true;
  std::vector<const Node*> nodes;
  for (std::size_t id = graph.size(); id-- > 0;) {
    if (!needed[id]) continue;
    nodes.push_back(&graph.node(id));
    if (fed[id] || graph.node(id).is_variable()) continue;
    for (const Output& x : graph.node(id).inputs())
      needed[static_cast<std::size_t>(x.node().id())] = true;
  }
  std::ranges::reverse(nodes);
  return nodes;
}

// The shapes of tensors for a batch of this size.
class ShapesForBatch {
 public:
  ShapesForBatch(const std::vector<const Node*>& nodes, const OnnxModel& model,
                 std::int64_t batch) {
    for (const NamedOutput& input : model.inputs) {
      TensorType type = input.value.type();
      if (type.shape.rank() > 0 && type.shape[0] == kUnknownSize) type.shape[0] = batch;
      types_[input.value.key()] = type;
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

std::vector<std::string> sizes_of_input(const NamedOutput& input) {
  std::vector<std::string> names;
  for (std::size_t axis = 0; axis < input.value.shape().rank(); ++axis)
    names.push_back(axis == 0 ? "batch" : cat(input.name, "_", axis));
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
  explicit ModelWriter(const OnnxModel& model) : model_(model), nodes_(needed_nodes(model)) {
    for (const NamedOutput& input : model.inputs)
      if (std::ranges::find(nodes_, &input.value.node()) != nodes_.end()) inputs_.push_back(input);
  }

  // The graph without its initialisers.
  ProtoMessage write() {
    reserve(inputs_);
    reserve(model_.outputs);
    for (const NamedOutput& input : inputs_) g_.set(input.value, input.name);
    for (const Node* node : nodes_) write(*node);
    for (const NamedOutput& output : model_.outputs)
      g_.add_named("Identity", {g_.in(output.value)}, {}, {output.name});
    return with_ends();
  }

  const OnnxGraph& graph() const { return g_; }

 private:
  void reserve(const std::vector<NamedOutput>& named) {
    for (const NamedOutput& one : named)
      require(g_.unique(one.name) == one.name,
              "two inputs or outputs of the ONNX file are called '", one.name,
              "'; give them different names");
  }

  bool is_input(const Node& node) const {
    return std::ranges::any_of(inputs_,
                               [&](const NamedOutput& x) { return &x.value.node() == &node; });
  }

  void write(const Node& node) {
    if (is_input(node) || is_value(node)) return;
    const WriteOp* const write = writer_of(node.op());
    if (!write) refuse(node, why_not(node));
    g_.begin(node);
    (*write)(g_, node);
  }

  std::string why_not(const Node& node) const {
    if (&node.op() == &kPlaceholder)
      return cat("it is fed, but is no input of the file; its inputs are ",
                 join_names(model_.inputs));
    return cat(
        "there is no form of the op ", node.op().name,
        " in ONNX files; export an output that does not depend on it, or compute it by other "
        "ops");
  }

  static std::string join_names(const std::vector<NamedOutput>& named) {
    std::vector<std::string> names;
    for (const NamedOutput& one : named) names.push_back(one.name);
    return join(names);
  }

  ProtoMessage with_ends() const {
    enum { kName = 2, kInput = 11, kOutput = 12 };
    const ShapesForBatch two(nodes_, model_, 2), three(nodes_, model_, 3);
    ProtoMessage graph = g_.nodes();
    graph.add(kName, std::string_view("belfry"));
    for (const NamedOutput& input : inputs_)
      graph.add(kInput, value_info(input.name, input.value.type(), sizes_of_input(input)));
    for (const NamedOutput& output : model_.outputs)
      graph.add(kOutput, value_info(output.name, output.value.type(),
                                    sizes_of_output(two.of(output.value), three.of(output.value))));
    return graph;
  }

  const OnnxModel& model_;
  const std::vector<const Node*> nodes_;
  std::vector<NamedOutput> inputs_;  // that are needed
  OnnxGraph g_;
};

}  // namespace
}  // namespace onnx

void write_onnx(const OnnxModel& model, const std::string& path, FileSystem& files,
                const OnnxOptions& options) {
  require(!model.outputs.empty(), "an ONNX file needs an output at least");
  onnx::ModelWriter writer(model);
  const ProtoMessage graph = writer.write();
  onnx::write_onnx_file({.graph = graph,
                         .initialisers = writer.graph().initialisers(),
                         .weights = model.weights,
                         .inside = options.most_bytes},
                        path, files);
}

}  // namespace belfry
