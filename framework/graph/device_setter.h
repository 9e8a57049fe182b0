// Setters and functions: other ways than specs to decide the devices of new nodes.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <variant>

#include "belfry/framework/graph/device_spec.h"

namespace belfry {

class Node;

// Decides devices and may keep state, e.g. loads. Borrowed by scopes, never copied.
struct DeviceSetter {
  virtual ~DeviceSetter() = default;
  // The device of a new node. It replaces node.device(), which inner scopes may have set; an empty
  // one clears it. The node has its name, type, inputs, outputs and, for variables, variable().
  // Must not add nodes.
  virtual DeviceSpec place(const Node& node) = 0;
  virtual std::string str() const = 0;
  // The loads by which place() decides, if it uses any: elements per device so far. A variable
  // keeps the loads from just before its placement, for explanations.
  virtual std::map<std::string, std::int64_t> load() const { return {}; }
};

// A setter without state. TensorFlow keeps any text that such a function returns, even "nonsense".
// Here it returns a DeviceSpec, so nonsense throws where it is parsed.
using DeviceFunction = std::function<DeviceSpec(const Node&)>;

// Ends the effect of outer device scopes.
struct NoDevice {};

using DeviceEntry = std::variant<NoDevice, DeviceSpec, DeviceSetter*, DeviceFunction>;

}  // namespace belfry
