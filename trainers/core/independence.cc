#include "belfry/trainers/core/independence.h"

#include <algorithm>
#include <bit>
#include <set>

#include "belfry/allreduce/all_reduce_spec.h"
#include "belfry/allreduce/strategy.h"
#include "belfry/framework/base/option_name.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/core_ops/add_n.h"
#include "belfry/framework/core_ops/identity.h"
#include "belfry/framework/core_ops/placeholder.h"
#include "belfry/framework/graph/describe_with_forward.h"
#include "belfry/framework/plan/plan.h"
#include "belfry/ops/accuracy.h"
#include "belfry/ops/arithmetic.h"
#include "belfry/ops/cast.h"
#include "belfry/ops/class_counts.h"
#include "belfry/ops/concat.h"
#include "belfry/ops/neg.h"
#include "belfry/ops/normalization/batch_statistics.h"
#include "belfry/ops/reduce.h"
#include "belfry/ops/reshape.h"
#include "belfry/trainers/core/built_training.h"
#include "belfry/trainers/core/fingerprint_difference.h"
#include "belfry/trainers/core/trainer_kinds.h"
#include "belfry/trainers/util/device_list.h"

namespace belfry {
namespace {

bool is_power_of_two(std::int64_t number) {
  return std::has_single_bit(static_cast<std::uint64_t>(number));
}

std::string of_powers(const BuiltTraining& built) {
  const std::int64_t devices = built.batches().towers(), shards = built.options().shards;
  if (!is_power_of_two(devices)) return cat(devices, " devices: not a power of two");
  if (!is_power_of_two(shards)) return cat(shards, " shards: not a power of two");
  return "";
}

// So many devices, in powers of two, are to give the same bits.
constexpr std::int64_t kPromisedDevices = 8;

// As many of them as can share a global batch alike.
std::int64_t most_promised_devices(std::int64_t global_batch) {
  return std::min(kPromisedDevices, global_batch & -global_batch);
}

// Where the number of shards follows that of devices.
std::string of_shards(const TrainerOptions& options, int wanted) {
  if (any_gpu(options.devices))
    return "a GPU has one shard, so the number of shards follows the number of devices";
  if (wanted > 0 && wanted != options.shards)
    return cat("the default of ", wanted, wanted == 1 ? " shard" : " shards", " was raised to ",
               options.shards, ", one per device");
  return "";
}

// So many devices, in powers of two, can have the shards of one: samples_of_shard() cuts the parts
// of devices where it cuts the whole batch, if these parts are equal.
std::int64_t most_devices(const BuiltTraining& built) {
  const std::int64_t batch = built.batches().global_batch();
  return std::min<std::int64_t>(built.options().shards, batch & -batch);
}

// `devices`: among which each batch must be divided alike, too.
std::string of_batches(const BuiltTraining& built, std::int64_t devices) {
  for (const BatchForm& form : built.batches().forms()) {
    if (!form.equal())
      return cat("a batch of ", form.total(),
                 " samples is not shared alike: ", join(form.samples, " + "));
    if (form.total() % devices != 0)
      return cat(devices, " devices cannot share a batch of ", form.total(), " samples alike");
  }
  return "";
}

std::string of_sums(const TrainerOptions& options, const TrainerKind& kind) {
  if (!kind.canonical)
    return cat("the trainer ", kind.name,
               kind.combines() ? " does not promise the bits of one tower"
                               : " updates by each tower's gradients");
  const AggregationOptions& how = options.aggregation;
  const std::string& name = how.unused_allreduce.empty() ? how.allreduce : how.unused_allreduce;
  if (name.empty()) return "";
  const std::unique_ptr<Strategy> strategy = make_strategy(name);
  for (const int towers : {2, 4, 8})
    if (!strategy->canonical(towers))
      return cat("the strategy ", name, " does not add in the order of the canonical sum");
  return "";
}

// Whether a value is computed from a node for which `found` holds, by a way that has no node for
// which `ends` holds.
bool is_made_of(const Output& value, const auto& found, bool (*ends)(const Node&) = nullptr) {
  std::vector<const Node*> open{&value.node()};
  std::set<const Node*> seen;
  while (!open.empty()) {
    const Node* const node = open.back();
    open.pop_back();
    if (found(*node)) return true;
    if (!seen.insert(node).second || (ends && ends(*node))) continue;
    for (const Output& input : node->inputs()) open.push_back(&input.node());
  }
  return false;
}

// Whether towers have values of their own. Moments of the batches of all towers (weighted_mean.h)
// are the same in all.
bool depends_on_data(const Output& value) {
  return is_made_of(
      value, [](const Node& node) { return &node.op() == &kPlaceholder; },
      [](const Node& node) { return &node.op() == &kBatchStatistics; });
}

// Whether a loss or a metric is known to be a mean over the samples of a batch, times or plus what
// does not depend on them: the mean over towers is then that over all samples. `by_towers`: nodes
// that the samples of such a mean must not be made of.
bool is_mean(const Output& loss, const std::set<const Node*>& by_towers = {}) {
  const Node& node = loss.node();
  const Op* const op = &node.op();
  if (!depends_on_data(loss)) return true;
  if (op == &kReduceMean || op == &kAccuracy)
    return std::ranges::none_of(node.inputs(), [&](const Output& input) {
      return is_made_of(input, [&](const Node& from) { return by_towers.contains(&from); });
    });
  if (op == &kCast || op == &kNeg || op == &kIdentity || op == &kReshape)
    return is_mean(node.input(0), by_towers);
  const bool scales = op == &kMul || (op == &kDiv && !depends_on_data(node.input(1)));
  const bool adds = op == &kAdd || op == &kSub || op == &kAddN;
  if (!scales && !adds) return false;
  std::size_t means = 0, others = 0;
  for (const Output& input : node.inputs())
    if (depends_on_data(input)) ++(is_mean(input, by_towers) ? means : others);
  return others == 0 && (adds || means == 1);
}

// Whether numbers are known to be sums over the samples of a batch: added over towers, they are
// those over all samples.
bool is_sum_of_samples(const Output& sums, const std::set<const Node*>& by_towers) {
  const Node& node = sums.node();
  const Op* const op = &node.op();
  if (op == &kReduceSum || op == &kClassCounts || op == &kScoreCounts)
    return std::ranges::none_of(node.inputs(), [&](const Output& input) {
      return is_made_of(input, [&](const Node& from) { return by_towers.contains(&from); });
    });
  const bool is_linear = op == &kCast || op == &kNeg || op == &kIdentity || op == &kReshape ||
                         op == &kConcat || op == &kAdd || op == &kSub || op == &kAddN;
  return is_linear && std::ranges::all_of(node.inputs(), [&](const Output& input) {
           return is_sum_of_samples(input, by_towers);
         });
}

// Whether the value of a metric is known to be one for all numbers of towers.
bool is_of_samples(const TowerMetric& metric, const std::set<const Node*>& by_towers) {
  if (metric.has_scores())  // the last node puts rows together
    return std::ranges::none_of(metric.value.node().inputs(), [&](const Output& column) {
      return is_made_of(column, [&](const Node& from) { return by_towers.contains(&from); });
    });
  return metric.is_mean() ? is_mean(metric.value, by_towers)
                          : is_sum_of_samples(metric.value, by_towers);
}

// k_dependence() for a number of shards that does not follow K, and gradients that are added
// canonically for every K.
std::string of_towers(const BuiltTraining& built, std::int64_t devices) {
  const TrainerOptions& options = built.options();
  const BatchPlan& batches = built.batches();
  for (const std::string& because : {of_powers(built), of_batches(built, devices)})
    if (!because.empty()) return because;
  if (options.session.dry_run && makes_unequal(options.batches.uneven))
    return cat(
        "uneven=", name_of(options.batches.uneven),
        " may make a smaller last batch, which a dry run does not know, as it reads no data");
  if (options.batches.uneven == Uneven::kPad &&
      batches.forms().back().total() < batches.global_batch())
    return "uneven=pad fills up the last batch of an epoch, in a way that depends on the devices";
  if (options.precision == Precision::kF16) return "f16 scales the loss";
  const Output loss = built.nodes().towers[0].loss;
  if (std::ranges::any_of(built.nodes().towers, &TowerRecord::asked_for_place))
    return cat(loss.node().describe(),
               ": the tower function asks which tower it builds (Tower::index(), total() or "
               "is_main()), so towers may compute differently");
  for (const TrainedLoss& trained : built.nodes().losses)
    if (const Output value = trained.towers[0].loss; !is_mean(value))
      return cat(value.node().describe(), ": the loss is no mean over samples");
  for (const std::shared_ptr<const Plan>& plan : built.plans())
    if (const Node* node = plan->moved_by_towers)
      return cat(describe_with_forward(*node),
                 node->op().random ? " draws random numbers that belong to no sample; "
                                     "random_normal(tower, samples, ...) draws them by sample"
                                   : " takes the whole batch of its tower");
  return "";
}

// k_dependence() for those K up to `devices` that have this number of shards: not more devices than
// a default number, which they raise.
std::string at_these_shards(const BuiltTraining& built, std::int64_t devices) {
  for (const std::string& because :
       {of_powers(built), of_shards(built.options(), built.shards_by_default()),
        of_sums(built.options(), built.kind()), of_towers(built, devices)})
    if (!because.empty()) return because;
  if (!built.nodes().canonical())
    return "a variable has two uses, or a tower no samples, under layers that are synchronised "
           "over towers which share variables";
  return built.other_bits();
}

// ShardReport::for_equal_bits.
int shards_for_equal_bits(const BuiltTraining& built) {
  const BatchPlan& batches = built.batches();
  const int wanted = static_cast<int>(
      std::bit_ceil(std::max<std::size_t>(kPromisedDevices, batches.forms()[0].samples.size())));
  const int by_default = built.shards_by_default();
  if (by_default == 0 || by_default >= wanted || any_gpu(built.options().devices)) return 0;
  const bool possible = of_powers(built).empty() &&
                        of_sums(built.options(), built.kind()).empty() &&
                        of_towers(built, most_devices(built)).empty() &&
                        built.nodes().canonical() && batches.global_batch() % wanted == 0;
  return possible ? wanted : 0;
}

}  // namespace

std::string k_dependence(const BuiltTraining& built) {
  std::string because = at_these_shards(built, most_devices(built));
  const int wanted = built.shards_by_default();
  if (because.empty() && wanted > 0 &&
      wanted < most_promised_devices(built.batches().global_batch()))
    because = cat("more than ", wanted, wanted == 1 ? " device raises" : " devices raise",
                  " the default of ", wanted, wanted == 1 ? " shard" : " shards");
  return because;
}

std::string unlike_one_device(const BuiltTraining& built) {
  const std::int64_t devices = built.batches().towers();
  if (devices == 1 || any_gpu(built.options().devices)) return "";
  const std::string because = at_these_shards(built, 1);
  // The training says itself which processes compute otherwise.
  if (because.empty() || because == built.other_bits()) return "";
  std::string line = cat(devices, " devices may give other results than 1 (", because, ")");
  if (const int shards = shards_for_equal_bits(built); shards > 0)
    line += cat("; with ", option_name("shards"), "=", shards, ", 1, 2, 4, ... up to ", shards,
                " devices give equal ones");
  else if (!of_powers(built).empty())
    line += cat("; equal ones need powers of two, of devices and of ", option_name("shards"));
  return line;
}

std::vector<std::string> metrics_by_devices(const BuiltTraining& built) {
  std::set<const Node*> by_towers;
  for (const std::shared_ptr<const Plan>& plan : built.plans())
    by_towers.insert(plan->tower_dependent.begin(), plan->tower_dependent.end());
  std::vector<std::string> names;
  for (const TowerMetric& metric : built.nodes().towers[0].metrics)
    if (!is_of_samples(metric, by_towers))
      for (std::string& name : metric.value_names()) names.push_back(std::move(name));
  return names;
}

ShardReport shard_report(const BuiltTraining& built) {
  return {.global_batch = built.batches().global_batch(),
          .shards = built.options().shards,
          .equal_up_to = at_these_shards(built, most_devices(built)).empty()
                             ? static_cast<int>(most_devices(built))
                             : 0,
          .for_equal_bits = shards_for_equal_bits(built),
          .k_dependent_because = k_dependence(built)};
}

namespace {

// How gradients are added, where that is not by the canonical sum.
std::string other_sum(const BuiltTraining& built) {
  const TrainerOptions& options = built.options();
  const std::int64_t devices = built.batches().towers();
  if (devices == 1) return "";
  const std::string where = cat(" over ", devices, " devices");
  if (!built.kind().canonical) return cat("the trainer ", built.kind().name, where);
  if (!built.nodes().canonical())
    return cat("the trainer ", built.kind().name, where,
               ", all uses of a synchronised variable at once");
  const AggregationOptions& how = options.aggregation;
  if (how.allreduce.empty() || make_strategy(how.allreduce)->canonical(static_cast<int>(devices)))
    return "";
  return cat("the strategy ", how.allreduce, where,
             how.bucket_mb > 0 ? cat(", in buckets of ", how.bucket_mb, " MiB") : "",
             how.gradient_repacking > 0 ? cat(", packed into ", how.gradient_repacking) : "",
             how.small_tensors_kb > 0 ? cat(", up to ", how.small_tensors_kb, " KiB packed") : "");
}

// Why not even the same run gives the same bits twice.
std::string chance(const BuiltTraining& built) {
  const TrainerOptions& options = built.options();
  if (built.kind().runs_free(options) && options.devices.size() > 1)
    return "towers that run free of each other give no bits twice";
  const std::string& strategy = options.aggregation.allreduce;
  if (!strategy.empty() && parse_all_reduce_spec(strategy).uses("nccl"))
    return "NCCL chooses the order of its sums";
  if (any_gpu(options.devices) && !options.session.deterministic)
    return cat("GPUs take the fastest algorithms, which need not repeat (",
               the_option("deterministic"), ")");
  return "";
}

std::string types_of(std::span<const DeviceSpec> devices) {
  std::vector<std::string> types;
  for (const DeviceSpec& device : devices) types.emplace_back(device.is_gpu() ? "GPU" : "CPU");
  const bool same = std::ranges::count(types, types[0]) == std::ssize(types);
  return same ? types[0] : join(types);
}

constexpr char kEarlierBits[] = "earlier_bits";
constexpr char kDevices[] = "devices", kTypes[] = "device_types", kShards[] = "shards",
               kArithmetic[] = "arithmetic", kProcessors[] = "processors", kSums[] = "sums",
               kTowers[] = "device_dependence", kChance[] = "no_bits_twice";

std::string first_of(const std::string& a, const std::string& b) { return a.empty() ? b : a; }

// "8 devices".
std::string counted(const std::string& number, const char* what) {
  return cat(number, " ", what, number == "1" ? "" : "s");
}

}  // namespace

JsonValue bit_sources(const BuiltTraining& built) {
  const TrainerOptions& options = built.options();
  JsonValue sources = JsonValue::object();
  sources.set(kDevices, built.batches().towers())
      .set(kShards, options.shards)
      .set(kTypes, types_of(options.devices))
      .set(kArithmetic, built.arithmetics().all)
      .set(kProcessors, built.arithmetics().processors)
      .set(kSums, other_sum(built))
      .set(kTowers, of_towers(built, most_devices(built)))
      .set(kChance, chance(built));
  if (!built.earlier_bits().empty()) sources.set(kEarlierBits, built.earlier_bits());
  return sources;
}

std::string why_other_bits(const JsonValue& before, const JsonValue& now) {
  constexpr std::size_t kMostShown = 300;  // all instruction sets of several processes
  const auto then = [&](const char* key) { return shown(member_text(before, key), kMostShown); };
  const auto is = [&](const char* key) { return member_text(now, key); };
  const auto differs = [&](const char* key) { return before.find(key) && then(key) != is(key); };
  if (differs(kTypes)) return cat("it ran on ", then(kTypes), "s and resumes on ", is(kTypes), "s");
  if (differs(kArithmetic))
    return cat("it was saved by ", then(kArithmetic), " and resumes with ", is(kArithmetic));
  if (differs(kShards))
    return cat("the number of shards (", the_option("shards"), ") was ", then(kShards),
               " and is now ", is(kShards));
  if (differs(kSums)) {
    constexpr char kCanonical[] = "the canonical sum";
    return cat("gradients were combined by ", first_of(then(kSums), kCanonical),
               " and are now combined by ", first_of(is(kSums), kCanonical));
  }
  if (const std::string why = first_of(is(kTowers), then(kTowers));
      differs(kDevices) && !why.empty())
    return cat("there were ", counted(then(kDevices), "device"), " and are now ", is(kDevices),
               ", and bits depend on that: ", why);
  return first_of(is(kChance), then(kChance));
}

std::string earlier_bits(const JsonValue& before, const JsonValue& now) {
  return first_of(member_text(before, kEarlierBits), why_other_bits(before, now));
}

void add_k_dependence(JsonValue& report, const std::string& because) {
  report.set("k_independent", because.empty())
      .set("k_dependent_because", because.empty() ? JsonValue() : JsonValue(because));
}

}  // namespace belfry
