#include "belfry/trainers/runs/tensorboard.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "belfry/framework/base/log.h"
#include "belfry/trainers/core/trainer.h"
#include "belfry/trainers/core/watched_tensors.h"

namespace belfry {
namespace {

// The prefix of metrics that an evaluation sets.
constexpr std::string_view kValidation = "validation_";

}  // namespace

TensorBoard::TensorBoard(std::string directory, TensorBoardOptions options, FileSystem& files)
    : directory_(std::move(directory)), options_(std::move(options)), files_(files) {}

void TensorBoard::setup(Trainer& trainer) {
  first_step_ = trainer.steps();
  train_.emplace(files_, directory_ + "/train", first_step_ + 1);
  const auto of_validation = [](const std::string& name) { return name.starts_with(kValidation); };
  if (std::ranges::any_of(trainer.record().expected_metrics(), of_validation))
    validation_.emplace(files_, directory_ + "/validation", first_step_ + 1);
}

template <class F>
void TensorBoard::write(const F& f) try {
  f();
} catch (const IoError& error) {
  log_warning(error.what(), "; TensorBoard will show no more of this run, which continues");
  train_.reset();
  validation_.reset();
}

void TensorBoard::after_step(Trainer& trainer, const StepInfo& info) {
  if (!train_) return;
  const std::int64_t steps = info.step + 1;
  for (const NamedValue& metric : trainer.record().step_metrics())
    train_->add(metric.name, metric.value);
  for (const NamedValue& norm : trainer.record().gradient_norms())
    train_->add(norm.name, norm.value);
  for (const NamedValue& rate : trainer.record().learning_rates())
    train_->add(rate.name, rate.value);
  train_->add("examples_per_second", trainer.record().step_examples_per_second());
  if (options_.memory)
    for (const NamedValue& value : options_.memory->values()) train_->add(value.name, value.value);
  const std::int64_t every = trainer.built().options().histograms.every;
  if (every > 0 && steps % every == 0) add_histograms(trainer);
  write([&] { train_->write(steps); });
}

void TensorBoard::add_histograms(Trainer& trainer) {
  const HistogramOptions& options = trainer.built().options().histograms;
  for (const Variable variable : originals_of(trainer.graph().variables(kTrainableVariables)))
    if (watches_variable(options, variable.logical_name()))
      train_->add(variable.logical_name(), histogram_of(trainer.session().read(variable)));
  for (const auto& [name, tensor] : trainer.record().watched())
    train_->add(name, histogram_of(tensor));
}

void TensorBoard::after_metrics(Trainer&, const StepInfo& info,
                                const std::vector<NamedValue>& metrics) {
  bool has_own = false, has_validation = false;
  for (const auto& [name, value] : metrics)
    if (!name.starts_with(kValidation)) {
      if (train_) train_->add(name, value);
      has_own = true;
    } else if (validation_) {
      validation_->add(name.substr(kValidation.size()), value);
      has_validation = true;
    }
  write([&] {
    if (has_own && train_) train_->write(info.step);
    if (!has_validation) return;
    // The evaluation was due when the run before was stopped. That run may have done it all the
    // same.
    if (info.step == first_step_) validation_->restart(info.step);
    validation_->write(info.step);
  });
}

}  // namespace belfry
