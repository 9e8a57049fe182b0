#include "belfry/trainers/callbacks/evaluation.h"

#include <utility>

#include "belfry/framework/base/text.h"
#include "belfry/trainers/callbacks/evaluator.h"
#include "belfry/trainers/core/trainer.h"
#include "belfry/trainers/util/statistics.h"

namespace belfry {

Evaluation::Evaluation(Console& console, std::function<void(Trainer&)> look)
    : console_(console), look_(std::move(look)) {}

Evaluation::~Evaluation() = default;

void Evaluation::setup(Trainer& trainer) {
  const BuiltTraining& built = trainer.built();
  if (!built.test_data()) return;
  evaluator_ =
      std::make_unique<Evaluator>(trainer.session(), built.nodes().predictors, *built.test_data(),
                                  Evaluator::Options{.global_batch = built.batches().global_batch(),
                                                     .shards = built.options().shards,
                                                     .towers = built.batches().towers(),
                                                     .processes = built.processes(),
                                                     .data_workers = built.options().data_workers});
  is_due_ = trainer.steps() > 0 && trainer.progress().position().samples == 0 &&
            evaluated_at_ != trainer.steps() && knows_;
}

JsonValue Evaluation::state() const { return JsonValue::object().set("step", evaluated_at_); }

void Evaluation::restore(const JsonValue& state) {
  evaluated_at_ = state.at("step").integer();
  knows_ = true;
}

void Evaluation::before_step(Trainer& trainer, const StepInfo& info) {
  if (!is_due_ || trainer.loop().interrupted()) return;
  is_due_ = false;
  StepInfo last = info;
  --last.epoch;
  evaluate(trainer, last);
}

void Evaluation::after_epoch(Trainer& trainer, const StepInfo& info) {
  if (!trainer.loop().interrupted()) evaluate(trainer, info);
}

void Evaluation::after_training(Trainer& trainer, const StepInfo& info) {
  if ((evaluated_ && info.step == evaluated_at_) || trainer.loop().interrupted()) return;
  // If nothing was left to train, the epoch before ended here.
  StepInfo last = info;
  if (trainer.progress().position().samples == 0 && last.epoch > 0) --last.epoch;
  evaluate(trainer, last);
}

bool Evaluation::goes_on(Trainer& trainer) const {
  if (look_) look_(trainer);
  return !trainer.loop().interrupted();
}

void Evaluation::evaluate(Trainer& trainer, const StepInfo& info) {
  std::vector<NamedValue> means;
  const std::string when = cat("epoch ", info.epoch + 1, ", step ", info.step);
  if (evaluator_) {
    const std::int64_t samples = trainer.built().test_data()->size();
    if (!goes_on(trainer)) return;
    means = evaluator_->run([&](std::int64_t tested) {
      show_if_due(&console_, when, ": tested ", tested, "/", samples);
      return tested >= samples || goes_on(trainer);
    });
    if (means.empty()) return;
  }
  evaluated_at_ = info.step;
  evaluated_ = true;
  if (!evaluator_) return;
  std::string line = when + ": test";
  for (const NamedValue& mean : means) {
    trainer.record().set_metric("validation_" + mean.name, mean.value);
    line += cat("  ", mean.name, " ", significant(mean.value));
  }
  console_.line(line);
  trainer.record().watch().note_test_loss(means[0].value, evaluator_->not_finite_input());
  trainer.loop().evaluated(info);
}

}  // namespace belfry
