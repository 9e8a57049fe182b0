#include "belfry/framework/graph/node.h"

#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"

namespace belfry {

void Output::refuse_empty() {
  throw InvalidArgument("an empty Output was used; build it before use");
}

Graph& Output::graph() const { return node().graph(); }

const TensorType& Output::type() const {
  return node().output_type(static_cast<std::size_t>(index_));
}

const DeviceSpec& Output::device() const {
  const bool with_input = node().op().collective;
  return with_input ? node().input(static_cast<std::size_t>(index_)).device() : node().device();
}

std::string Output::name() const {
  return index_ == 0 ? std::string(node().name()) : cat(node().name(), ":", index_);
}

std::pair<int, int> Output::key() const { return {node().id(), index()}; }

std::vector<TensorType> infer_types(const Node& node, std::span<const TensorType> inputs) {
  const ShapeContext context(node.op(), node.name(), node.origin().site, inputs,
                             node.raw_options());
  std::vector<TensorType> result;
  OutputTypes types = node.op().shape(context);
  result.reserve(types.size());
  for (OutputType& type : types) {
    require<InternalError>(type.dtype || !inputs.empty(), node.describe(),
                           ": output without a dtype");
    result.push_back({std::move(type.shape), type.dtype ? *type.dtype : inputs[0].dtype});
  }
  return result;
}

std::string DeviceReason::what() const {
  return beside ? cat("colocated with ", beside->name()) : *scope;
}

std::string NodeText::str() const { return cat(op.name, " '", name, "' (built at ", site, ")"); }

std::string TensorText::str() const { return cat("'", name, "' ", type, " (built at ", site, ")"); }

}  // namespace belfry
