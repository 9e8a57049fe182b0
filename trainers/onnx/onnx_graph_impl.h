// The graph of an ONNX file while writers of ops (op_writers_impl.h) add to it.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "belfry/framework/base/tensor.h"
#include "belfry/framework/graph/node.h"
#include "belfry/trainers/runs/proto_message.h"

namespace belfry::onnx {

using Ints = std::vector<std::int64_t>;
// Names of ONNX tensors; "" for an input that is left out.
using Names = std::vector<std::string>;

// An AttributeProto.
class Attribute {
 public:
  Attribute(std::string_view name, float value);
  Attribute(std::string_view name, std::int64_t value);
  Attribute(std::string_view name, const std::string& value);
  Attribute(std::string_view name, const Ints& values);
  Attribute(std::string_view name, const ProtoMessage& graph);

  const ProtoMessage& message() const { return message_; }

 private:
  ProtoMessage message_;
};
using Attributes = std::vector<Attribute>;

// How images lie in the file. Belfry has [n,h,w,c], but convolutions of ONNX take [n,c,h,w].
// Tensors of other ranks have one layout.
enum class Layout : std::uint8_t { kAsInBelfry, kChannelsFirst };

// Where dimension `axis` of images is in a layout.
std::int64_t axis_in(Layout layout, std::size_t axis);

// A tensor with a value, of a constant or of a variable.
struct Initialiser {
  std::string name;
  TensorType type;  // as in the file
  Layout layout;    // of the file; the value is as in Belfry
  std::variant<Tensor, const Node*> value;
};

class OnnxGraph {
 public:
  // Names of the next nodes begin with that of this one, which they compute.
  void begin(const Node& node) { prefix_ = node.logical_name(); }
  // Takes this name, or with a number at its end if it is taken.
  std::string unique(std::string_view name);

  // Tensors of Belfry. A layout that is asked for, but does not exist, is made by a Transpose,
  // once; so neighbours that both have channels first exchange images without one. Variables and
  // constants become initialisers of the layout.
  std::string in(Output x, Layout layout = Layout::kAsInBelfry);
  // The layout that costs nothing.
  Layout layout_of(Output x) const;
  void set(Output y, std::string name, Layout layout = Layout::kAsInBelfry);
  // Says that y is x.
  void set_same(Output y, Output x) { same_[y.key()] = x; }

  // Adds a node, and returns the names of its outputs.
  std::string add(std::string_view op, const Names& inputs, const Attributes& attributes = {});
  Names add(std::string_view op, const Names& inputs, const Attributes& attributes,
            std::size_t outputs);
  void add_named(std::string_view op, const Names& inputs, const Attributes& attributes,
                 const Names& outputs);

  // Constants. Equal ones are one initialiser.
  std::string constant(const Tensor& value);
  std::string ints(const Ints& values);           // i64 [n]
  std::string number(double value, DType dtype);  // a scalar

  // Frequent nodes. -1 in `shape` follows from the others, and 0 keeps a dimension.
  std::string reshape(const std::string& x, const Ints& shape);
  std::string transpose(const std::string& x, const Ints& order);
  std::string cast(const std::string& x, DType dtype);

  // The nodes that `write` adds, as a graph for an attribute; it returns the outputs. They may use
  // tensors from outside.
  struct Ending {
    std::string name;
    TensorType type;
  };
  ProtoMessage subgraph(const std::vector<Ending>& inputs,
                        const std::function<std::vector<Ending>()>& write);

  const ProtoMessage& nodes() const { return nodes_; }
  const std::vector<Initialiser>& initialisers() const { return initialisers_; }

 private:
  struct Layouts {
    std::string names[2];  // by Layout; "" if it has not been made
    Layout first = Layout::kAsInBelfry;
  };

  Output resolved(Output x) const;
  std::string initialiser(Output x, Layout layout);

  std::string prefix_;
  ProtoMessage nodes_;
  std::set<std::string, std::less<>> taken_;
  std::map<std::pair<int, int>, Layouts> tensors_;
  std::map<std::pair<int, int>, Output> same_;
  std::vector<Initialiser> initialisers_;
  std::map<std::string, std::string> constants_;  // names, by types and bytes
};

// The number of the type in ONNX's TensorProto.DataType.
std::int64_t onnx_type(DType dtype);
// A ValueInfoProto. `sizes` are the names of unknown dimensions, or "".
ProtoMessage value_info(const std::string& name, const TensorType& type,
                        const std::vector<std::string>& sizes = {});

}  // namespace belfry::onnx
