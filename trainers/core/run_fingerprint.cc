#include "belfry/trainers/core/run_fingerprint.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "belfry/framework/base/check_hash.h"
#include "belfry/framework/base/file_system.h"
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
#include "belfry/trainers/core/option_rows.h"
#include "belfry/trainers/core/trainer_kinds.h"
#include "belfry/trainers/core/training_progress.h"
#include "belfry/trainers/util/hash.h"

namespace belfry {
namespace {

constexpr std::uint64_t kWholeFile = std::uint64_t{64} << 20, kBlock = std::uint64_t{1} << 20;
constexpr std::uint64_t kBlocks = kWholeFile / kBlock;  // of a larger file

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

// The samples at both ends, where no file can be looked at, or there is a folder of them.
std::string checksum_of_samples(const Dataset& data) {
  constexpr std::int64_t kMost = 64;
  const std::int64_t size = data.size();
  std::vector<std::int64_t> rows;
  for (std::int64_t i = 0; i < size; ++i)
    if (i < kMost || i >= size - kMost) rows.push_back(i);
  Fnv1a hash;
  for (const Tensor& tensor : gather_tensors(data, rows))
    hash.add({tensor.raw(), static_cast<std::size_t>(tensor.bytes())});
  return hex(hash.value(), 16);
}

// "input.txt 0123456789abcdef"
std::string name_and_checksum(const std::string& path) {
  return cat(path.substr(path.rfind('/') + 1), " ", checksum_of_file(local_file_system(), path));
}

void add_data(const Dataset& data, JsonValue& fingerprint) {
  JsonValue fields = JsonValue::array(), files = JsonValue::array();
  for (const Dataset::Field& field : data.signature())
    fields.push(cat(field.name, " ", TensorType{field.shape, field.dtype}));
  const std::vector<std::string> paths = data.files();
  const bool are_files = !paths.empty() && std::ranges::all_of(paths, [](const std::string& path) {
    return local_file_system().target_kind(path) != FileKind::kDirectory;
  });
  fingerprint.set("fields", std::move(fields)).set("samples", data.size());
  if (const LengthBuckets* const buckets = data.buckets()) {
    JsonValue lengths = JsonValue::array();
    for (const std::int64_t length : buckets->lengths) lengths.push(length);
    fingerprint.set("buckets", std::move(lengths));
  }
  if (data.is_stream()) return;  // to look at its samples is to use them up
  if (!are_files) {
    fingerprint.set("checksum", checksum_of_samples(data));
    return;
  }
  for (const std::string& path : paths) files.push(name_and_checksum(path));
  fingerprint.set("files", std::move(files));
}

constexpr std::string_view kModel = "model";
constexpr std::string_view kOptimizerKind = "optimizer_kind";
constexpr std::string_view kRates = "rates";        // compared as far as both runs go
constexpr std::string_view kRatesOf = "rates of ";  // the same, of a loss after the first
constexpr std::string_view kGroupList = "group";
constexpr std::string_view kTrained = "trained";    // names of variables
constexpr std::string_view kUpdates = "optimizer";  // its name, and a hash
constexpr std::string_view kAverages = "averages";
constexpr std::string_view kCountedAverages = " counted";  // of averages

// The parts of a fingerprint that are no options, and their names for people.
constexpr std::pair<std::string_view, std::string_view> kParts[] = {
    {"global_batch", "the global batch"},
    {kOptimizerKind, "the optimizer"},
    {kRates, "the learning rate"},
    {kAverages, "the moving average of weights (moving_average)"},
    {"samples", "the number of training samples"},
    {"fields", "the fields of the training data"},
    {"buckets", "the lengths of batches (bucket_by_length)"},
    {"files", "the training data"},
    {"checksum", "the training data"},
    {"weight_decay", "the weight decay"},
    {kGroupList, "the list of groups of variables (group)"},
    {kTrained, "the set of trained variables"},
    {kUpdates, "the optimizer's updates (their ops or options)"},
    {"losses", "how the losses are trained"},
    {kModel, "the model's graph (its ops, options or shapes)"}};

struct FingerprintMember {
  std::string key, words;
  // What stands for it in a fingerprint that lacks it; none: there it is not compared. Older
  // versions had fewer options, and left out some that were off.
  std::optional<std::string> otherwise;
};

// The members of a fingerprint, in the order in which they are compared.
std::vector<FingerprintMember> members_of(const JsonValue& fingerprint) {
  std::vector<FingerprintMember> members;
  for (const Option<TrainerOptions>& row : trainer_option_rows())
    if (is_in_fingerprint(row) && row.value)
      members.push_back({row.fingerprint_key(), row.in_words(), text_of(row.value({}))});
  const auto is_listed = [&](const std::string& key) {
    return std::ranges::find(members, key, &FingerprintMember::key) != members.end() ||
           std::ranges::find(kParts, key, &std::pair<std::string_view, std::string_view>::first) !=
               std::end(kParts);
  };
  for (const auto& [part, words] : kParts) {
    if (part ==
        kUpdates)  // which the options of the optimizer explain; and a trainer's own options
      for (const auto& [key, value] : fingerprint.members())
        if (!is_listed(key))
          members.push_back({key,
                             key.starts_with(kRatesOf)
                                 ? cat("the learning rate of ", key.substr(kRatesOf.size()))
                                 : cat("the option ", key),
                             std::nullopt});
    const bool is_new = part == kOptimizerKind;
    members.push_back({std::string(part), std::string(words),
                       is_new ? std::nullopt : std::optional<std::string>("")});
  }
  return members;
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
    items.push_back({cat("variable '", variable.logical_name(), "'"),
                     cat(TensorType{variable.whole_shape(), variable.dtype()}, ", built at ",
                         node.origin().site, variable.trainable() ? "" : ", not trained",
                         part ? cat(", in parts from ", join(part->cuts))
                              : cat(", with the value ",
                                    hex(check_hash(built.session().read(variable)), 16)))});
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
  if (data) add_data(*data, found);
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

std::string fingerprint_value_text(std::string_view key, const std::string& value) {
  if (value.empty()) return "none";
  if (key != kAverages || !value.ends_with(kCountedAverages)) return shown(value);
  return cat(shown(value.substr(0, value.size() - kCountedAverages.size())),
             " with moving_average_warmup");
}

// Names one variable that only one of the two runs trained; "" for none.
std::string other_training(const JsonValue& before, const JsonValue& now) {
  const auto names_in = [](const JsonValue& fingerprint) {
    std::set<std::string> names;
    for (const JsonValue& name : fingerprint.at(kTrained).items()) names.insert(name.text());
    return names;
  };
  const std::set<std::string> then = names_in(before), current = names_in(now);
  std::vector<std::string> differing;
  std::ranges::set_symmetric_difference(then, current, std::back_inserter(differing));
  if (differing.empty()) return "";
  return cat("the set of trained variables has changed: '", shown(differing[0]), "' was ",
             then.contains(differing[0]) ? "trained, and is not now" : "not trained, and is now",
             " (VariableOptions::trainable, which a layer or a VariableGetter may have set)");
}

std::string text_of_member(const JsonValue& fingerprint, const FingerprintMember& member) {
  return fingerprint.find(member.key) ? member_text(fingerprint, member.key)
                                      : member.otherwise.value_or("");
}

// Older runs do not say what they trained. Those of another model have other variables.
std::string difference_in(const FingerprintMember& member, const JsonValue& before,
                          const JsonValue& now) {
  const std::string& key = member.key;
  if (!member.otherwise && !before.find(key)) return "";
  const std::string then = text_of_member(before, member), current = text_of_member(now, member);
  const bool is_rate = key == kRates || key.starts_with(kRatesOf);
  if (then == current || (is_rate && same_rates(then, current))) return "";
  if (key != kTrained)
    return cat(member.words, " was ", fingerprint_value_text(key, then), " and is now ",
               fingerprint_value_text(key, current));
  const bool comparable = !then.empty() && member_text(before, kModel) == member_text(now, kModel);
  return comparable ? other_training(before, now) : "";
}

}  // namespace

std::string member_text(const JsonValue& json, std::string_view key) {
  const JsonValue* const value = json.find(key);
  return !value ? "" : value->kind() == JsonValue::Kind::kString ? value->text() : value->str();
}

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
  add_data(built.train_data(), fingerprint);
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

std::string checksum_of_file(FileSystem& files, const std::string& path) {
  const auto file = files.open(path);
  const std::uint64_t size = file->size();
  Fnv1a hash;
  std::vector<std::byte> part(kBlock);
  const auto add = [&](std::uint64_t bytes) {
    while (bytes > 0) {
      const std::size_t count = file->read(std::span(part).first(std::min(bytes, kBlock)));
      if (count == 0) return;
      hash.add(std::span(part).first(count));
      bytes -= count;
    }
  };
  if (size <= kWholeFile) {
    add(size);
    return hex(hash.value(), 16);
  }
  const std::uint64_t last = size - kBlock;
  for (std::uint64_t b = 0; b < kBlocks; ++b) {
    file->seek(b + 1 == kBlocks ? last : last / (kBlocks - 1) * b);
    add(kBlock);
  }
  return cat(hex(hash.value(), 16), " of ", size, " bytes");
}

std::string stamp_of_files(const Dataset& data) {
  FileSystem& files = local_file_system();
  std::string stamp;
  for (const std::string& path : data.files()) try {
      const bool is_folder = files.target_kind(path) == FileKind::kDirectory;
      const std::uint64_t size = is_folder ? 0 : files.open(path)->size();
      stamp += cat(path, " ", files.modified(path), " ", size, "\n");
    } catch (const Error&) {
      stamp += cat(path, " cannot be read\n");
    }
  return stamp;
}

std::string changed_file(const Dataset& data, const JsonValue& fingerprint) {
  const JsonValue* const before = fingerprint.find("files");
  if (!before) return "";
  std::size_t i = 0;
  const std::vector<std::string> paths = data.files();
  for (const JsonValue& file : before->items()) {
    if (i == paths.size()) break;
    const std::string& path = paths[i++];
    try {
      if (name_and_checksum(path) != file.text()) return path;
    } catch (const Error&) {
      return path;
    }
  }
  return "";
}

std::string first_difference(const JsonValue& before, const JsonValue& now) {
  for (const FingerprintMember& member : members_of(now))
    if (std::string text = difference_in(member, before, now); !text.empty()) return text;
  return "";
}

std::string difference_of_extra_variables(const JsonValue& before, const JsonValue& now) {
  std::string groups;  // those that freeze decide what is trained
  for (const FingerprintMember& member : members_of(now)) {
    const std::string& key = member.key;
    if (key == kGroupList) groups = difference_in(member, before, now);
    if (key != kOptimizerKind && key != kAverages && key != kTrained) continue;
    const std::string text = difference_in(member, before, now);
    if (!text.empty()) return key == kTrained && !groups.empty() ? groups : text;
  }
  return "";
}

}  // namespace belfry
