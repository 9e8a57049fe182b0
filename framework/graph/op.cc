#include "belfry/framework/graph/op.h"

#include <algorithm>

#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/graph/node.h"

namespace belfry {
namespace {

std::vector<const Op*>& registry() {
  static std::vector<const Op*> instance;
  return instance;
}

// The parts that an op still lacks, "" if none.
std::string missing_parts(const Op& op) {
  std::vector<std::string> missing;
  if (!op.shape) missing.emplace_back("a shape function");
  if (!op.gradient && !op.no_gradient) missing.emplace_back("a gradient (or .no_gradient)");
  if (!op.on_host()) missing.emplace_back("a host kernel");
  return join(missing, " and ");
}

std::vector<const Op*> checked_registry() {
  std::vector<const Op*> ops = registry();
  std::ranges::sort(ops, {}, [](const Op* op) { return std::string_view(op->name); });
  std::vector<std::string> faults;
  for (std::size_t i = 0; i < ops.size(); ++i) {
    const std::string missing = missing_parts(*ops[i]);
    if (!missing.empty()) faults.push_back(cat(ops[i]->name, " lacks ", missing));
    if (i > 0 && std::string_view(ops[i - 1]->name) == ops[i]->name)
      faults.push_back(cat(ops[i]->name, " is defined twice"));
  }
  require<InternalError>(faults.empty(), "incomplete ops: ", join(faults, "; "));
  return ops;
}

}  // namespace

detail::Registered::Registered(const Op* op) { registry().push_back(op); }

const std::vector<const Op*>& all_ops() {
  static const std::vector<const Op*> instance = checked_registry();
  return instance;
}

void ShapeContext::fail(const std::string& why) const {
  throw InvalidArgument(cat(NodeText(op_, node_name_, site_), ": ", why));
}

void ShapeContext::require_rank(std::size_t i, std::size_t rank) const {
  require(input(i).rank() == rank, "input ", i, " has shape ", input(i), ", but rank ", rank,
          " is needed");
}

void ShapeContext::require_same_dtype() const {
  for (std::size_t i = 1; i < inputs(); ++i)
    require(dtype(i) == dtype(0), "inputs 0 and ", i, " have types ", name_of(dtype(0)), " and ",
            name_of(dtype(i)), "; cast one of them");
}

void ShapeContext::require_floating(std::size_t i) const {
  require(is_floating(dtype(i)), "input ", i, " is ", name_of(dtype(i)),
          ", but a floating-point type is needed; cast it");
}

OutputTypes same_as_input(const ShapeContext& c) { return {c.type(0)}; }

OutputTypes no_outputs(const ShapeContext&) { return {}; }

std::vector<Output> same_gradient(const Node&, std::span<const Output> grads) { return {grads[0]}; }

WorkRange whole_range(const Op& op, int participants, std::span<const TensorType> inputs,
                      std::span<const TensorType> outputs) {
  const TensorType* shaped = outputs.empty() ? nullptr : &outputs[0];
  if (!shaped) shaped = inputs.empty() ? nullptr : &inputs[0];
  if (op.split == WorkSplit::kSerial || !shaped) return {0, 1};
  if (op.split == WorkSplit::kElements) {
    WorkRange all{0, shaped->shape.elements()};
    const auto next = static_cast<std::size_t>(participants);
    for (std::size_t i = next; i > 0 && i < outputs.size(); i += next)
      all.end += outputs[i].shape.elements();
    return all;
  }
  return {0, shaped->shape.rank() == 0 ? 1 : shaped->shape[0]};
}

const NodeOptions& KernelPlan::node_options() const { return node_.raw_options(); }

const Op& KernelPlan::op() const { return op_ ? *op_ : node_.op(); }

}  // namespace belfry
