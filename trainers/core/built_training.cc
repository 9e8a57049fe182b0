#include "belfry/trainers/core/built_training.h"

#include <algorithm>
#include <span>
#include <utility>

#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/trainers/core/callbacks.h"
#include "belfry/trainers/core/default_shards.h"
#include "belfry/trainers/core/partitioned_update.h"
#include "belfry/trainers/core/trainer_checks.h"
#include "belfry/trainers/core/trainer_kinds.h"
#include "belfry/trainers/core/training_sizes.h"
#include "belfry/trainers/core/watched_tensors.h"
#include "belfry/trainers/data/prefetch.h"
#include "belfry/trainers/options/option.h"
#include "belfry/trainers/util/device_list.h"

namespace belfry {
namespace {

// The options, such that the plans of all processes are alike.
TrainerOptions with_equal_plans(TrainerOptions options) {
  options.batches.feeds_every_tower = processes_of(options) > 1;
  return options;
}

// The number of samples that the plan of batches is made for.
std::int64_t samples_of(const TrainerOptions& options, const Dataset& train) {
  // A dry run plans one step, whatever the data.
  if (options.session.dry_run) return samples_of_step(options, processes_of(options));
  return checked_size(train, "training data");
}

// A dry run reads no data, and plans the longest samples.
const LengthBuckets* buckets_of(const TrainerOptions& options, const Dataset& train) {
  return options.session.dry_run ? nullptr : train.buckets();
}

std::vector<std::uint8_t> buckets_of_samples(const TrainerOptions& options, const Dataset& train) {
  const LengthBuckets* const buckets = buckets_of(options, train);
  return buckets ? buckets->of_samples : std::vector<std::uint8_t>();
}

}  // namespace

BuiltTraining::BuiltTraining(const TrainerKind& kind, TrainerOptions options, const Dataset& train,
                             const Dataset* test)
    : kind_(kind),
      options_(with_equal_plans(std::move(options))),
      train_(train),
      test_(test),
      batches_(samples_of(options_, train), towers_of(options_, processes_of(options_)),
               options_.batch_size, options_.seed, options_.batches,
               buckets_of_samples(options_, train)),
      graph_(options_.seed, process_place(options_.session)) {
  check_options(options_, kind);
  check_data(train, test, options_.session.dry_run);
  if (train.is_stream()) check_stream(options_, kind);
  check_validation(train, options_.validation, options_.session.dry_run);
  std::ranges::stable_sort(options_.callbacks, {}, [](const auto& c) { return c->phase(); });
  options_.session.device_count = device_count(options_.devices);
  for (DeviceSpec& device : options_.devices) device = device.of_process(graph_.process());
  const std::vector<Dataset::Field> fields = train.signature();
  const auto choose = [&](const GradientTable& gradients) {
    if (kind.choose) choice_ = kind.choose(options_, gradients);
  };
  nodes_ = build_training_graph(graph_, {.kind = kind,
                                         .trainer = options_,
                                         .fields = fields,
                                         .forms = batches_.forms(),
                                         .buckets = buckets_of(options_, train),
                                         .choose = choose,
                                         .predictors = evaluates() ? options_.devices.size() : 1});
  choose_shards();
  session_ = std::make_unique<Session>(graph_, options_.session);
  compile();
  if (processes()) arithmetics();  // asks all processes
}

void BuiltTraining::choose_shards() {
  const auto devices = static_cast<int>(batches_.towers());
  if (options_.shards == 0) {
    default_shards_ =
        has_one_shard_each(options_, kind_.facts())
            ? devices
            : default_shards(work_of(nodes_.towers[0], batches_.forms()[0].rows[0], nodes_.frozen),
                             batches_.global_batch());
    options_.shards = (default_shards_ + devices - 1) / devices * devices;
  }
  require(options_.shards % devices == 0, options_.shards, " shards on ", devices,
          " devices: the numbers of shards must be a multiple of that of devices");
  options_.session.shards_per_device = options_.shards / devices;
}

void BuiltTraining::compile() {
  const PrepareOptions how{.gathers_first = updates_parts(options_) &&
                                            batches_.batches_per_step() == 1 &&
                                            nodes_.losses.size() == 1};
  const auto compiled = [&](const TrainedLoss& loss, const StepNodes& step, bool keeps_gradients,
                            std::span<const NamedOutput> watched = {},
                            bool keeps_contributions = false) {
    return TrainingStep(*session_, step, loss.towers_of(step.batch), loss.learning_rates, how,
                        keeps_gradients, watched, keeps_contributions);
  };
  check_histograms(nodes_, options_);
  steps_.losses = nodes_.losses.size();
  std::vector<std::int64_t> periods = options_.contributions_every;
  const bool keeps_contributions = !periods.empty();
  if (options_.histograms.every > 0) periods.push_back(options_.histograms.every);
  steps_.watches = {.periods = std::move(periods),
                    .steps_per_epoch = batches_.steps_per_epoch(),
                    .batches_per_step = batches_.batches_per_step()};
  for (std::size_t form = 0; form < nodes_.losses[0].steps.size(); ++form) {
    const std::vector<std::vector<NamedOutput>> watched =
        watched_tensors(nodes_, form, kind_, options_);
    const bool watches =
        !steps_.watching.empty() || keeps_contributions ||
        std::ranges::any_of(watched, [](const auto& of_loss) { return !of_loss.empty(); });
    for (std::size_t l = 0; l < nodes_.losses.size(); ++l) {
      const TrainedLoss& loss = nodes_.losses[l];
      const StepNodes& step = loss.steps[form];
      const auto before_last = [&](Node* op) -> std::optional<TrainingStep> {
        StepNodes nodes = step;
        nodes.train_op = op;
        nodes.unscaling.applied = step.batch_applied;
        nodes.squares = {};
        if (!op) return {};
        return compiled(loss, nodes, false);
      };
      steps_.first = before_last(step.accumulation.begin);
      steps_.between = before_last(step.accumulation.add);
      steps_.by_form.push_back(compiled(loss, step, options_.keeps_gradients));
      if (watches)
        steps_.watching.push_back(
            compiled(loss, step, options_.keeps_gradients, watched[l], keeps_contributions));
    }
  }
  for (std::size_t t = 0; t < nodes_.tower_ops.size(); ++t) {
    const BatchForm own = batches_.forms()[0].of_tower(t);
    steps_.free.emplace_back(
        *session_, StepNodes{.batch = own, .all = own, .train_op = nodes_.tower_ops[t]},
        std::span(nodes_.towers).subspan(t, 1), nodes_.losses[0].learning_rates,
        PrepareOptions{.locks = LockDuration::kEachVariable});
  }
}

TowerSpan BuiltTraining::own_towers() const {
  const auto own = std::ssize(options_.devices);
  return {graph_.process().rank * own, own};
}

std::vector<PlanOfStep> BuiltTraining::plans_of_step() const {
  return steps_.plans_with_runs(batches_.batches_per_step());
}

std::optional<double> BuiltTraining::loss_scale() {
  if (!nodes_.loss_scale) return {};
  return session_->read(nodes_.loss_scale.scale).item<float>();
}

bool BuiltTraining::moves_averages_by_batch() const {
  return batches_.batches_per_step() > 1 && !nodes_.towers[0].moments.empty();
}

bool BuiltTraining::guards() const {
  const std::vector<StepNodes>& steps = nodes_.losses[0].steps;
  return options_.on_nonfinite != OnNonfinite::kContinue && !steps.empty() &&
         steps[0].unscaling.applied;
}

const Arithmetics& BuiltTraining::arithmetics() const {
  if (!arithmetics_) arithmetics_ = arithmetics_of(processes(), options_.devices);
  return *arithmetics_;
}

std::string BuiltTraining::other_bits() const {
  if (arithmetics_ && !arithmetics_->mixed.empty()) return arithmetics_->mixed;
  return earlier_bits_.empty() ? "" : cat("this run was resumed with other bits: ", earlier_bits_);
}

}  // namespace belfry
