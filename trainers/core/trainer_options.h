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
#include "belfry/trainers/data/batches.h"
#include "belfry/trainers/optimizers/optimizer.h"

namespace belfry {

class Callback;

// Steps `first` to `last`, both of them, counted from 1.
struct StepRange {
  std::int64_t first = 0, last = -1;  // none
  bool contains(std::int64_t step) const { return first <= step && step <= last; }
};

// How the gradients of towers are combined, by trainers that do.
struct AggregationOptions {
  // An AllReduceSpec. BuiltTraining::options() has the one that "auto" chose.
  std::string allreduce = "collective";
  // An AllReduceSpec that has no use on one device, if one was asked for. More devices would
  // combine by it, so k_dependence() goes by it.
  std::string unused_allreduce = {};
  AutoOptions choice = {};     // how "auto" chooses
  int gradient_repacking = 0;  // parts of the GradientPacker; 0: none
  int small_tensors_kb = 0;    // the largest tensors that are packed, KiB; 0: none
  // The most MiB that are combined at once, unless gradients are packed; 0: no buckets. "auto"
  // chooses it, too.
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

// What ends a training whose loss is NaN or infinite.
enum class OnNonfinite {
  kStop,      // the step with this loss: Trainer::train() throws Diverged (divergence.h)
  kContinue,  // nothing: it goes on to its end
};

// All options of a trainer. Those of a part that the trainer uses are a member.
struct TrainerOptions {
  ModelFunction model;
  Optimizer optimizer;
  std::vector<DeviceSpec> devices = {DeviceSpec::local("CPU", 0)};  // one tower each
  bool parameters_on_cpu = false;  // on /cpu:0, by trainers that would spread them over `devices`
  AggregationOptions aggregation = {};
  std::string async = "ordered";  // of the trainer "async": "ordered" or "free"
  int batch_size = 32;            // samples per tower and step, on average
  // The global batch is computed in so many parts, as many on each device. Any core may compute
  // one. The bits of results depend on this number, not on the number of cores. 0 stands for
  // default_shards(), or the next multiple of the number of devices; or for one per device, if they
  // are GPUs or run free. BuiltTraining::options() has the number.
  int shards = 0;
  BatchOptions batches = {};  // how towers share a batch, and how many batches a step takes
  int data_workers = 1;       // threads that decode and gather a batch; results do not depend on it
  int epochs = 1;
  std::int64_t max_steps = 0;  // stop after so many steps even inside an epoch; 0: no limit
  std::uint64_t seed = 1;      // for initial values, random ops and the order of the data
  // The precision of what models compute. Variables are f32. f16 scales the loss.
  Precision precision = Precision::kF32;
  LossScaleOptions loss_scale = {};
  // The largest norm of all gradients together, once they are combined and before the optimizer
  // takes them: larger ones are scaled down. 0: any.
  double clip_norm = 0;
  // The largest size of each element of a gradient, once gradients are combined and before the norm
  // is computed: min(max(g, -clip_value), clip_value). 0: any.
  double clip_value = 0;
  // Each step gives its gradients to TrainingRecord::gradients(). So none is fused with its update.
  bool keeps_gradients = false;
  // Name scopes whose activations the backward pass computes again (GradientOptions::recompute).
  std::vector<std::string> recompute = {};
  OnNonfinite on_nonfinite = OnNonfinite::kStop;
  bool warn_of_loss = true;  // if training goes on after a loss that is NaN or infinite
  // Takes the trace of each step of `traced`, while Trainer::steps() is the number of steps before
  // it. If towers run free, it takes tower 0's trace of the first of these steps. If a step takes
  // several batches, it takes the trace of the last one.
  std::function<void(const Trace&)> on_trace = {};
  std::optional<StepRange> traced = {};  // by default the second of the run, or the only one
  // Shows a line to people; none: nobody looks. A program prints it in its first process.
  std::function<void(std::string_view)> say = {};
  std::vector<std::shared_ptr<Callback>> callbacks = {};  // none null; called by phase
  // Options of the trainer's session, which has `devices`, whatever device_count says. A dry run
  // plans for devices that need not exist: it reads no data, and train() throws.
  SessionOptions session = {};
};

}  // namespace belfry
