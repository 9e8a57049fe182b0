#include "belfry/framework/checkpoint/graph_file.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <set>

#include "belfry/framework/base/crc32.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/checkpoint/checkpoint_manifest.h"
#include "belfry/framework/core_ops/constant.h"
#include "belfry/framework/core_ops/initializers.h"
#include "belfry/framework/core_ops/placeholder.h"
#include "belfry/framework/graph/graph.h"
#include "belfry/framework/graph/scopes.h"
#include "belfry/framework/graph/state.h"
#include "belfry/framework/graph/stored_options.h"

namespace belfry {
namespace {

constexpr char kGraphFormat[] = "belfry graph", kGraphVersion[] = "1";

std::span<const std::byte> raw_bytes(std::string_view text) {
  return std::as_bytes(std::span(text));
}

std::span<const std::byte> raw_bytes(const Tensor& tensor) {
  return {tensor.raw(), tensor.bytes()};
}

class GraphWriter {
 public:
  explicit GraphWriter(const PredictingGraph& graph) : nodes_(nodes_of(graph)) {
    JsonValue nodes = JsonValue::array(), inputs = JsonValue::array(),
              outputs = JsonValue::object();
    for (std::size_t i = 0; i < nodes_.size(); ++i) number_[nodes_[i]] = i;
    for (const Node* const node : nodes_) nodes.push(json_of(*node));
    for (const Output& input : graph.inputs)
      if (const auto found = number_.find(&input.node()); found != number_.end())
        inputs.push(found->second);
    for (const auto& [name, output] : graph.outputs) outputs.set(name, place_of(output));
    const Node& first = graph.outputs.at(0).second.node();
    json_.set("seed", first.graph().seed())
        .set("prefix", first.origin().prefix)
        .set("replica", first.origin().replica)
        .set("nodes", std::move(nodes))
        .set("inputs", std::move(inputs))
        .set("outputs", std::move(outputs));
  }

  std::string file(const std::map<std::string, std::span<const std::byte>>& weights) {
    if (!weights.empty()) add_weights(weights);
    const std::string text = json_.str();
    require(text.size() < kMostJsonBytes / 2, "a graph of ", nodes_.size(),
            " nodes is too large for a file");
    std::map<std::string, std::string> metadata{{"format", kGraphFormat},
                                                {"version", kGraphVersion},
                                                {"graph", text},
                                                {"crc32", "00000000"}};
    lay_out_safetensors(tensors_, metadata);  // for their order
    std::uint32_t crc = crc32_of(raw_bytes(text));
    for (const StoredTensor& tensor : tensors_) crc = crc32_of(values_.at(tensor.name), crc);
    metadata["crc32"] = hex(crc, 8);
    std::string file = lay_out_safetensors(tensors_, metadata);
    for (const StoredTensor& tensor : tensors_) {
      const std::span<const std::byte> values = values_.at(tensor.name);
      file.append(reinterpret_cast<const char*>(values.data()), values.size());
    }
    return file;
  }

 private:
  JsonValue place_of(const Output& output) const {
    return JsonValue::array({JsonValue(number_.at(&output.node())), JsonValue(output.index())});
  }

  JsonValue json_of(const Node& node) {
    const Op& op = node.op();
    require(
        op.writes == 0, node.describe(),
        ": writes a variable, which no stored graph does; leave it out where the tower does not "
        "train (Tower::is_training)");
    require(node.control_inputs().empty(), node.describe(), ": waits for '",
            node.control_inputs().empty() ? "" : node.control_inputs()[0]->name(),
            "', as no node of a stored graph does");
    JsonValue json = JsonValue::object();
    json.set("op", op.name).set("name", node.name());
    if (&op == &kPlaceholder || &op == &kVariable) {
      const TensorType& type = node.output_type(0);
      json.set("dtype", safetensors_name(type.dtype))
          .set("shape", detail::stored_shape(type.shape));
    }
    if (&op == &kConst) {
      const Tensor& value = node.options<ConstantOptions>().value;
      add_tensor(node.name(), {value.shape(), value.dtype()}, raw_bytes(value));
    } else if (const OptionsForm* const form = options_form(op)) {
      json.set("options", form->write(node.raw_options()));
    } else if (&op != &kPlaceholder && &op != &kVariable && !node.raw_options().fields().empty()) {
      json.set("options", node.raw_options().str());  // which no reader takes
    }
    JsonValue inputs = JsonValue::array();
    for (const Output& input : node.inputs()) inputs.push(place_of(input));
    if (!node.inputs().empty()) json.set("inputs", std::move(inputs));
    return json;
  }

  void add_weights(const std::map<std::string, std::span<const std::byte>>& weights) {
    for (const Node* const node : nodes_) {
      if (!node->is_variable()) continue;
      const auto found = weights.find(std::string(node->logical_name()));
      require(found != weights.end(), node->describe(), ": there is no value for it");
      const TensorType& type = node->output_type(0);
      require(found->second.size() ==
                  static_cast<std::size_t>(type.shape.elements()) * size_of(type.dtype),
              node->describe(), ": is ", type, ", but its value has ", found->second.size(),
              " bytes");
      add_tensor(node->name(), type, found->second);
    }
  }

  void add_tensor(std::string_view name, const TensorType& type, std::span<const std::byte> bytes) {
    tensors_.push_back({.name = std::string(name), .dtype = type.dtype, .shape = type.shape});
    values_.emplace(name, bytes);
  }

  std::vector<const Node*> nodes_;
  std::map<const Node*, std::size_t> number_;
  JsonValue json_ = JsonValue::object();
  std::vector<StoredTensor> tensors_;
  std::map<std::string, std::span<const std::byte>> values_;
};

JsonValue checked_json(const Safetensors& file) {
  const auto text_of = [&](const char* key) {
    const auto found = file.metadata().find(key);
    return found == file.metadata().end() ? std::string() : found->second;
  };
  require<IoError>(text_of("format") == kGraphFormat, file.file(),
                   ": holds no graph; `belfry checkpoint export` makes one of a run");
  require<IoError>(text_of("version") == kGraphVersion, file.file(), ": is of version ",
                   shown(text_of("version")), ", and this program reads version ", kGraphVersion);
  const std::string text = text_of("graph");
  std::vector<const StoredTensor*> tensors;
  for (const auto& [name, tensor] : file.tensors()) tensors.push_back(&tensor);
  std::ranges::sort(tensors, {}, &StoredTensor::begin);
  std::uint32_t crc = crc32_of(raw_bytes(text));
  for (const StoredTensor* const tensor : tensors) crc = crc32_of(file.values(*tensor), crc);
  require<IoError>(text_of("crc32") == hex(crc, 8), file.file(),
                   ": is damaged: its checksum differs from that of its graph and values");
  try {
    return JsonValue::parse(text);
  } catch (const InvalidArgument& error) {
    throw IoError(cat(file.file(), ": the graph in it: ", error.what()));
  }
}

class GraphReader {
 public:
  GraphReader(const Safetensors& file, const DeviceSpec& device, Graph& graph, GraphInFile& result)
      : file_(file), device_(device), graph_(graph), result_(result) {
    for (const Op* const op : all_ops()) ops_[op->name] = op;
  }

  void read(const JsonValue& json) {
    const ReplicaScope replica(graph_, json.at("prefix").text(),
                               static_cast<int>(json.at("replica").integer()));
    for (const JsonValue& node : json.at("nodes").items()) read_node(node);
    for (const JsonValue& input : json.at("inputs").items())
      result_.ends.inputs.push_back(made(input.unsigned_integer()));
    for (const auto& [name, place] : json.at("outputs").members())
      result_.ends.outputs.emplace_back(name, output_at(place));
  }

 private:
  void read_node(const JsonValue& json) {
    const std::string& name = json.at("name").text();
    std::vector<Output> inputs;
    if (const JsonValue* const places = json.find("inputs"))
      for (const JsonValue& place : places->items()) inputs.push_back(output_at(place));
    nodes_.push_back(&make(json, name, op_called(json.at("op").text(), name), inputs));
  }

  const Op& op_called(const std::string& op, const std::string& node) const {
    const auto found = ops_.find(op);
    require(found != ops_.end(), "node '", shown(node), "': this program has no op ", shown(op),
            "; a plan takes the ops of Belfry alone, not a program's own");
    return *found->second;
  }

  Node& make(const JsonValue& json, const std::string& name, const Op& op,
             std::span<const Output> inputs) {
    const std::string verbatim = name + "/";
    const At at(verbatim);
    require(op.writes == 0, "node '", shown(name), "' writes a variable");
    if (&op == &kRead) {
      require(inputs.size() == 1 && inputs[0].node().is_variable(), "node '", shown(name),
              "' reads no variable");
      return Output(Variable(inputs[0].node())).node();
    }
    for (const Output& input : inputs)
      require(!input.node().is_variable(), "node '", shown(name),
              "' takes a variable without reading it");
    if (&op == &kPlaceholder)
      return placeholder(graph_, at.name, dtype_in(json), detail::shape_in(json.at("shape")), at)
          .node();
    if (&op == &kVariable) return read_variable(json, name);
    if (&op == &kConst) return constant(graph_, constant_called(name), at).node();
    std::optional<HostScope> host;
    if (op.cpu_only && device_.is_gpu()) host.emplace(graph_, device_);
    return graph_.add(op, inputs, at, options_of(json, name, op));
  }

  NodeOptions options_of(const JsonValue& json, const std::string& name, const Op& op) const {
    const JsonValue* const list = json.find("options");
    const OptionsForm* const form = options_form(op);
    if (!list && !form) return {};
    require(list && form, "node '", shown(name), "': ",
            list ? cat("no file holds the options of the op ", op.name)
                 : cat("the op ", op.name, " needs options"));
    try {
      return form->read(*list);
    } catch (const InvalidArgument& error) {
      throw InvalidArgument(
          cat("node '", shown(name), "': options of ", op.name, ": ", error.what()));
    }
  }

  DType dtype_in(const JsonValue& json) const {
    return dtype_of_safetensors(json.at("dtype").text());
  }

  Node& read_variable(const JsonValue& json, const std::string& name) {
    const TensorType type{shape_from_json(json.at("shape")), dtype_in(json)};
    const Variable made = graph_.create_variable(
        {name, type.shape, {.dtype = type.dtype, .initializer = init::zeros(), .trainable = false}},
        At());
    if (const auto found = file_.tensors().find(name); found != file_.tensors().end()) {
      const StoredTensor& tensor = found->second;
      require(TensorType{tensor.shape, tensor.dtype} == type, "variable '", shown(name), "' is ",
              type, ", but its value ", TensorType{tensor.shape, tensor.dtype});
      result_.weights.push_back({made, file_.values(tensor)});
    }
    return made.node();
  }

  Tensor constant_called(const std::string& name) const {
    const auto found = file_.tensors().find(name);
    require(found != file_.tensors().end(), "constant '", shown(name), "' has no value");
    Tensor value(found->second.shape, found->second.dtype);
    const std::span<const std::byte> bytes = file_.values(found->second);
    if (!bytes.empty()) std::memcpy(value.mutable_raw(), bytes.data(), bytes.size());
    return value;
  }

  Output made(std::uint64_t number) const {
    require(number < nodes_.size(), "there is no node ", number, " before node ", nodes_.size());
    return nodes_[number]->outputs() == 0 ? Output() : nodes_[number]->output();
  }

  Output output_at(const JsonValue& place) const {
    require(place.items().size() == 2, "an output is named by ", place.items().size(),
            " numbers, not two");
    const Node& node = made(place.items().front().unsigned_integer()).node();
    const std::uint64_t index = place.items().back().unsigned_integer();
    require(index < node.outputs(), "'", node.name(), "' has no output ", index);
    return node.output(index);
  }

  const Safetensors& file_;
  const DeviceSpec& device_;
  Graph& graph_;
  std::map<std::string_view, const Op*> ops_;
  std::vector<Node*> nodes_;
  GraphInFile& result_;
};

}  // namespace

std::vector<const Node*> nodes_of(const PredictingGraph& graph) {
  std::vector<const Node*> open, nodes;
  for (const auto& [name, output] : graph.outputs) open.push_back(&output.node());
  std::set<const Node*> seen;
  while (!open.empty()) {
    const Node* const node = open.back();
    open.pop_back();
    if (!seen.insert(node).second) continue;
    nodes.push_back(node);
    for (const Output& input : node->inputs()) open.push_back(&input.node());
  }
  std::ranges::sort(nodes, {}, &Node::id);
  return nodes;
}

std::string write_graph(const PredictingGraph& graph,
                        const std::map<std::string, std::span<const std::byte>>& weights) {
  require(!graph.outputs.empty(), "a graph without outputs predicts nothing");
  return GraphWriter(graph).file(weights);
}

GraphInFile read_graph(const Safetensors& file, const DeviceSpec& device) {
  const JsonValue json = checked_json(file);
  GraphInFile result;
  try {
    result.graph = std::make_unique<Graph>(json.at("seed").unsigned_integer());
    const DeviceScope place(*result.graph, device);
    GraphReader(file, device, *result.graph, result).read(json);
    return result;
  } catch (const InvalidArgument& error) {
    throw InvalidArgument(cat(file.file(), ": the graph in it: ", error.what()));
  }
}

}  // namespace belfry
