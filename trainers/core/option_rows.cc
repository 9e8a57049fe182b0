#include "belfry/trainers/core/option_rows.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "belfry/allreduce/all_reduce_spec.h"
#include "belfry/allreduce/small_tensors.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/trainers/core/loss_scaling.h"
#include "belfry/trainers/core/partitioned_update.h"
#include "belfry/trainers/core/trainer_kinds.h"
#include "belfry/trainers/core/training_sizes.h"
#include "belfry/trainers/data/batch_rows.h"
#include "belfry/trainers/options/option_fields.h"
#include "belfry/trainers/util/device_list.h"
#include "belfry/trainers/util/option_error.h"

namespace belfry {
namespace {

constexpr int kMostOfOption = std::numeric_limits<int>::max();
constexpr std::int64_t kMostStepsOfRun = std::numeric_limits<std::int64_t>::max();

constexpr auto aggregation_in = [](auto& options) -> auto& { return options.aggregation; };
constexpr auto session_in = [](auto& options) -> auto& { return options.session; };

Option<TrainerOptions> of_aggregation(const Option<AggregationOptions>& option) {
  return of_part<TrainerOptions>(option, aggregation_in);
}

Option<TrainerOptions> of_session(const Option<SessionOptions>& option) {
  return of_part<TrainerOptions>(option, session_in);
}

Option<TrainerOptions> allreduce_option() {
  auto option = of_aggregation(any_text(
      &AggregationOptions::allreduce,
      {.name = "allreduce",
       .unit = "SPEC",
       .text = cat(
           join(strategy_names(), "|"),
           "|auto. parameter_server takes only colocate, replicated all others, and other trainers "
           "none. auto takes "
           "the one that is predicted to be fastest for this model on the machine of `links`. "
           "NAME#N cuts each tensor "
           "into N chunks, at most ",
           kMostChunks,
           " (ring, shuffle, collective). NAME:SIZE:NAME chooses by size: the first takes "
           "tensors of up to SIZE bytes (K, M, G, T: powers of 1024), the second larger ones"),
       .otherwise = "collective; of parameter_server: colocate",
       .combines = true,
       .chosen = true,
       .reported = true,
       .compared = false}));
  option.value = [](const TrainerOptions& options) {
    const std::string& spec = options.aggregation.allreduce;
    return spec.empty() ? JsonValue() : JsonValue(spec);
  };
  return option;
}

Option<TrainerOptions> parameter_device_option() {
  return one_of_two(
      &TrainerOptions::parameters_on_cpu, {"spread", false}, {"cpu", true},
      {.name = "parameter_device",
       .unit = "spread|cpu",
       .text = "where `trainer=parameter_server` and async keep variables: spread over the "
               "devices, or all on cpu:0",
       .otherwise = "spread",
       .trains = true,
       .chosen = true,
       .compared = false,
       .taken = [](const TrainerFacts& kind) { return kind.spreads_variables; },
       .not_taken =
           [](const OptionQuestion& asking) {
             return cat(" has no use for ", asking.trainer,
                        ", which does not spread variables; say ",
                        asking.other("trainer=parameter_server"));
           }});
}

bool can_pack(const TrainerFacts& kind) { return kind.packs_gradients; }

// The answer of a trainer that does not lay gradients end to end.
std::string packs_none(const OptionQuestion& asking) {
  return cat(" lays gradients end to end, which ", asking.trainer,
             " does not do; leave it out, or use ", asking.other("trainer=replicated"));
}

Option<AggregationOptions> gradient_repacking_option() {
  return whole_number(
      &AggregationOptions::gradient_repacking, 0, kMostOfOption,
      {.name = "gradient_repacking",
       .unit = "N",
       .text = "pack all gradients into N parts before they are combined; 0: do not",
       .otherwise = "0",
       .combines = true,
       .chosen = true,
       .reported = true,
       .compared = false,
       .taken = can_pack,
       .not_taken = packs_none});
}

Option<AggregationOptions> small_tensors_kb_option() {
  auto option = whole_number(
      &AggregationOptions::small_tensors_kb, 0, kMostOfOption,
      {.name = "small_tensors_kb",
       .unit = "N",
       .text = cat("pack up to ", kMostInSmallPack,
                   " successive f32 gradients, of at most N KiB each, into one tensor; 0: do not"),
       .otherwise = "0",
       .combines = true,
       .chosen = true,
       .reported = true,
       .compared = false,
       .taken = can_pack,
       .not_taken = packs_none});
  option.refusal_if_given = [](const AggregationOptions& how, const OptionQuestion& asking) {
    return how.small_tensors_kb == 0 || how.gradient_repacking == 0
               ? ""
               : cat(" has no use beside ", asking.written("gradient_repacking"),
                     ", which packs all gradients; leave one of them out");
  };
  return option;
}

Option<AggregationOptions> bucket_mb_option() {
  auto option = number(
      &AggregationOptions::bucket_mb, cat("a number between 0 and ", kMostBucketMb),
      [](double x) { return x >= 0 && x <= kMostBucketMb; },
      {.name = "bucket_mb",
       .unit = "X",
       .text = "combine gradients in buckets of at most X MiB, the last ones first, while others "
               "are being computed; 0: each by itself",
       .otherwise = cat(kDefaultBucketMb,
                        ", up to 32 with more than 16 processes; several processes take an eighth "
                        "of the gradients if that is less, but at least 0.25 for each of "
                        "them (two: 0.25); 0 with `gradient_repacking`; what is fastest with "
                        "`allreduce=auto`"),
       .combines = true,
       .chosen = true,
       .reported = true,
       .compared = false,
       .taken = [](const TrainerFacts& kind) { return kind.makes_buckets; },
       .not_taken =
           [](const OptionQuestion& asking) {
             return cat(" has no use for ", asking.trainer,
                        ", which makes no buckets; leave it out");
           }});
  option.value = [](const AggregationOptions& how) {
    return how.allreduce == "auto" ? JsonValue() : JsonValue(how.bucket_mb);
  };
  option.refusal_if_given = [](const AggregationOptions& how, const OptionQuestion& asking) {
    return how.bucket_mb == 0 || how.gradient_repacking == 0
               ? ""
               : cat(" and ", asking.written("gradient_repacking"),
                     " cut the gradients in two different ways; leave one of them out");
  };
  return option;
}

Option<TrainerOptions> zero_stage_option() {
  auto option = of_aggregation(parsed(
      &AggregationOptions::zero_stage,
      [](const WrittenFlag& flag) { return int{read_switch(flag.written, flag.value)}; },
      {.name = "zero_stage",
       .unit = "0|1",
       .text = "1 (ZeRO-1): each of several processes keeps the optimizer's slots for a part of "
               "every variable, and updates that part; needs `allreduce=collective`; the same bits",
       .otherwise = "0",
       .trains = true,
       .chosen = true,
       .reported = true,
       .older = {"partition_updates"},
       .taken = [](const TrainerFacts& kind) { return kind.takes_partition; }},
      [](int stage) { return stage; }));
  option.refusal = [](const TrainerOptions& options, const OptionQuestion& asking) -> std::string {
    if (options.aggregation.zero_stage == 0) return "";
    if (!asking.kind.takes_partition)
      return cat(" is of the trainer replicated, and this one is ", asking.kind.name,
                 "; leave it out");
    return partition_refusal(options);
  };
  return option;
}

Option<TrainerOptions> fuse_option() {
  return of_session(on_off(
      &SessionOptions::fuse,
      {.name = "fuse",
       .unit = "0|1",
       .text =
           "1: fuse norms with the sums and ReLU around them, biases with the activations after "
           "them, the gradients of these, and sums of gradients with their updates, each into one "
           "pass over memory. On GPUs one launch makes several updates; on hosts the backward pass "
           "recomputes batch norm with ReLU. The same bits",
       .otherwise = "1",
       .chosen = true,
       .reported = true,
       .compared = false}));
}

Option<TrainerOptions> share_replicas_option() {
  return of_session(
      on_off(&SessionOptions::share_replicas,
             {.name = "share_replicas",
              .unit = "0|1",
              .text = "one storage for equal replicas in one memory space; the same bits",
              .otherwise = "1",
              .combines = true,
              .chosen = true,
              .reported = true,
              .compared = false,
              .taken = [](const TrainerFacts& kind) { return kind.replicates_variables; },
              .not_taken =
                  [](const OptionQuestion& asking) {
                    return cat(" has no use for ", asking.trainer,
                               ", which has no replicas; leave it out");
                  }}));
}

bool is_free_running(const TrainerOptions& options, const TrainerFacts& kind) {
  return kind.takes_async && options.async == "free";
}

Option<TrainerOptions> async_option() {
  auto option = one_of_two(
      &TrainerOptions::async, {"ordered", "ordered"}, {"free", "free"},
      {.name = "async",
       .unit = "ordered|free",
       .text = "how `trainer=async` updates. ordered: all gradients are taken at the same values, "
               "then each tower updates in turn; free: each tower has its own thread and waits for "
               "no other, so no two runs have the same bits",
       .otherwise = "ordered",
       .trains = true,
       .chosen = true,
       .reported = true,
       .compared = false,
       .taken = [](const TrainerFacts& kind) { return kind.takes_async; },
       .not_taken =
           [](const OptionQuestion& asking) {
             return cat(" needs ", asking.other("trainer=async"), ", not ", asking.trainer);
           }});
  option.refusal = [](const TrainerOptions& options, const OptionQuestion& asking) {
    return !is_free_running(options, asking.kind) || !any_gpu(options.devices)
               ? ""
               : cat(" with ", asking.written("devices"),
                     ": towers that do not wait for each other run on CPUs alone; use cpu:N, or ",
                     asking.other("async=ordered"));
  };
  return option;
}

Option<TrainerOptions> shards_option() {
  auto option = whole_number(
      &TrainerOptions::shards, 1, kMostOfOption,
      {.name = "shards",
       .unit = "V",
       .text = "cut the global batch into V parts, equally many on each CPU device. Any core may "
               "compute a part, and V alone decides the bits of results",
       .otherwise = "by model and global batch",
       .noted = false,
       .reported = true});
  option.refusal = [](const TrainerOptions& options, const OptionQuestion& asking) {
    return shards_refusal(options, asking.kind, asking.processes);
  };
  return option;
}

std::vector<std::string> parse_scopes(const WrittenFlag& list) {
  std::vector<std::string> scopes;
  for (const std::string_view scope : split(list.value, ',')) {
    require<FlagError>(!scope.empty() && !scope.starts_with('/') && !scope.ends_with('/'),
                       list.written, ": '", shown(scope),
                       "' is no name scope; write names with one comma between and no slash around "
                       "them, such as fc0,block*");
    scopes.emplace_back(scope);
  }
  return scopes;
}

Option<TrainerOptions> precision_option() {
  auto option = parsed(
      &TrainerOptions::precision, find_precision,
      {.name = "precision",
       .unit = "TYPE",
       .text =
           cat(join(precision_names(), "|"),
               ": the type that the model computes in; variables are f32. tf32 works only on GPUs; "
               "bf16 and f16 are slow on CPUs; f16 scales the loss, and skips updates that are not "
               "finite"),
       .otherwise = "f32",
       .scope = Scope::kResults,
       .words = "the precision",
       .elsewhere = {"amp", "dtype"}},
      [](Precision type) { return name_of(type); });
  option.refusal = [](const TrainerOptions& options, const OptionQuestion& asking) -> std::string {
    const std::string why = precision_refusal(options.precision, options.devices);
    if (!why.empty()) return ": " + why;
    if (options.precision != Precision::kF16) return "";
    if (!asking.kind.linear)
      return cat(" scales the loss, and the trainer ", asking.kind.name,
                 " combines gradients in a way that is not linear; use ",
                 asking.other("precision=bf16"), ", which needs no scale");
    if (is_free_running(options, asking.kind))
      return cat(" scales the loss, and with ", asking.written("async"),
                 " towers agree on no scale; use ", asking.other("precision=bf16"),
                 ", which needs none, or ", asking.other("async=ordered"));
    if (options.batches.gradient_accumulation_steps > 1)
      return cat(" with ", asking.written("gradient_accumulation_steps"),
                 ": a batch whose gradients are not finite would have to be left out of the mean; "
                 "use bf16, which needs no loss scale");
    const std::string without = optimizer_without_factor(options);
    return without.empty() ? ""
                           : cat(" scales the loss, and the optimizer ", without,
                                 " does not take the scale out of gradients "
                                 "(Optimizer::Rule::takes_loss_scale); bf16 needs none");
  };
  return option;
}

Option<TrainerOptions> clip_norm_option() {
  auto option =
      number(&TrainerOptions::clip_norm, "a finite number >= 0", [](double x) { return x >= 0; },
             {.name = "clip_norm",
              .unit = "X",
              .text = "scale combined gradients down if their joint norm is above X, before weight "
                      "decay; 0: do not",
              .otherwise = "0",
              .scope = Scope::kResults,
              .trains = true,
              .words = "the largest norm of gradients (clip_norm)",
              .elsewhere = {"max_grad_norm", "gradient_clip_val"}});
  option.refusal = [](const TrainerOptions& options, const OptionQuestion& asking) -> std::string {
    if (!(options.clip_norm >= 0) || !std::isfinite(options.clip_norm))
      return " is no finite number >= 0";
    return options.clip_norm == 0 || asking.kind.combines
               ? ""
               : cat(" bounds the norm of combined gradients, and the trainer ", asking.kind.name,
                     kCombinesNone);
  };
  return option;
}

Option<TrainerOptions> gradient_norms_option() {
  auto option = on_off(
      &TrainerOptions::log_gradient_norms,
      {.name = "log_gradient_norms",
       .text = "record the norm of the combined gradients of every step, before they are "
               "clipped: gradient_norm of all together, and gradient_norm/NAME of each variable; "
               "no gradient is then fused with its update",
       .otherwise = "false",
       .kept = true,
       .trains = true,
       .benchmarks = false,
       .compared = false});
  option.refusal = [](const TrainerOptions& options, const OptionQuestion& asking) -> std::string {
    return !options.log_gradient_norms || asking.kind.combines
               ? ""
               : cat(" is about combined gradients, and the trainer ", asking.kind.name,
                     kCombinesNone);
  };
  return option;
}

Option<TrainerOptions> clip_value_option() {
  auto option =
      number(&TrainerOptions::clip_value, "a finite number >= 0", [](double x) { return x >= 0; },
             {.name = "clip_value",
              .unit = "X",
              .text = "cut each element of combined gradients off at -X and X, before `clip_norm` "
                      "and weight decay; 0: do not",
              .otherwise = "0",
              .scope = Scope::kResults,
              .trains = true,
              .words = "the largest element of gradients (clip_value)",
              .elsewhere = {"clipvalue"}});
  option.refusal = [](const TrainerOptions& options, const OptionQuestion& asking) -> std::string {
    if (!(options.clip_value >= 0) || !std::isfinite(options.clip_value))
      return " is no finite number >= 0";
    return options.clip_value == 0 || asking.kind.combines
               ? ""
               : cat(" cuts off combined gradients, and the trainer ", asking.kind.name,
                     kCombinesNone);
  };
  return option;
}

Option<TrainerOptions> on_nonfinite_option() {
  auto option = one_of(
      &TrainerOptions::on_nonfinite,
      {{"stop", OnNonfinite::kStop},
       {"skip", OnNonfinite::kSkip},
       {"restore", OnNonfinite::kRestore},
       {"continue", OnNonfinite::kContinue}},
      {.name = "on_nonfinite",
       .unit = "stop|skip|restore|continue",
       .text = "what to do when a loss or its gradient is NaN or infinite, so that it updates "
               "nothing: end with an error, take the next batch, or take it with the variables of "
               "the newest checkpoint; continue: check nothing, train on, and end with an error "
               "if the loss still is",
       .otherwise = "stop",
       .kept = true,
       .trains = true,
       .compared = false});
  option.refusal = [](const TrainerOptions& options, const OptionQuestion& asking) -> std::string {
    if (options.on_nonfinite != OnNonfinite::kSkip && options.on_nonfinite != OnNonfinite::kRestore)
      return "";
    if (is_free_running(options, asking.kind))
      return cat(" with ", asking.written("async"),
                 ": towers do not wait to hear whether all gradients are finite; use ",
                 asking.other("async=ordered"), ", or ", asking.other("on_nonfinite=stop"));
    const std::string without = optimizer_without_factor(options);
    return without.empty() ? ""
                           : cat(" leaves updates out, and the optimizer ", without,
                                 " does not say that it heeds Update::factor "
                                 "(Optimizer::Rule::takes_loss_scale)");
  };
  return option;
}

Option<TrainerOptions> restores_option() {
  return whole_number(&TrainerOptions::on_nonfinite_restores, 1, 1'000'000,
                      {.name = "on_nonfinite_restores",
                       .unit = "N",
                       .text = "restore at most N times in a call of the program, then stop "
                               "(`on_nonfinite`)",
                       .otherwise = "3",
                       .kept = true,
                       .trains = true,
                       .benchmarks = false,
                       .compared = false});
}

// How errors name an option with its value: "async=free".
std::string option_with_value(const Options<TrainerOptions>& rows, const TrainerOptions& options,
                              std::string_view name) {
  const Option<TrainerOptions>* const row = find_option(rows, name);
  const std::string named = option_name(name);
  return row && row->value ? cat(named, "=", text_of(row->value(options))) : named;
}

}  // namespace

Options<TrainerOptions> combining_options() {
  return {allreduce_option(),
          parameter_device_option(),
          of_aggregation(gradient_repacking_option()),
          of_aggregation(small_tensors_kb_option()),
          of_aggregation(bucket_mb_option()),
          zero_stage_option(),
          fuse_option(),
          share_replicas_option(),
          async_option()};
}

Options<TrainerOptions> batch_options() {
  Options<TrainerOptions> rows{whole_number(&TrainerOptions::batch_size, 1, kMostOfOption,
                                            {.name = "batch_size",
                                             .unit = "N",
                                             .text = "examples per device and step",
                                             .noted = false,
                                             .reported = true,
                                             .elsewhere = {"bs", "batch"}}),
                               shards_option()};
  add_part(
      rows, batch_option_rows(), "", [](auto& options) -> auto& { return options.batches; });
  return rows;
}

Options<TrainerOptions> length_options() {
  return {whole_number(&TrainerOptions::epochs, 1, kMostOfOption,
                       {.name = "epochs",
                        .unit = "N",
                        .text = "passes over the training data",
                        .trains = true,
                        .benchmarks = false,
                        .compared = false,
                        .elsewhere = {"max_epochs"}}),
          whole_number(&TrainerOptions::max_steps, 0, kMostStepsOfRun,
                       {.name = "max_steps",
                        .unit = "N",
                        .text = "stop after N steps at the latest; 0: no limit",
                        .otherwise = "0",
                        .trains = true,
                        .benchmarks = false,
                        .compared = false,
                        .elsewhere = {"steps", "num_steps"}}),
          on_nonfinite_option(), restores_option()};
}

Options<TrainerOptions> computing_options() {
  return {
      clip_norm_option(),
      clip_value_option(),
      gradient_norms_option(),
      precision_option(),
      parsed(&TrainerOptions::recompute, parse_scopes,
             {.name = "recompute",
              .unit = "SCOPES",
              .text = "name scopes, separated by commas, whose activations the backward pass "
                      "recomputes instead of keeping them: the same bits in less memory; "
                      "block* is each scope whose name begins with block, and */fc* what begins "
                      "with fc in any scope",
              .otherwise = "none",
              .trains = true,
              .noted = false,
              .reported = true},
             [](const std::vector<std::string>& scopes) { return join(scopes, ","); }),
      whole_number(
          &TrainerOptions::seed, 0, std::numeric_limits<std::uint64_t>::max(),
          {.name = "seed",
           .unit = "N",
           .text = "seed of initial values, the order of the data, dropout and noise, >= 0",
           .otherwise = "1",
           .scope = Scope::kResults,
           .words = "the seed"})};
}

Options<TrainerOptions> data_options() {
  return {whole_number(&TrainerOptions::data_workers, 1, kMostThreads,
                       {.name = "data_workers",
                        .unit = "N",
                        .text = "threads that decode and augment the samples of a batch, in "
                                "addition to `threads`; results do not depend on N",
                        .otherwise = "1",
                        .benchmarks = false,
                        .elsewhere = {"workers", "num_workers"}})};
}

Options<TrainerOptions> execution_options() {
  return {of_session(whole_number(&SessionOptions::threads, 0, kMostThreads,
                                  {.name = "threads",
                                   .unit = "N",
                                   .text = cat("worker threads, the main thread included, at most ",
                                               kMostThreads, "; 0: all usable cores"),
                                   .otherwise = "0",
                                   .own_process = true})),
          of_session(on_off(&SessionOptions::capture,
                            {.name = "capture",
                             .unit = "0|1",
                             .text = "1: on GPUs, replay the work of a step as CUDA graphs; 0: "
                                     "launch kernel by kernel, with the same bits",
                             .otherwise = "1",
                             .reported = true}))};
}

const Options<TrainerOptions>& trainer_option_rows() {
  static const Options<TrainerOptions> all = [] {
    Options<TrainerOptions> rows;
    for (const auto& make : {combining_options, batch_options, length_options, computing_options,
                             data_options, execution_options})
      for (Option<TrainerOptions>& row : make()) rows.push_back(std::move(row));
    return rows;
  }();
  return all;
}

Options<TrainerOptions> own_option_rows(const TrainerKind& kind) {
  Options<TrainerOptions> rows;
  for (const OwnOption& own : kind.options)
    rows.push_back(own_option<TrainerOptions>(own, whose_option(kind)));
  return rows;
}

bool is_in_fingerprint(const OptionRow& row) { return row.scope == Scope::kResults; }

void check_rows(const TrainerOptions& options, const TrainerKind& kind) {
  const Options<TrainerOptions>& rows = trainer_option_rows();
  const auto written = [&](std::string_view name) {
    return option_with_value(rows, options, name);
  };
  const OptionQuestion asking{.kind = kind.facts(),
                              .processes = processes_of(options),
                              .trainer = cat("the trainer ", kind.name),
                              .written = written};
  for (const Option<TrainerOptions>& row : rows)
    if (const std::string why = row.refusal ? row.refusal(options, asking) : ""; !why.empty())
      throw OptionError(about_option(row.name, written(row.name), why));
}

std::string precision_refusal(Precision precision, std::span<const DeviceSpec> devices) {
  if (precision != Precision::kTf32) return "";
  for (const DeviceSpec& device : devices)
    if (!device.is_gpu())
      return cat("tf32 is how GPUs multiply f32, and ", device.short_str(),
                 " is none; use f32, or GPUs alone");
  return "";
}

}  // namespace belfry
