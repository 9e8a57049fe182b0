// Rows about what is computed.
#include <cmath>

#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/trainers/core/loss_scaling.h"
#include "belfry/trainers/core/option_rows_impl.h"
#include "belfry/trainers/options/option_fields.h"

namespace belfry {
namespace {

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

// Why a trainer that combines no gradients does not take an option; "" if it combines them.
std::string refuse_uncombined(std::string_view does, const TrainerFacts& kind) {
  return kind.combines
             ? ""
             : cat(" ", does, " combined gradients, and the trainer ", kind.name, kCombinesNone);
}

// A finite number >= 0; 0 leaves combined gradients as they are.
Option<TrainerOptions> bound_of_gradients(double TrainerOptions::*field, std::string does,
                                          OptionRow row) {
  auto option = number(
      field, "a finite number >= 0", [](double x) { return x >= 0; }, std::move(row));
  option.refusal = [=](const TrainerOptions& options, const OptionQuestion& asking) -> std::string {
    const double bound = options.*field;
    if (!(bound >= 0) || !std::isfinite(bound)) return " is no finite number >= 0";
    return bound == 0 ? "" : refuse_uncombined(does, asking.kind);
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
    return options.log_gradient_norms ? refuse_uncombined("is about", asking.kind) : "";
  };
  return option;
}

}  // namespace

Options<TrainerOptions> computing_options() {
  return {
      bound_of_gradients(
          &TrainerOptions::clip_norm, "bounds the norm of",
          {.name = "clip_norm",
           .unit = "X",
           .text = "scale combined gradients down if their joint norm is above X, before weight "
                   "decay; 0: do not",
           .otherwise = "0",
           .scope = Scope::kResults,
           .trains = true,
           .words = "the largest norm of gradients (clip_norm)",
           .elsewhere = {"max_grad_norm", "gradient_clip_val"}}),
      bound_of_gradients(
          &TrainerOptions::clip_value, "cuts off",
          {.name = "clip_value",
           .unit = "X",
           .text = "cut each element of combined gradients off at -X and X, before `clip_norm` "
                   "and weight decay; 0: do not",
           .otherwise = "0",
           .scope = Scope::kResults,
           .trains = true,
           .words = "the largest element of gradients (clip_value)",
           .elsewhere = {"clipvalue"}}),
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

std::string precision_refusal(Precision precision, std::span<const DeviceSpec> devices) {
  if (precision != Precision::kTf32) return "";
  for (const DeviceSpec& device : devices)
    if (!device.is_gpu())
      return cat("tf32 is how GPUs multiply f32, and ", device.short_str(),
                 " is none; use f32, or GPUs alone");
  return "";
}

}  // namespace belfry
