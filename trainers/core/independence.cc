// Trainer::k_dependence() is here, too, as it looks at all that a trainer consists of.
#include "belfry/trainers/core/independence.h"

#include <algorithm>
#include <bit>
#include <set>

#include "belfry/allreduce/strategy.h"
#include "belfry/framework/core_ops/add_n.h"
#include "belfry/framework/core_ops/identity.h"
#include "belfry/framework/core_ops/placeholder.h"
#include "belfry/ops/arithmetic.h"
#include "belfry/ops/cast.h"
#include "belfry/ops/neg.h"
#include "belfry/ops/reduce.h"
#include "belfry/ops/reshape.h"
#include "belfry/trainers/core/trainer.h"
#include "belfry/trainers/core/trainer_kinds.h"

namespace belfry {
namespace {

bool is_power_of_two(std::int64_t number) {
  return std::has_single_bit(static_cast<std::uint64_t>(number));
}

std::string of_numbers(const TrainerOptions& options, int wanted) {
  const auto devices = std::ssize(options.devices);
  if (!is_power_of_two(devices)) return cat(devices, " devices: not a power of two");
  if (std::ranges::any_of(options.devices, &DeviceSpec::is_gpu))
    return "a GPU has one shard, so the number of shards follows the number of devices";
  if (!is_power_of_two(options.shards)) return cat(options.shards, " shards: not a power of two");
  if (wanted > 0 && wanted != options.shards)
    return cat("the default of ", wanted, wanted == 1 ? " shard" : " shards", " was raised to ",
               options.shards, ", one per device");
  return "";
}

std::string of_batches(std::span<const BatchForm> forms, int shards) {
  for (const BatchForm& form : forms)
    if (!form.equal() || form.total() % shards != 0)
      return cat("a global batch of ", form.total(), " samples (", join(form.samples, " + "),
                 ") does not divide into ", shards, " equal shards");
  return "";
}

std::string of_sums(const TrainerOptions& options, const TrainerKind& kind) {
  if (!kind.canonical) return cat("the trainer ", kind.name, " updates by each tower's gradients");
  const std::string& name = options.aggregation.allreduce;
  if (name.empty()) return "";
  const std::unique_ptr<Strategy> strategy = make_strategy(name);
  for (const int towers : {2, 4, 8})
    if (!strategy->canonical(towers))
      return cat("the strategy ", name, " does not add in the order of the canonical sum");
  return "";
}

bool depends_on_data(const Output& value) {
  std::vector<const Node*> open{&value.node()};
  std::set<const Node*> seen;
  while (!open.empty()) {
    const Node* const node = open.back();
    open.pop_back();
    if (&node->op() == &kPlaceholder) return true;
    if (!seen.insert(node).second) continue;
    for (const Output& input : node->inputs()) open.push_back(&input.node());
  }
  return false;
}

// Whether a loss is known to be a mean over the samples of a batch, times or plus what does not
// depend on them: the mean over towers is then that over all samples.
bool is_mean(const Output& loss) {
  const Node& node = loss.node();
  const Op* const op = &node.op();
  if (op == &kReduceMean) return true;
  if (op == &kCast || op == &kNeg || op == &kIdentity || op == &kReshape)
    return is_mean(node.input(0));
  const bool scales = op == &kMul || (op == &kDiv && !depends_on_data(node.input(1)));
  const bool adds = op == &kAdd || op == &kSub || op == &kAddN;
  if (!scales && !adds) return false;
  std::size_t means = 0, others = 0;
  for (const Output& input : node.inputs())
    if (depends_on_data(input)) ++(is_mean(input) ? means : others);
  return others == 0 && (adds || means == 1);
}

}  // namespace

std::string Trainer::k_dependence() const {
  for (const std::string& because :
       {of_numbers(options_, default_shards_), of_batches(batches_.forms(), options_.shards),
        of_sums(options_, kind_)})
    if (!because.empty()) return because;
  if (options_.precision == Precision::kF16) return "f16 scales the loss";
  const Output loss = built_.towers[0].loss;
  if (!is_mean(loss)) return cat(loss.node().describe(), ": the loss is no mean over samples");
  if (!built_.canonical)
    return "a variable has two uses, or a tower no samples, under layers that are synchronised "
           "over "
           "towers which share variables";
  for (const TrainingStep& step : training_steps_)
    if (const Node* node = step.plan()->tower_dependent)
      return cat(node->describe(), " takes the whole batch of its tower");
  return "";
}

void add_k_dependence(Json& report, const std::string& because) {
  report.set("k_independent", because.empty())
      .set("k_dependent_because", because.empty() ? Json() : Json(because));
}

}  // namespace belfry
