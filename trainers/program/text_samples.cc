#include "belfry/trainers/program/text_samples.h"

#include <utility>

#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/graph/scopes.h"
#include "belfry/ops/cast.h"
#include "belfry/trainers/core/trainer.h"
#include "belfry/trainers/core/training_step.h"
#include "belfry/trainers/data/vocabulary.h"
#include "belfry/trainers/runs/text_generator.h"
#include "belfry/trainers/util/counter_random.h"
#include "belfry/trainers/util/option_error.h"

namespace belfry {

TextSamples::TextSamples(TextSampleOptions wanted) : options(std::move(wanted)) {}

TextSamples::~TextSamples() = default;

namespace {

[[noreturn]] void refuse(const std::string& begin, const std::string& why) {
  refuse_option<OptionMistake>("sample", "=", shown(begin),
                               ": a sample of text cannot begin with '", shown(begin), "': ", why);
}

std::vector<std::int32_t> encoded(const Vocabulary& vocabulary, const std::string& begin) try {
  return first_tokens(vocabulary, begin);
} catch (const InvalidArgument& error) {
  refuse(begin, error.what());
}

}  // namespace

void TextSamples::check(Trainer& trainer) const {
  if (options.begin.empty()) return;
  const Vocabulary* const vocabulary = trainer.built().train_data().vocabulary();
  if (!vocabulary)
    refuse(options.begin, "nobody knows what the tokens of the data stand for; leave it out");
  encoded(*vocabulary, options.begin);
}

void TextSamples::setup(Trainer& trainer) {
  if (trainer.graph().process().rank != 0) return;
  require(options.tokens >= 1 && options.temperature >= 0, "samples of ", options.tokens,
          " tokens at temperature ", options.temperature,
          "; there is at least one, and the temperature is not negative");
  const Vocabulary* const vocabulary = trainer.built().train_data().vocabulary();
  if (!vocabulary) return;
  begin_ = encoded(*vocabulary, options.begin);
  generator_ = generator(trainer);
}

// Has the variables of the predictors.
std::unique_ptr<TextGenerator> TextSamples::generator(Trainer& trainer) const {
  const TowerRecord& predictor = trainer.built().nodes().predictors[0];
  const Output logits = predictor.get(options.output);
  std::vector<Tensor> inputs = batch_tensors(trainer.built().train_data(), 1);
  require(logits.shape().rank() == 2 && inputs[0].dtype() == DType::kI32 &&
              inputs[0].shape().rank() == 2,
          "samples of text need tokens i32 [time] and logits [n time, tokens], not ",
          inputs[0].shape(), " and ", logits.shape());
  if (options.step) {
    const int free = static_cast<int>(trainer.built().options().devices.size());
    return token_generator(
        trainer.session(),
        build_token_tower(trainer.graph(), {.step = options.step,
                                            .time = inputs[0].shape()[1],
                                            .device = predictor.device,
                                            .index = free,
                                            .precision = trainer.built().options().precision}));
  }
  std::vector<FeedType> feeds;
  add_feeds(predictor, 1, {}, feeds);
  const ColocateWith beside(logits);
  const std::vector<Fetch> fetches{cast(logits, DType::kF32)};  // 16 bits in mixed precision
  return whole_text_generator(trainer.session().prepare(fetches, feeds), std::move(inputs));
}

void TextSamples::after_epoch(Trainer& trainer, const StepInfo& info) {
  if (!trainer.loop().interrupted()) show(trainer, info.step);
}

void TextSamples::after_training(Trainer& trainer, const StepInfo& info) {
  if (!trainer.loop().interrupted() && info.step != shown_at_) show(trainer, info.step);
}

void TextSamples::on_ended_run(Trainer& trainer) {
  setup(trainer);
  show(trainer, trainer.steps());
}

void TextSamples::show(Trainer& trainer, std::int64_t step) {
  shown_at_ = step;
  if (!generator_) return;
  const std::uint64_t key =
      combine_key(trainer.built().options().seed, static_cast<std::uint64_t>(step));
  std::string text;
  generator_->generate(*trainer.built().train_data().vocabulary(), begin_, options.tokens,
                       {.temperature = options.temperature}, key,
                       [&](std::string_view part) { text += part; });
  if (const auto& say = trainer.built().options().say)
    say(cat("sample after step ", step, ":\n", text));
}

}  // namespace belfry
