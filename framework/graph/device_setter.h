// What decides the devices of new nodes, besides specs: setters with state, and functions.
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
  // The device of a new node, replacing node.device(), which inner scopes may have set; an empty
  // one clears it. The node has its name, type, inputs, outputs and, for variables, variable().
  // Must not add nodes.
  virtual DeviceSpec place(const Node& node) = 0;
  virtual std::string str() const = 0;
  // What place() goes by, if that is loads: elements per device so far. Variables keep what it was
  // just before they were placed, for explanations.
  virtual std::map<std::string, std::int64_t> load() const { return {}; }
};

// The same without state. TensorFlow keeps the text that such a function returns as it is, even
// "nonsense"; here it is a DeviceSpec, so nonsense throws where it is parsed.
using DeviceFunction = std::function<DeviceSpec(const Node&)>;

// Ends the influence of the device scopes outside.
struct NoDevice {};

using DeviceEntry = std::variant<NoDevice, DeviceSpec, DeviceSetter*, DeviceFunction>;

}  // namespace belfry
