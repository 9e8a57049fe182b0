// The options of a trainer. option_rows.h has their rows.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "belfry/framework/device/session_options.h"
#include "belfry/framework/graph/device_spec.h"
#include "belfry/framework/trace/trace.h"
#include "belfry/ops/precision.h"
#include "belfry/trainers/core/auto_options.h"
#include "belfry/trainers/core/model.h"
#include "belfry/trainers/core/trained_losses.h"
#include "belfry/trainers/data/batches.h"
#include "belfry/trainers/optimizers/optimizer.h"

namespace belfry {

class Callback;
class Dataset;

// Steps `first` to `last`, both of them, counted from 1.
struct StepRange {
  std::int64_t first = 0, last = -1;  // none
  bool contains(std::int64_t step) const { return first <= step && step <= last; }
};

// How the gradients of towers are combined, by trainers that do.
struct AggregationOptions {
  // An AllReduceSpec. BuiltTraining::options() has the one that "auto" chose.
  std::string allreduce = "collective";
  // The requested AllReduceSpec, if it is unused because there is only one device. k_dependence()
  // considers it, because more devices would use it.
  std::string unused_allreduce = {};
  AutoOptions choice = {};     // how "auto" chooses
  int gradient_repacking = 0;  // parts of the GradientPacker; 0: none
  int small_tensors_kb = 0;    // the largest tensors that are packed, KiB; 0: none
  // The size of buckets, in MiB, unless gradients are packed; 0: no buckets. "auto" chooses it,
  // too. Several processes take an eighth of the gradients if that is less, unless choice.buckets
  // names a single size, or zero_stage is 1. BuiltTraining::options() has the size that is used.
  double bucket_mb = 0;
  // 1: each of several processes keeps the slots of a part of every variable, and updates that part
  // (ZeRO-1). The bits are the same. A lone process updates whole variables. 0: all update all.
  int zero_stage = 0;
};

// How the precision f16 scales the loss (ops/loss_scale.h).
struct LossScaleOptions {
  double initial = 32768;
  std::int64_t growth_steps = 1000;
};

// A validation set in addition to the test data.
struct ValidationSet {
  std::string name;               // its metrics are "validation_<name>_loss" and so on
  const Dataset* data = nullptr;  // borrowed
};

// What is shown as histograms, and when (runs/tensorboard.h).
struct HistogramOptions {
  std::int64_t every = 0;  // steps; 0: never
  // Names of trainable variables, such as "fc0/W"; of combined gradients, "gradients/fc0/W"; and of
  // activations, "activations/fc0": the outputs of tower 0's layers, as a summary of the model
  // lists them. Or scopes of names, such as "gradients". A star stands for any characters of a
  // variable, gradient or layer.
  std::vector<std::string> patterns = {"*"};
};

// What happens when the loss, a gradient or a moment of a batch norm is NaN or infinite. Under all
// but kContinue such a step updates nothing: variables, slots and averages keep their bits. With
// f16, whose loss scale skips steps itself, only a loss counts.
enum class OnNonfinite {
  kStop,      // after this step, Trainer::train() throws Diverged (divergence.h)
  kSkip,      // the training continues with the next batch
  kRestore,   // the same, from the variables of the newest checkpoint of the run
  kContinue,  // nothing is checked, and the training continues to its end
};

// All options of a trainer. The options of a part that it uses, such as its session, are one
// member.
struct TrainerOptions {
  ModelFunction model;
  Optimizer optimizer = {};  // of the loss; none if there are several
  // Several losses, which the tower function names. A step trains them in turns on its batch, in
  // this order, each by its own optimizer and variables: a run per loss, which sees what the runs
  // before it have changed. Random ops give the same numbers in all runs of a step.
  std::vector<LossOptions> losses = {};
  std::vector<DeviceSpec> devices = {DeviceSpec::local("CPU", 0)};  // one tower each
  bool parameters_on_cpu = false;  // on /cpu:0, by trainers that would spread them over `devices`
  AggregationOptions aggregation = {};
  std::string async = "ordered";  // of the trainer "async": "ordered" or "free"
  int batch_size = 32;            // samples per tower and step, on average
  // The number of parts in which the global batch is computed, equally many on each device. Any
  // core may compute one. The bits of results depend on this number, not on the number of cores. 0:
  // one per device on GPUs and for free-running towers; otherwise default_shards(), raised to a
  // multiple of the number of devices. BuiltTraining::options() has the resulting number.
  int shards = 0;
  BatchOptions batches = {};  // how towers share a batch, and how many batches a step takes
  // Threads that decode and gather batches; 0: the training thread does. Changes no result.
  int data_workers = 1;
  int epochs = 1;
  std::int64_t max_steps = 0;  // stop after this many steps, even inside an epoch; 0: no limit
  std::uint64_t seed = 1;      // for initial values, random ops and the order of the data
  // The type in which the model computes. Variables are f32. f16 scales the loss.
  Precision precision = Precision::kF32;
  LossScaleOptions loss_scale = {};
  // Combined gradients whose joint norm is larger are scaled down to this norm, before the
  // optimizer takes them. 0: no limit.
  double clip_norm = 0;
  // The largest size of each element of a gradient, once gradients are combined and before the norm
  // is computed: min(max(g, -clip_value), clip_value). 0: no limit.
  double clip_value = 0;
  // Computes the norm of each combined gradient, and of all together, in each step
  // (TrainingRecord::gradient_norms()). Then no gradient is fused with its update.
  bool log_gradient_norms = false;
  // Makes each step's combined gradients available as TrainingRecord::gradients(). Then none is
  // fused with its update.
  bool keeps_gradients = false;
  // Makes the gradients of each tower, before they are combined, available as
  // TrainingRecord::contributions() after each step whose number, from 1, is a multiple of one of
  // these.
  std::vector<std::int64_t> contributions_every = {};
  // Hashes what each op of the towers computes, in each step whose number is a multiple of this
  // (TrainingRecord::op_hashes()); 0: never.
  std::int64_t op_hashes_every = 0;
  HistogramOptions histograms = {};
  // Name scopes whose activations the backward pass computes again (GradientOptions::recompute).
  std::vector<std::string> recompute = {};
  OnNonfinite on_nonfinite = OnNonfinite::kStop;
  int on_nonfinite_restores = 3;  // for kRestore: at most so many, then as kStop
  bool warn_of_loss = true;       // if training continues after a loss that is NaN or infinite
  // Receives the trace of each step in `traced`. At that time, Trainer::steps() is the number of
  // steps before it. With free-running towers it receives only tower 0's trace of the first such
  // step. If a step takes several batches, it receives the trace of the last one.
  std::function<void(const Trace&)> on_trace = {};
  std::optional<StepRange> traced = {};  // by default the second of the run, or the only one
  // Prints a line for people; empty: nothing is printed. In programs only the first process prints.
  std::function<void(std::string_view)> say = {};
  // Builds no gradients, slots and steps, but only towers that predict, on all `devices`: train()
  // evaluates, and ends.
  bool evaluates_only = false;
  // Evaluated as the test data are, and after them (callbacks/evaluation.h).
  std::vector<ValidationSet> validation = {};
  std::vector<std::shared_ptr<Callback>> callbacks = {};  // none null; called by phase
  // Options of the trainer's session, which has `devices`, whatever device_count says. A dry run
  // plans for devices that need not exist: it reads no data, and train() throws.
  SessionOptions session = {};

  // Those of the losses, or `optimizer` if there is one.
  std::vector<Optimizer> optimizers() const;
  // The only optimizer, or that of the first loss.
  const Optimizer& first_optimizer() const {
    return losses.empty() ? optimizer : losses[0].optimizer;
  }
};

}  // namespace belfry
