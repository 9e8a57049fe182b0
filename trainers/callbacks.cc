#include "belfry/trainers/callbacks.h"

#include <algorithm>
#include <cstdarg>
#include <utility>

#include "belfry/trainers/evaluator.h"
#include "belfry/trainers/trainer.h"

namespace belfry {
namespace {

constexpr double kSecondsBetweenUpdates = 0.1;
constexpr std::int64_t kStepsBetweenLines = 100;

// Text of limited length, built without the heap.
class ShortLine {
 public:
  [[gnu::format(printf, 2, 3)]] void add(const char* format, ...) {
    va_list values;
    va_start(values, format);
    const int wanted = std::vsnprintf(text_ + size_, sizeof text_ - size_, format, values);
    va_end(values);
    if (wanted > 0) size_ = std::min(size_ + static_cast<std::size_t>(wanted), sizeof text_ - 1);
  }
  std::string_view str() const { return {text_, size_}; }

 private:
  char text_[240] = "";
  std::size_t size_ = 0;
};

// How many epochs the run takes: fewer than it may, if --max_steps ends it before.
int epochs_of(const Trainer& trainer, int epoch, std::int64_t total_steps) {
  const std::int64_t per_epoch = trainer.batches().steps_per_epoch();
  const std::int64_t needed = (total_steps + per_epoch - 1) / per_epoch;
  return static_cast<int>(
      std::clamp<std::int64_t>(needed, epoch + 1, std::max(trainer.options().epochs, epoch + 1)));
}

}  // namespace

void Progress::setup(Trainer& trainer) { total_steps_ = trainer.total_steps(); }

void Progress::before_step(Trainer&, const StepInfo& info) { began_ = info.seconds; }

void Progress::after_step(Trainer& trainer, const StepInfo& info) {
  const std::int64_t done = info.step + 1;
  // The first allocates, so that its speed is not typical.
  if (std::exchange(ran_, true)) {
    ++rate_steps_;
    rate_seconds_ += info.seconds - began_;
  }
  const bool due = console_.is_terminal() ? info.seconds - shown_at_ >= kSecondsBetweenUpdates
                                          : done == 1 || done % kStepsBetweenLines == 0;
  if (due || done == total_steps_) show(trainer, info);
}

void Progress::show(Trainer& trainer, const StepInfo& info) {
  ShortLine line;
  line.add("step %lld/%lld  epoch %d/%d", static_cast<long long>(info.step + 1),
           static_cast<long long>(total_steps_), info.epoch + 1,
           epochs_of(trainer, info.epoch, total_steps_));
  for (const NamedValue& metric : trainer.step_metrics())
    line.add("  %s %.4g", metric.name.c_str(), metric.value);
  if (rate_seconds_ > 0) {
    const auto towers = static_cast<double>(trainer.batches().towers());
    const double steps_per_second = static_cast<double>(rate_steps_) / rate_seconds_;
    const double rate = steps_per_second *
                        static_cast<double>(trainer.batches().samples_per_epoch()) /
                        static_cast<double>(trainer.batches().steps_per_epoch());
    line.add("  %.0f examples/s (%.0f per device)", rate, rate / towers);
  }
  if (console_.is_terminal())
    console_.status(line.str());
  else
    console_.line(line.str());
  shown_at_ = info.seconds;
  rate_steps_ = 0;
  rate_seconds_ = 0;
}

Evaluation::Evaluation(Console& console) : console_(console) {}

Evaluation::~Evaluation() = default;

void Evaluation::setup(Trainer& trainer) {
  const Dataset* data = trainer.test_data();
  if (!data || data->size() == 0) return;
  evaluator_ = std::make_unique<Evaluator>(trainer.session(), trainer.towers().predictors, *data,
                                           trainer.options().batch_size);
}

void Evaluation::after_epoch(Trainer& trainer, const StepInfo& info) { evaluate(trainer, info); }

void Evaluation::after_training(Trainer& trainer, const StepInfo& info) {
  if (info.step == evaluated_at_) return;
  // Nothing was left to train: the epoch before ended here.
  StepInfo last = info;
  if (trainer.position().samples == 0 && last.epoch > 0) --last.epoch;
  evaluate(trainer, last);
}

void Evaluation::evaluate(Trainer& trainer, const StepInfo& info) {
  evaluated_at_ = info.step;
  if (!evaluator_) return;
  ShortLine line;
  line.add("epoch %d, step %lld: test", info.epoch + 1, static_cast<long long>(info.step));
  for (const NamedValue& mean : evaluator_->run()) {
    trainer.set_metric("test_" + mean.name, mean.value);
    line.add("  %s %.4g", mean.name.c_str(), mean.value);
  }
  console_.line(line.str());
}

}  // namespace belfry
