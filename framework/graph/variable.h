// Trainable and other state of a model. A Variable is a handle; its values live in a Session.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "belfry/framework/base/tensor.h"
#include "belfry/framework/graph/node.h"

namespace belfry {

// Reads bind to versions, so steps have no races. A read sees the value of the last write that has
// a path to it, else the value from before the step.
class Variable {
 public:
  Variable() = default;
  explicit Variable(Node& node) : node_(&node) {}

  explicit operator bool() const { return node_ != nullptr; }
  // Throws InvalidArgument for an empty Variable.
  Node& node() const { return ref().node(); }
  // The value before any write of the step.
  operator Output() const;  // NOLINT
  // A read that obeys the scopes in force: control dependencies, devices and colocation. If none of
  // them requests a device, the read is placed with the variable. (TensorFlow then places it
  // independently of the variable, so values go to the first device and back.)
  Output read(At at = {}) const;
  // The storage itself: the input of an op that writes it (Op::writes).
  Output ref() const { return node_ ? Output(*node_, 0) : Output(); }

  std::string_view name() const { return node().name(); }
  // The name without the prefix of its tower: the key in checkpoints and hashes.
  std::string_view logical_name() const { return node().logical_name(); }
  const Shape& shape() const { return node().output_type(0).shape; }
  // The shape of the tensor it is a part of, or its own.
  const Shape& whole_shape() const;
  DType dtype() const { return node().output_type(0).dtype; }
  const DeviceSpec& device() const { return node().device(); }
  bool trainable() const { return node().variable().trainable; }
  // "'fc/W' f32[4,3] (built at model.cc:41)", by its logical name.
  TensorText describe() const;

  bool operator==(const Variable&) const = default;

 private:
  Node* node_ = nullptr;
};

// Builds the first value of a variable of a given shape.
using Initializer = std::function<Output(Graph&, const Shape&, DType)>;

// Glorot uniform; zeros for integers and bool. Defined with the ops that it is made of, in
// core_ops/initializers.cc.
Initializer default_initializer(DType dtype);

struct VariableOptions {
  std::optional<DType> dtype = {};  // default: the variable scope's, else f32
  // Default: the variable scope's, else Glorot uniform (zeros for integers and bool). Built with
  // the variable, below the name scope <variable>/Initializer, outside all device scopes and
  // control dependencies.
  Initializer initializer = {};
  bool trainable = true;
  // Where the default read is placed. The specs of device scopes around variable() fill it in, but
  // setters and functions do not move it. Default: the variable scope's, else with the variable.
  DeviceSpec caching_device = {};
  // Its collections, in addition to kTrainableVariables if it is trained; empty:
  // {kGlobalVariables}. A variable outside kGlobalVariables is local: checkpoints leave it out.
  std::vector<std::string> collections = {};
  // It starts as a copy of this variable, as replicas do; the initializer is never called.
  Node* copy_of = nullptr;
  std::optional<VariablePart> part = {};  // the variable is a row of that part's elements
};

// Gets the variable `name` (below the current variable scope; name scopes do not count), or creates
// it, depending on the scope's VariableReuse. Creation ignores control dependencies. If another
// node has its name, the variable's node gets a suffix; it is still found by the requested name.
// Throws InvalidArgument if it exists and must not, or with another shape or dtype; NotFoundError
// if it must exist and does not.
Variable variable(Graph& graph, std::string_view name, Shape shape, VariableOptions options = {},
                  At at = {});

// The variables that are not copies of others (VariableOptions::copy_of), in their order.
std::vector<Variable> originals_of(std::vector<Variable> variables);

// The variable that this is a copy of, directly or through other copies; else itself.
const Node& original_of(const Node& variable);

// Always creates a variable, as tf.Variable does: named `name` below the current name scope, made
// unique like a node's name, and not found by variable(). Ignores variable scopes and their
// getters.
Variable new_variable(Graph& graph, std::string_view name, Shape shape,
                      VariableOptions options = {}, At at = {});

// The properties of a new variable that a VariableGetter may change.
struct VariableRequest {
  std::string name;  // with the variable scope; in every tower, the name in tower 0
  Shape shape;
  VariableOptions options;
};

// Wraps the creation of variables inside a VariableScope. Getters nest: the innermost is asked
// first, and the next sees its result. Defaults of the scopes are filled in before. Each tower that
// has its own variables requests them, by the same names, so a getter that freezes variables by
// name (options.trainable = false) does so in all. Only creation is wrapped. The variable is found
// by the requested name, not by a getter's. (TensorFlow also asks getters when it finds a variable,
// so getters that count loads count it twice.)
struct VariableGetter {
  virtual ~VariableGetter() = default;
  virtual void request(VariableRequest& request) = 0;
};

// Whether variable() creates or finds.
enum class VariableReuse { kInherit, kMustExist, kCreateOrGet };

// The settings of a VariableScope (scopes.h). Fields left alone are inherited from the outer scope.
// TensorFlow's partitioners, regularizers and use_resource do not exist here.
struct VariableScopeOptions {
  std::string default_name = {};  // for a scope without a name
  VariableReuse reuse = VariableReuse::kInherit;
  Initializer initializer = {};
  std::optional<DType> dtype = {};
  DeviceSpec caching_device = {};
  VariableGetter* getter = nullptr;  // borrowed; added to the outer ones
  bool auxiliary_name_scope = true;  // false: opens no name scope
};

}  // namespace belfry
