// Rows about combining gradients.
#include "belfry/allreduce/all_reduce_spec.h"
#include "belfry/allreduce/small_tensors.h"
#include "belfry/framework/base/text.h"
#include "belfry/trainers/core/option_rows_impl.h"
#include "belfry/trainers/core/partitioned_update.h"
#include "belfry/trainers/options/option_fields.h"
#include "belfry/trainers/util/device_list.h"

namespace belfry {
namespace {

Option<TrainerOptions> allreduce_option() {
  auto option = of_aggregation(any_text(
      &AggregationOptions::allreduce,
      {.name = "allreduce",
       .unit = "SPEC",
       .text = cat(
           join(strategy_names(), "|"),
           "|auto. parameter_server takes only colocate, replicated all others, and other trainers "
           "none. auto takes "
           "the one that is predicted to be fastest for this model on the machine of `links`, or "
           "without it the default. "
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
       .otherwise =
           cat(kDefaultBucketMb,
               ", up to 32 with more than 16 processes; several processes take an eighth "
               "of the gradients if that is less, but at least 0.25 for each of "
               "them (two hosts of one process each, on CPUs: 0.25 in all), and with `zero_stage` "
               "as one process; 0 with `gradient_repacking`; what is fastest with "
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
           "recomputes batch norm with ReLU. The same bits, but for some 16-bit products on GPUs "
           "(docs/numerics.md)",
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

}  // namespace belfry
