#include "belfry/framework/base/require.h"
#include "belfry/framework/core_ops/constant.h"
#include "belfry/trainers/onnx/onnx_graph_impl.h"

namespace belfry::onnx {

std::int64_t axis_in(Layout layout, std::size_t axis) {
  constexpr std::int64_t kFirst[] = {0, 2, 3, 1};
  return layout == Layout::kChannelsFirst ? kFirst[axis] : static_cast<std::int64_t>(axis);
}

std::int64_t onnx_type(DType dtype) {
  switch (dtype) {
    case DType::kF32: return 1;
    case DType::kU8: return 2;
    case DType::kI32: return 6;
    case DType::kI64: return 7;
    case DType::kBool: return 9;
    case DType::kF16: return 10;
    case DType::kF64: return 11;
    case DType::kBF16: return 16;
  }
  return 0;
}

namespace {

// By the numbers of onnx.proto.

ProtoMessage shape_message(const Shape& shape, const std::vector<std::string>& sizes) {
  enum { kDimension = 1, kValue = 1, kParameter = 2 };
  ProtoMessage message;
  for (std::size_t axis = 0; axis < shape.rank(); ++axis) {
    ProtoMessage dimension;
    if (shape[axis] != kUnknownSize)
      dimension.add(kValue, shape[axis]);
    else if (axis < sizes.size() && !sizes[axis].empty())
      dimension.add(kParameter, sizes[axis]);
    message.add(kDimension, dimension);
  }
  return message;
}

// The fields of an AttributeProto, and its types.
enum AttributeField {
  kName = 1,
  kFloat = 2,
  kInt = 3,
  kString = 4,
  kGraph = 6,
  kInts = 8,
  kType = 20
};
enum AttributeType : std::int64_t {
  kOfFloat = 1,
  kOfInt = 2,
  kOfString = 3,
  kOfGraph = 5,
  kOfInts = 7
};

ProtoMessage attribute(std::string_view name, AttributeType type) {
  ProtoMessage message;
  message.add(kName, name);
  message.add(kType, std::int64_t{type});
  return message;
}

Ints order_to(Layout layout) {
  return layout == Layout::kChannelsFirst ? Ints{0, 3, 1, 2} : Ints{0, 2, 3, 1};
}

}  // namespace

Attribute::Attribute(std::string_view name, float value) : message_(attribute(name, kOfFloat)) {
  message_.add(kFloat, value);
}
Attribute::Attribute(std::string_view name, std::int64_t value)
    : message_(attribute(name, kOfInt)) {
  message_.add(kInt, value);
}
Attribute::Attribute(std::string_view name, const std::string& value)
    : message_(attribute(name, kOfString)) {
  message_.add(kString, value);
}
Attribute::Attribute(std::string_view name, const Ints& values)
    : message_(attribute(name, kOfInts)) {
  for (const std::int64_t value : values) message_.add(kInts, value);
}
Attribute::Attribute(std::string_view name, const ProtoMessage& graph)
    : message_(attribute(name, kOfGraph)) {
  message_.add(kGraph, graph);
}

ProtoMessage value_info(const std::string& name, const TensorType& type,
                        const std::vector<std::string>& sizes) {
  enum { kName = 1, kType = 2, kTensorType = 1, kElementType = 1, kShape = 2 };
  ProtoMessage tensor, any, info;
  tensor.add(kElementType, onnx_type(type.dtype));
  tensor.add(kShape, shape_message(type.shape, sizes));
  any.add(kTensorType, tensor);
  info.add(kName, name);
  info.add(kType, any);
  return info;
}

std::string OnnxGraph::unique(std::string_view name) {
  std::string result(name);
  for (int i = 1; !taken_.insert(result).second; ++i) result = cat(name, "_", i);
  return result;
}

Output OnnxGraph::resolved(Output x) const {
  for (auto at = same_.find(x.key()); at != same_.end(); at = same_.find(x.key())) x = at->second;
  return x;
}

std::string OnnxGraph::in(Output given, Layout layout) {
  const Output x = resolved(given);
  if (x.shape().rank() != 4) layout = Layout::kAsInBelfry;
  if (x.node().is_variable() || &x.node().op() == &kConst) return initialiser(x, layout);
  const auto at = tensors_.find(x.key());
  require(at != tensors_.end(), x.node().describe(), ": its output ", x.index(),
          " has no form in ONNX");
  std::string& name = at->second.names[static_cast<int>(layout)];
  if (name.empty())
    name = transpose(at->second.names[static_cast<int>(at->second.first)], order_to(layout));
  return name;
}

std::string OnnxGraph::initialiser(Output x, Layout layout) {
  std::string& name = tensors_[x.key()].names[static_cast<int>(layout)];
  if (!name.empty()) return name;
  name = unique(x.node().logical_name());
  Initialiser added{.name = name, .type = x.type(), .layout = layout, .value = &x.node()};
  if (layout == Layout::kChannelsFirst)
    for (std::size_t axis = 0; axis < 4; ++axis)
      added.type.shape[static_cast<std::size_t>(axis_in(layout, axis))] = x.shape()[axis];
  if (!x.node().is_variable()) added.value = x.node().options<ConstantOptions>().value;
  initialisers_.push_back(std::move(added));
  return name;
}

Layout OnnxGraph::layout_of(Output x) const {
  const auto at = tensors_.find(resolved(x).key());
  return at == tensors_.end() ? Layout::kAsInBelfry : at->second.first;
}

void OnnxGraph::set(Output y, std::string name, Layout layout) {
  Layouts& layouts = tensors_[y.key()];
  layouts.names[static_cast<int>(layout)] = std::move(name);
  layouts.first = layout;
}

Names OnnxGraph::add(std::string_view op, const Names& inputs, const Attributes& attributes,
                     std::size_t outputs) {
  // "fc/MatMul" alone suffices where both have the same name.
  const std::string_view last = std::string_view(prefix_).substr(prefix_.rfind('/') + 1);
  const std::string name = last.starts_with(op) ? prefix_ : cat(prefix_, "/", op);
  Names names;
  while (names.size() < outputs) names.push_back(unique(name));
  add_named(op, inputs, attributes, names);
  return names;
}

std::string OnnxGraph::add(std::string_view op, const Names& inputs, const Attributes& attributes) {
  return add(op, inputs, attributes, 1).front();
}

void OnnxGraph::add_named(std::string_view op, const Names& inputs, const Attributes& attributes,
                          const Names& outputs) {
  enum { kInput = 1, kOutput = 2, kName = 3, kOpType = 4, kAttribute = 5, kNode = 1 };
  ProtoMessage node;
  for (const std::string& input : inputs) node.add(kInput, input);
  for (const std::string& output : outputs) node.add(kOutput, output);
  node.add(kName, outputs.front());
  node.add(kOpType, op);
  for (const Attribute& attribute : attributes) node.add(kAttribute, attribute.message());
  nodes_.add(kNode, node);
}

std::string OnnxGraph::constant(const Tensor& value) {
  const std::string_view bytes(reinterpret_cast<const char*>(value.raw()), value.bytes());
  std::string& name = constants_[cat(TensorType{value.shape(), value.dtype()}.str(), bytes)];
  if (!name.empty()) return name;
  name = unique("constant");
  initialisers_.push_back({.name = name,
                           .type = {value.shape(), value.dtype()},
                           .layout = Layout::kAsInBelfry,
                           .value = value});
  return name;
}

std::string OnnxGraph::ints(const Ints& values) {
  return constant(Tensor(Shape{static_cast<std::int64_t>(values.size())}, values));
}

std::string OnnxGraph::number(double value, DType dtype) {
  return constant(scalar_tensor(value, dtype));
}

std::string OnnxGraph::reshape(const std::string& x, const Ints& shape) {
  return add("Reshape", {x, ints(shape)});
}

std::string OnnxGraph::transpose(const std::string& x, const Ints& order) {
  return add("Transpose", {x}, {{"perm", order}});
}

std::string OnnxGraph::cast(const std::string& x, DType dtype) {
  return add("Cast", {x}, {{"to", onnx_type(dtype)}});
}

ProtoMessage OnnxGraph::subgraph(const std::vector<Ending>& inputs,
                                 const std::function<std::vector<Ending>()>& write) {
  enum { kName = 2, kInput = 11, kOutput = 12 };
  ProtoMessage outer = std::exchange(nodes_, {});
  const std::vector<Ending> outputs = write();
  ProtoMessage graph = std::exchange(nodes_, std::move(outer));
  graph.add(kName, unique(cat(prefix_, "/body")));
  for (const Ending& input : inputs) graph.add(kInput, value_info(input.name, input.type));
  for (const Ending& output : outputs) graph.add(kOutput, value_info(output.name, output.type));
  return graph;
}

}  // namespace belfry::onnx
