#include "belfry/trainers/core/bad_value.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <span>
#include <utility>
#include <vector>

#include "belfry/framework/base/json.h"
#include "belfry/framework/base/option_name.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/core_ops/constant.h"
#include "belfry/framework/core_ops/fill.h"
#include "belfry/framework/graph/describe_with_forward.h"
#include "belfry/framework/graph/weights.h"
#include "belfry/framework/run/output_check.h"
#include "belfry/ops/arithmetic.h"
#include "belfry/ops/normalization/batch_statistics.h"
#include "belfry/trainers/core/built_training.h"
#include "belfry/trainers/core/values_of_all.h"
#include "belfry/trainers/data/prefetch.h"
#include "belfry/trainers/util/statistics.h"

namespace belfry {
namespace {

// Advice for an op, and for its gradient.
struct OpAdvice {
  std::string_view kind;
  const char *forward, *gradient;
};

constexpr char kLargeLogits[] =
    "its input, such as logits, is as large as its type can be; make it smaller, for instance by a "
    "norm before the last layer";
constexpr char kSmallVariance[] =
    "its input is too large, or its variance is 0 with a small epsilon; use a larger epsilon";
constexpr char kLongSum[] =
    "the terms are finite, and their sum is not; take a mean, or scale them";

constexpr char kSmallerLoss[] = "make the loss smaller, for instance by a mean instead of a sum";

constexpr char kNoFit[] =
    "the loss of labels that do not fit into their time is infinite; give them more time, leave "
    "such samples out, or set zero_infinity";

// BadValue::kind of a quotient by the mean weight of the batches of all towers (weighted_mean.h).
constexpr char kWeightedMean[] = "WeightedMean";

constexpr OpAdvice kAdvice[] = {
    {"Log", "log(x) needs x > 0; log(relu(x) + 1e-6) is finite, for instance",
     "the gradient of log(x) is 1 / x; keep x away from 0 by a small number that is added"},
    {"Sqrt", "sqrt(x) needs x >= 0; sqrt(relu(x) + 1e-6) is finite, for instance",
     "the gradient of sqrt(x) is infinite at x = 0; add a small number to x"},
    {"Div", "it divides by 0, or by too small a number; add a small number to the divisor",
     "the gradient of a quotient divides by the divisor once more; keep it away from 0"},
    {kWeightedMean,
     "its labels are all ignored, or of classes of weight 0; leave such samples out, or take "
     "larger batches",
     "keep the weights of samples away from 0"},
    {"Exp", "exp(x) overflows where x > 88 in f32; subtract the largest x first, as softmax() does",
     "exp(x) is large there; subtract the largest x first, as softmax() does"},
    {"Pow", "pow(x, y) needs x > 0 unless y is a whole number, and overflows where both are large",
     "the gradient of pow(x, y) is infinite at x = 0 if y < 1; add a small number to x"},
    {"Log1p", "log1p(x) needs x > -1",
     "the gradient of log1p(x) is 1 / (1 + x); keep x away from -1"},
    {"Softmax", kLargeLogits, kLargeLogits},
    {"LogSoftmax", kLargeLogits, kLargeLogits},
    {"LogSumExp", kLargeLogits, kLargeLogits},
    {"CtcLoss", kNoFit, kNoFit},
    {"SparseSoftmaxCrossEntropy", kLargeLogits, kLargeLogits},
    {"SigmoidCrossEntropy", kLargeLogits, kLargeLogits},
    {"Attention", kLargeLogits, kLargeLogits},
    {"LayerNorm", kSmallVariance, kSmallVariance},
    {"GroupNorm", kSmallVariance, kSmallVariance},
    {"RmsNorm", kSmallVariance, kSmallVariance},
    {"BatchNormTrain", kSmallVariance, kSmallVariance},
    {"BatchNormInference", kSmallVariance, kSmallVariance},
    {"ReduceSum", kLongSum, kLongSum},
    {"ReduceMean", kLongSum, kLongSum},
    {"AddN", kLongSum, kLongSum},
    {"AllReduce", kLongSum, kLongSum},
};

// What to do where values have grown.
std::string less_growth() {
  return cat("values have become too large for it: a smaller learning rate may help (",
             the_option("learning_rate"), "), or a limit of gradients (", the_option("clip_norm"),
             ")");
}

// The fields of the data are the inputs of a tower, in their order.
std::string bad_field(const BuiltTraining& built, const Batch& batch, const Node& placeholder) {
  const TrainedLoss& loss = built.nodes().losses[0];
  const std::vector<TowerRecord>& towers = loss.towers_of(loss.steps[batch.form].batch);
  for (std::size_t t = 0; t < towers.size(); ++t)
    for (std::size_t f = 0; f < towers[t].inputs.size(); ++f) {
      const Tensor& fed = batch.tower(static_cast<std::int64_t>(t))[f];
      if (&towers[t].inputs[f].node() == &placeholder &&
          find_not_finite(fed.dtype(), {fed.raw(), fed.bytes()}))
        return built.train_data().signature()[f].name;
    }
  return "";
}

// Notes a row of the global batch, with its tower and training sample.
void note_row(const BuiltTraining& built, const Batch& batch, std::int64_t row, BadValue& found) {
  const BatchPlan& plan = built.batches();
  const BatchForm& form = built.nodes().losses[0].steps[batch.form].batch;
  found.row = row;
  std::vector<std::int64_t> order(static_cast<std::size_t>(plan.order_size()));
  plan.shuffle(batch.position.epoch, order);
  for (std::size_t t = 0; t < form.rows.size(); ++t) {
    const std::int64_t in_tower = row - form.begins[t];
    if (in_tower < 0 || in_tower >= form.rows[t]) continue;
    found.tower = static_cast<int>(built.own_towers().first + static_cast<std::int64_t>(t));
    const auto samples = plan.rows(order, batch.position.batch, found.tower);
    if (in_tower < std::ssize(samples)) found.sample = samples[static_cast<std::size_t>(in_tower)];
  }
}

// The losses and gradients of a step, in the order in which they are looked at.
struct Ends {
  std::vector<Output> losses;  // with the moments of batch norms
  std::vector<Output> gradients;
  std::vector<Gradient> by_variable;  // of towers
};

Ends ends_of(const BuiltTraining& built, const TrainedLoss& loss, const StepNodes& step) {
  Ends ends;
  const std::vector<TowerRecord>& towers = loss.towers_of(step.batch);
  for (std::size_t t = 0; t < towers.size(); ++t) {
    if (!step.runs(t)) continue;
    ends.losses.push_back(towers[t].loss);
    for (const BatchMoments& layer : towers[t].moments)
      ends.losses.insert(ends.losses.end(), {layer.mean, layer.variance});
  }
  const auto add = [&](const std::vector<Gradient>& row) {
    std::ranges::copy_if(row, std::back_inserter(ends.by_variable),
                         [](const Gradient& g) { return static_cast<bool>(g.value); });
  };
  std::ranges::for_each(step.tower_gradients, add);
  // Sums over several batches are state.
  if (built.batches().batches_per_step() == 1) add(step.gradients);
  for (const Gradient& gradient : ends.by_variable) ends.gradients.push_back(gradient.value);
  return ends;
}

// Whether a constant, a fill, or a weight that is not trained has infinities, and no NaN.
bool is_infinite_on_purpose(BuiltTraining& built, const Node& node) {
  const auto holds = [](const Tensor& value) {
    const std::span<const std::byte> bytes(value.raw(), value.bytes());
    return find_not_finite(value.dtype(), bytes) && !find_nan(value.dtype(), bytes);
  };
  if (&node.op() == &kFill) return std::isinf(node.options<FillOptions>().value);
  if (&node.op() == &kFillLike) return std::isinf(node.options<FillLikeOptions>().value);
  if (&node.op() == &kConst) return holds(node.options<ConstantOptions>().value);
  if (!node.is_variable()) return false;
  const Variable variable(const_cast<Node&>(node));
  return may_be_infinite(VariableRoles(built.graph()).of(node), variable.trainable()) &&
         holds(built.session().read(variable));
}

// Sets Session::step() while it lives.
class AtRun {
 public:
  AtRun(Session& session, std::uint64_t run) : session_(session), now_(session.step()) {
    session.set_step(run);
  }
  ~AtRun() { session_.set_step(now_); }
  AtRun(const AtRun&) = delete;
  AtRun& operator=(const AtRun&) = delete;

 private:
  Session& session_;
  const std::uint64_t now_;
};

// The step, unfused. If a process has no memory for it, none runs it.
CompiledStep& prepare_in_all(BuiltTraining& built, std::span<const Fetch> fetches,
                             std::span<const FeedType> feeds) {
  CompiledStep* step = nullptr;
  std::string failure;
  try {
    step = &built.session().prepare(fetches, feeds, {.fuse = false});
  } catch (const Error& error) {
    failure = error.what();
  }
  failure = of_any_process(built.processes(), failure);
  if (!failure.empty()) throw Error(failure);
  return *step;
}

// Runs the step for a batch. False if that would change variables.
bool run_again(BuiltTraining& built, const Batch& batch, const StepNodes& step, std::uint64_t run,
               const Ends& ends, OutputCheck& check) {
  std::vector<Fetch> fetches;  // nodes: nothing needs their values
  for (const auto* const all : {&ends.losses, &ends.gradients})
    for (const Output& end : *all) fetches.emplace_back(end.node());
  std::vector<FeedType> feeds;
  const std::vector<TowerRecord>& towers = built.nodes().losses[0].towers_of(step.batch);
  for (std::size_t t = 0; t < towers.size(); ++t)
    add_feeds(towers[t], step.batch.rows[t], step.batch.begins[t], feeds);
  std::vector<Tensor> values = batch.tensors;
  for (const FeedType& zero : step.zero_feeds()) {
    feeds.push_back(zero);
    values.emplace_back(zero.shape, zero.where.dtype());
  }
  Session& session = built.session();
  CompiledStep& again = prepare_in_all(built, fetches, feeds);
  if (again.plan()->writes) return false;
  const AtRun same_random_numbers(session, run);
  again.run(values, {.watch = &check});
  return true;
}

// Then no row is to blame: the weights of the whole batch are 0.
bool divides_by_weights(const Node& node) {
  return &node.op() == &kDiv && &node.input(1).node().op() == &kBatchStatistics;
}

// What is known of an output that this process has computed.
BadValue describe(BuiltTraining& built, const Batch& batch, const BadOutput& bad) {
  const Node& node = *bad.node;
  BadValue found{.op = std::string(node.name()),
                 .kind = node.op().name,
                 .where = describe_with_forward(node),
                 .device = bad.device.str(),
                 .type = std::string(name_of(bad.type.dtype)),
                 .value = bad.value.value,
                 .tower = node.origin().call > 0 ? node.origin().replica : -1};
  if (const Node* const forward = node.origin().forward) found.of = forward->op().name;
  if (divides_by_weights(node))
    found.kind = kWeightedMean;
  else if (bad.row)
    note_row(built, batch, *bad.row, found);
  for (const Node* const stored : bad.storage) {
    if (found.input.empty()) found.input = bad_field(built, batch, *stored);
    if (!stored->is_variable() || !found.variable.empty()) continue;
    const Variable variable(const_cast<Node&>(*stored));
    const Tensor value = built.session().read(variable);
    if (!find_not_finite(value.dtype(), {value.raw(), value.bytes()})) continue;
    if (is_infinite_on_purpose(built, *stored)) continue;
    found.variable = variable.logical_name();
    found.state = true;
  }
  return found;
}

constexpr std::pair<std::string_view, std::string BadValue::*> kTexts[] = {
    {"op", &BadValue::op},         {"kind", &BadValue::kind},         {"where", &BadValue::where},
    {"of", &BadValue::of},         {"variable", &BadValue::variable}, {"input", &BadValue::input},
    {"device", &BadValue::device}, {"type", &BadValue::type},         {"value", &BadValue::value}};

std::string packed(const BadValue& bad) {
  JsonValue json = JsonValue::object();
  for (const auto& [name, text] : kTexts) json.set(name, bad.*text);
  return json.set("tower", bad.tower)
      .set("row", bad.row)
      .set("sample", bad.sample)
      .set("state", bad.state)
      .set("limit", bad.limit)
      .str();
}

BadValue unpacked(const std::string& text) {
  const JsonValue json = JsonValue::parse(text);
  BadValue bad;
  for (const auto& [name, member] : kTexts) bad.*member = json.at(name).text();
  bad.tower = static_cast<int>(json.at("tower").integer());
  bad.row = json.at("row").integer();
  bad.sample = json.at("sample").integer();
  bad.state = json.at("state").str() == "true";
  bad.limit = json.at("limit").number();
  return bad;
}

// What the processes have found, each in what it has computed: if any computed it from finite
// values of its own, that.
std::optional<BadValue> of_all(Processes* processes, const std::optional<BadValue>& own,
                               bool received) {
  const std::string text = own ? packed(*own) : "";
  std::string first = of_any_process(processes, received ? "" : text);
  if (first.empty()) first = of_any_process(processes, text);
  if (first.empty()) return {};
  return unpacked(first);
}

// Where what `check` has seen in these tensors comes from, as all processes agree. `range`: of
// gradients that may be too large; null: they are not finite.
std::optional<BadValue> origin_in(BuiltTraining& built, const Batch& batch,
                                  const OutputCheck& check, std::span<const Output> tensors,
                                  std::span<const Gradient> gradients,
                                  const GradientRange* range = nullptr) {
  const auto on_purpose = [&](const Node& node) { return is_infinite_on_purpose(built, node); };
  const std::optional<BadOutput> bad = check.origin_of(tensors, on_purpose);
  std::optional<BadValue> own;
  if (bad) own = describe(built, batch, *bad);
  if (own && range) own->limit = range->largest(bad->type.dtype);
  for (const Gradient& gradient : gradients)
    if (own && own->variable.empty() && check.origin_of({{gradient.value}}))
      own->variable = gradient.variable.logical_name();
  return of_all(built.processes(), own, bad && bad->received);
}

}  // namespace

std::string refused_gradients(const std::optional<BadValue>& bad, const TrainerOptions& options) {
  if (bad && bad->limit == 0) return "are not finite";
  if (bad) return "are too large";
  const bool is_clipped = options.clip_norm > 0 || options.clip_value > 0;
  return cat("are not finite, or so large that their ", is_clipped ? "sum is" : "squares are",
             " not");
}

std::string BadValue::text() const {
  std::string text = cat(value, limit > 0 ? cat(", which is beyond ", significant(limit), ",") : "",
                         " first appears in ", where);
  if (kind == kWeightedMean) text += ", which divides by 0, as no sample of the batch has a weight";
  if (!variable.empty())
    text += state ? cat(", whose variable '", variable, "' was not finite before the step")
                  : cat(", which makes the gradient of '", variable,
                        limit > 0 ? "' too large" : "' not finite");
  if (!input.empty()) text += cat(", whose input '", input, "' is not finite");
  if (row >= 0) text += cat(", in row ", row, " of the batch");
  if (sample >= 0) text += cat(" (training sample ", sample, ")");
  return text + (tower >= 0 ? cat(", on tower ", tower, " (", device, ")") : cat(", on ", device));
}

std::string BadValue::advice() const {
  if (state)
    return cat("look at the first value of '", variable,
               "' and at updates that made it so: ", less_growth());
  if (!input.empty()) return "fix this sample, or leave it out";
  if (limit > 0 && clipped) return kSmallerLoss;
  if (limit > 0) return cat(kSmallerLoss, ", or limit gradients (", the_option("clip_norm"), ")");
  const bool gradient = !of.empty();
  const auto known = std::ranges::find(kAdvice, gradient ? of : kind, &OpAdvice::kind);
  std::string text = known == std::end(kAdvice) ? less_growth()
                     : gradient                 ? known->gradient
                                                : known->forward;
  if (type == "f16")
    text += cat("; f16 has no numbers above 65504, and bf16 has the range of f32 (",
                the_option("precision"), ")");
  return text;
}

std::optional<BadValue> find_bad_value(BuiltTraining& built, const Batch& batch, std::size_t loss,
                                       std::int64_t step, std::uint64_t run) {
  const TrainedLoss& trained = built.nodes().losses[loss];
  if (trained.steps.empty()) return {};
  const StepNodes& nodes = trained.steps[batch.form];
  const Ends ends = ends_of(built, trained, nodes);
  OutputCheck check;
  if (!run_again(built, batch, nodes, run, ends, check)) return {};
  std::optional<BadValue> found = origin_in(built, batch, check, ends.losses, {});
  if (!found) found = origin_in(built, batch, check, ends.gradients, ends.by_variable);
  if (!found) {
    OutputCheck limited([&](DType dtype) { return nodes.range.largest(dtype); });
    if (!run_again(built, batch, nodes, run, ends, limited)) return {};
    found = origin_in(built, batch, limited, ends.gradients, ends.by_variable, &nodes.range);
    if (found) found->clipped = !nodes.range.squares;
  }
  if (found) found->step = step;
  return found;
}

}  // namespace belfry
