#include "belfry/trainers/core/run_fingerprint.h"

#include <algorithm>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/core_ops/assign.h"
#include "belfry/framework/core_ops/assign_gathered.h"
#include "belfry/framework/core_ops/between_processes.h"
#include "belfry/framework/core_ops/random.h"
#include "belfry/framework/graph/graph.h"
#include "belfry/framework/plan/plan.h"
#include "belfry/ops/attention/attention.h"
#include "belfry/ops/convolution/avg_pool.h"
#include "belfry/ops/convolution/conv2d.h"
#include "belfry/ops/convolution/max_pool.h"
#include "belfry/ops/gather.h"
#include "belfry/ops/normalization/batch_statistics.h"
#include "belfry/ops/normalization/gather_moments.h"
#include "belfry/trainers/core/built_training.h"
#include "belfry/trainers/core/data_identity.h"
#include "belfry/trainers/core/equal_processes.h"
#include "belfry/trainers/core/fingerprint_difference.h"
#include "belfry/trainers/core/fingerprint_keys_impl.h"
#include "belfry/trainers/core/option_rows.h"
#include "belfry/trainers/core/trainer_kinds.h"
#include "belfry/trainers/core/training_progress.h"
#include "belfry/trainers/util/hash.h"

namespace belfry {
namespace {

class TextHash {
 public:
  void add(std::string_view text) {
    hash_.add(std::as_bytes(std::span(text)));
    hash_.add(std::as_bytes(std::span("", 1)));
  }
  std::string str() const { return hex(hash_.value(), 16); }

 private:
  Fnv1a hash_;
};

// Without what other towers give to a node of all towers, such as synchronised batch norm: that
// depends on how many there are.
std::vector<Output> own_inputs(const Node& node, const TowerRecord& tower) {
  std::vector<Output> own;
  for (const Output& input : node.inputs())
    if (const int made_in = input.node().origin().call; made_in == 0 || made_in == tower.call)
      own.push_back(input);
  return own;
}

// The nodes of the first tower that its loss and metrics depend on, in the order of the graph. If
// several towers normalise together, the nodes after that come after those of the last tower; then
// the order is that of names.
std::vector<const Node*> nodes_of_model(const TowerRecord& tower) {
  std::vector<const Node*> open{&tower.loss.node()};
  for (const TowerMetric& metric : tower.metrics) open.push_back(&metric.value.node());
  std::set<std::size_t> seen;
  std::vector<const Node*> nodes;
  while (!open.empty()) {
    const Node* const node = open.back();
    open.pop_back();
    if (!seen.insert(node->id()).second) continue;
    nodes.push_back(node);
    for (const Output& input : own_inputs(*node, tower)) open.push_back(&input.node());
  }
  const auto is_of_all = [](const Node* node) { return &node->op() == &kBatchStatistics; };
  if (std::ranges::any_of(nodes, is_of_all))
    std::ranges::sort(nodes, {}, [](const Node* node) { return node->logical_name(); });
  else
    std::ranges::sort(nodes, {}, [](const Node* node) { return node->id(); });
  return nodes;
}

// But for variables without the first dimension: most have one row per sample, of which each device
// has its own number.
std::string type_text(const Node& node, const TensorType& type, std::int64_t rows = 0) {
  std::vector<std::int64_t> dims = type.shape.dims();
  if (!node.is_variable() && !dims.empty()) dims[0] = rows;
  return cat(TensorType{Shape(std::move(dims)), type.dtype});
}

// The options of these ops are shapes, which the types show anyway.
bool tells_options(const Node& node) {
  const std::string_view op = node.op().name;
  return op != "Placeholder" && op != "Reshape";
}

// Whether a node is what the op CausalAttention was, whose options were heads and scale.
bool is_plain_causal(const Node& node) {
  if (&node.op() != &kAttention || node.inputs().size() > 3) return false;
  const auto& options = node.options<AttentionOptions>();
  const bool grouped = options.kv_heads != 0 && options.kv_heads != options.heads;
  return options.causal && options.window == 0 && !grouped;
}

std::string op_of(const Node& node) {
  return is_plain_causal(node) ? "CausalAttention" : node.op().name;
}

std::string name_of(const Node& node) {
  std::string name(node.logical_name());
  const std::size_t own = name.rfind('/') + 1;  // 0 if there is no scope
  if (is_plain_causal(node) && name.substr(own).starts_with("Attention"))
    name.insert(own, "Causal");
  return name;
}

// Ops have the same text as before their newer options existed, unless these say something, so that
// older runs can resume.
std::string options_of(const Node& node) {
  constexpr std::size_t kNewer = 2;  // dilation and groups, which are 1 by default
  std::vector<NodeOptions::Field> fields = node.raw_options().fields();
  const bool convolution = &node.op() == &kConv2d || &node.op() == &kConv2dGradInput;
  const auto is_one = [](const NodeOptions::Field& field) { return field.text == "1"; };
  if (convolution && std::ranges::all_of(std::span(fields).last(kNewer), is_one))
    fields.resize(fields.size() - kNewer);
  const bool pool = &node.op() == &kMaxPool || &node.op() == &kAvgPool;
  if (pool && fields.back().text == "false") fields.pop_back();  // count_include_pad
  if (&node.op() == &kRandomNormal && fields.back().text == "false")
    fields.pop_back();  // truncated
  const auto is_zero = [](const NodeOptions::Field& field) { return field.text == "0"; };
  if (&node.op() == &kGather && std::ranges::all_of(fields, is_zero)) fields.clear();
  if (is_plain_causal(node)) fields = {fields[0], fields[2]};  // heads and scale
  return fields.empty() ? "" : NodeOptions::text_of(fields);
}

void add_node(const Node& node, const TowerRecord& tower, TextHash& hash) {
  hash.add(op_of(node));
  hash.add(name_of(node));
  if (tells_options(node)) hash.add(options_of(node));
  for (const Output& input : own_inputs(node, tower))
    hash.add(cat(name_of(input.node()), ":", input.index()));
  for (std::size_t i = 0; i < node.outputs(); ++i) hash.add(type_text(node, node.output_type(i)));
}

std::string hash_of_model(const TowerRecord& tower) {
  TextHash hash;
  for (const Node* const node : nodes_of_model(tower)) add_node(*node, tower, hash);
  return hash.str();
}

// "{0.9}" for the options 0.9, 0 and 0, and "" for 0: an option that is added after the others and
// is off by default leaves the text as it was. Which part of a variable a process updates is no
// option of the run.
std::string options_of_update(const Node& node) {
  std::vector<NodeOptions::Field> fields = node.raw_options().fields();
  for (NodeOptions::Field& field : fields)
    if (field.is_place) field.text = "0";
  while (!fields.empty() && fields.back().text == "0") fields.pop_back();
  return fields.empty() ? "" : NodeOptions::text_of(fields);
}

// What strategies made, of gradients or of other tensors.
std::set<std::pair<const Node*, int>> combined_in(const Graph& graph) {
  std::set<std::pair<const Node*, int>> combined;
  for (const CombinedGradient& of : graph.combined_gradients())
    for (const Output& result : of.results) combined.insert({&result.node(), result.index()});
  return combined;
}

// The ops of the updates of variables, with their options; rates are separate members. A trainer
// may also assign combined values to trained variables, which is no update.
std::string hash_of_optimizer(const Graph& graph) {
  std::set<std::string> updates;
  const auto combined = combined_in(graph);
  const auto is_combination = [&](const Node& node) {
    return &node.op() == &kAssign && node.input(0).node().variable().trainable &&
           combined.contains({&node.input(1).node(), node.input(1).index()});
  };
  std::set<const Node*> gathered;  // writes of values of all processes, and what they write
  for (const Node* node : gathered_assigns(graph)) gathered.insert({node, &node->input(0).node()});
  for (std::size_t id = 0; id < graph.size(); ++id) {
    const Node& node = graph.node(id);
    if (node.op().writes == 0 || gathered.contains(&node) || is_combination(node)) continue;
    updates.insert(cat(node.op().name, options_of_update(node)));
  }
  TextHash hash;
  for (const std::string& update : updates) hash.add(update);
  return hash.str();
}

void add_options(const Options<TrainerOptions>& rows, const TrainerOptions& options,
                 JsonValue& fingerprint) {
  for (const Option<TrainerOptions>& row : rows) {
    if (!is_in_fingerprint(row) || !row.value) continue;
    const JsonValue value = row.value(options);
    const bool is_whole =
        value.kind() == JsonValue::Kind::kInteger || value.kind() == JsonValue::Kind::kUnsigned;
    fingerprint.set(row.fingerprint_key(), is_whole ? value : JsonValue(text_of(value)));
  }
}

void add_variables(BuiltTraining& built, std::vector<AgreedItem>& items) {
  for (const Variable variable : original_variables(built.graph())) {
    const Node& node = variable.node();
    const std::optional<VariablePart>& part = node.variable().part;
    items.push_back(
        {cat("variable '", variable.logical_name(), "'"),
         cat(TensorType{variable.whole_shape(), variable.dtype()}, ", built at ",
             node.origin().site, variable.trainable() ? "" : ", not trained",
             part ? cat(", in parts from ", join(part->cuts))
                  : cat(", with the value ", hex(check_hash_of(built.session(), variable), 16)))});
  }
}

// The same parts of nodes as hash_of_model() has, and their lines.
void add_model(const TowerRecord& tower, std::vector<AgreedItem>& items) {
  for (const Node* const node : nodes_of_model(tower)) {
    if (node->is_variable()) continue;  // compared with its value
    std::vector<std::string> inputs, types;
    for (const Output& input : own_inputs(*node, tower))
      inputs.push_back(cat("'", input.node().logical_name(), "'"));
    for (std::size_t i = 0; i < node->outputs(); ++i)
      types.push_back(type_text(*node, node->output_type(i), kUnknownSize));
    items.push_back({cat("node '", node->logical_name(), "'"),
                     cat("built at ", node->origin().site, ": ", node->op().name,
                         tells_options(*node) ? node->raw_options().str() : "", "(", join(inputs),
                         ") -> ", join(types))});
  }
}

// What a node sends in parts is its input, and what it puts together its output: those are of one
// shape in all processes. Pieces of pieces need not be, nor moments of shards.
std::string text_of_message(const PlanGraph& plan, const PlanNode& node) {
  const bool varies = node.op == &kGatherMoments || exchanges_pieces(*node.node);
  const TensorType type = node.op == &kReduceScatter ? plan.type(node.inputs[0]) : node.types.at(0);
  return cat(node.op->name, varies ? std::string() : cat(" of ", type), ", built at ",
             node.node->origin().site);
}

// In the order in which the steps send them. A process waits for the first before it sends the
// second.
void add_messages(const BuiltTraining& built, std::vector<AgreedItem>& items) {
  for (const std::shared_ptr<const Plan>& plan : built.plans())
    for (const Launch& launch : plan->launches)
      if (const PlanNode& node = plan->node(launch.node); node.op->exchange && !node.rank())
        items.push_back(
            {cat("message '", node.node->logical_name(), "'"), text_of_message(*plan, node)});
}

std::string text_of_sums(const AggregationOptions& options) {
  return cat(options.allreduce, ", bucket_mb ", options.bucket_mb, ", gradient_repacking ",
             options.gradient_repacking, ", small_tensors_kb ", options.small_tensors_kb);
}

// Each process tests some of the test data. `what`: "test".
void add_test_data(const std::string& what, const Dataset* data, std::vector<AgreedItem>& items) {
  JsonValue found = JsonValue::object();
  if (data) add_data_identity(*data, found);
  items.push_back({cat("the number of ", what, " samples"), member_text(found, "samples")});
  for (const char* const key : {"files", "checksum"})
    items.push_back({cat("the ", what, " data"), member_text(found, key)});
}

// Absent if there is one loss.
void add_losses(std::span<const LossOptions> losses, const TrainingProgress& progress,
                JsonValue& fingerprint) {
  if (losses.empty()) return;
  std::vector<std::string> texts;
  for (const LossOptions& loss : losses) texts.push_back(loss.str());
  fingerprint.set("losses", join(texts, "; "));
  for (const LossOptions& loss : losses.subspan(1))
    fingerprint.set(cat(kRatesOf, loss.loss), loss.optimizer.rate().str(progress.info()));
}

JsonValue trained_variables(const Graph& graph) {
  JsonValue names = JsonValue::array();
  for (const Variable variable : originals_of(graph.variables(kTrainableVariables)))
    names.push(std::string(variable.logical_name()));
  return names;
}

}  // namespace

JsonValue run_fingerprint(const BuiltTraining& built, const TrainingProgress& progress) {
  const TrainerOptions& options = built.options();
  const Optimizer& optimizer = options.first_optimizer();
  const std::optional<WeightAverages>& averages = optimizer.averages();
  const std::string& kind = optimizer.kind();
  JsonValue fingerprint = JsonValue::object();
  fingerprint.set(kModel, hash_of_model(built.nodes().towers[0]))
      .set(kTrained, trained_variables(built.graph()))
      .set(kOptimizerKind, kind.empty() ? optimizer.name() : kind)
      .set(kUpdates, cat(optimizer.name(), " ", hash_of_optimizer(built.graph())))
      .set(kRates, progress.learning_rate())
      .set("global_batch", built.batches().global_batch())
      .set(kAverages, averages
                          ? cat(averages->decay, averages->counts_updates ? kCountedAverages : "")
                          : "none");
  add_options(trainer_option_rows(), options, fingerprint);
  add_options(own_option_rows(built.kind()), options, fingerprint);
  for (const OptimizerOption& option : optimizer.options())
    fingerprint.set(option.name, cat(option.value));
  // Absent where there is none.
  if (const double decay = optimizer.weight_decay(); decay != 0)
    fingerprint.set("weight_decay", cat(decay));
  if (const auto& groups = optimizer.groups(); !groups.empty())
    fingerprint.set(kGroupList, text_of_groups(groups));
  add_losses(options.losses, progress, fingerprint);
  add_data_identity(built.train_data(), fingerprint);
  return fingerprint;
}

std::vector<AgreedItem> agreed_items(BuiltTraining& built, const TrainingProgress& progress,
                                     const JsonValue& fingerprint) {
  const TrainerOptions& options = built.options();
  std::vector<AgreedItem> items{
      agreed_version(),
      {"the trainer", built.kind().name},
      {"how gradients are combined", text_of_sums(options.aggregation)},
      {"the number of devices of each process", std::to_string(options.devices.size())},
      {"the number of shards", std::to_string(options.shards)},
      {"the step to begin with", std::to_string(progress.steps() + 1)},
      {"the last step", std::to_string(progress.total_steps())}};
  for (const FingerprintMember& member : members_of(fingerprint))
    if (member.key != kModel && member.key != kTrained)  // below they are more precise
      items.push_back({member.words, member_text(fingerprint, member.key)});
  add_test_data("test", built.test_data(), items);
  for (const ValidationSet& set : options.validation)
    add_test_data(cat("validation (", set.name, ")"), set.data, items);
  add_variables(built, items);
  add_model(built.nodes().towers[0], items);
  add_messages(built, items);
  return items;
}

}  // namespace belfry
