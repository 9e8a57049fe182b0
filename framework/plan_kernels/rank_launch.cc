#include "belfry/framework/plan_kernels/rank_launch.h"

#include <algorithm>
#include <set>

#include "belfry/framework/base/text.h"
#include "belfry/framework/graph/combined_gradient.h"

namespace belfry {
namespace {

// Whether `output` is computed from results of the collective, between them and the gradients.
bool comes_from(const Node& collective, const CombinedGradient& combined, Output output) {
  std::set<int> seen;
  std::vector<Output> open{output};
  while (!open.empty()) {
    const Output next = open.back();
    open.pop_back();
    if (&next.node() == &collective) return true;
    if (std::ranges::find(combined.gradients, next) != combined.gradients.end()) continue;
    for (const Output& input : next.node().inputs())
      if (seen.insert(input.node().id()).second) open.push_back(input);
  }
  return false;
}

std::vector<std::string> variables_of(const Node& collective) {
  std::vector<std::string> names;
  for (const CombinedGradient& combined : collective.graph().combined_gradients())
    if (comes_from(collective, combined, combined.results[0]))
      names.push_back(cat("'", combined.variables[0].node().logical_name(), "'"));
  return names;
}

}  // namespace

std::string describe_collective(const Node& collective) {
  constexpr std::size_t kNamed = 8;
  std::vector<std::string> names = variables_of(collective);
  if (names.empty()) return collective.describe();
  const std::size_t more = names.size() - std::min(names.size(), kNamed);
  names.resize(names.size() - more);
  return cat(collective.describe(), ", which combines the gradients of ", join(names),
             more > 0 ? cat(" and ", more, " more") : "");
}

RankLaunch::RankLaunch(const PlanNode& node, GpuRun sum)
    : exchange_(node.op->exchange),
      rank_(std::get<std::shared_ptr<const Rank>>(node.role)),
      sum_(std::move(sum)) {
  what_ = {.node = node.node, .dtype = node.types[0].dtype, .elements = {}};
  if (exchanges()) return;
  const int all = node.op->collective(*node.node);
  const std::size_t here = rank_->members.size();
  for (std::size_t i = 0; i < node.types.size(); i += here)
    what_.elements.push_back(node.types[i].shape.elements());
  results_.resize(what_.elements.size());
  // If all participants are on one GPU of one process, `sum` divides instead.
  if (here < at(all) || !rank_->alone(*node.node)) what_.divisor = node.op->ranks(*node.node);
}

RankTensors RankLaunch::in_outputs(const KernelPointers& p, GpuStream& stream) {
  const std::size_t here = rank_->members.size();
  for (std::size_t b = 0; b < results_.size(); ++b) results_[b] = p.all_outputs()[b * here];
  return {rank_->number, &stream, {results_.data(), results_.size()}, results_};
}

void RankLaunch::reduce(const KernelPointers& p, GpuStream& stream) {
  if (sum_) sum_(p, stream);
  RankTensors tensors = in_outputs(p, stream);
  if (!sum_) tensors.from = p.all_inputs();
  communicators_->live->all_reduce(what_, {&tensors, 1}, *failed_);
}

void RankLaunch::exchange(const KernelPointers& p, GpuStream& stream) {
  const Exchange what = exchange_(*what_.node, p);
  if (!what.gathered)
    for (const Exchange::Copied& kept : what.kept)
      if (!kept.from.empty()) stream.copy(kept.to.data(), kept.from.data(), kept.from.size());
  communicators_->live->exchange(*what_.node, what, rank_->number, stream, *failed_);
}

void RankLaunch::enqueue(const KernelPointers& p, GpuStream& stream) {
  try {
    exchanges() ? exchange(p, stream) : reduce(p, stream);
  } catch (const CommError& error) {
    throw CommError(cat(error.what(), "; it failed ", describe_collective(*what_.node)));
  }
}

}  // namespace belfry
