#include "belfry/trainers/program/text_samples.h"

#include <algorithm>
#include <cmath>

#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/graph/scopes.h"
#include "belfry/ops/cast.h"
#include "belfry/trainers/core/trainer.h"
#include "belfry/trainers/data/vocabulary.h"
#include "belfry/trainers/util/counter_random.h"
#include "belfry/trainers/util/option_error.h"

namespace belfry {

// The predictor, compiled for one sample.
struct TextSamples::Model {
  CompiledStep& step;
  std::vector<Tensor> inputs;  // one sample
  std::vector<std::int32_t> begin;
};

TextSamples::TextSamples(TextSampleOptions wanted) : options(std::move(wanted)) {}

TextSamples::~TextSamples() = default;

namespace {

// The bytes of the character that a text begins with; 0 if it is a control character other than a
// newline or tab, or not UTF-8.
std::size_t printable_size(std::string_view text) {
  const auto byte = [text](std::size_t i) {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U;
  };
  const unsigned first = byte(0), second = byte(1);
  if (first < 0x80) return (first >= 0x20 && first != 0x7F) || text[0] == '\n' || text[0] == '\t';
  const std::size_t size = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  for (std::size_t i = 1; i < size; ++i)
    if ((byte(i) & 0xC0) != 0x80) return 0;
  // The least and largest second byte: no controls, overlong forms, surrogates or what Unicode
  // lacks.
  const unsigned least = first == 0xC2 || first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
  const unsigned most = first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
  return first >= 0xC2 && first <= 0xF4 && second >= least && second <= most ? size : 0;
}

// Terminals obey control characters, and logs are UTF-8: "\x1b" stands for ESC.
std::string printable(std::string_view text) {
  std::string shown;
  while (!text.empty()) {
    const std::size_t size = printable_size(text);
    shown += size > 0 ? std::string(text.substr(0, size))
                      : cat("\\x", hex(static_cast<unsigned char>(text[0]), 2));
    text.remove_prefix(std::max<std::size_t>(size, 1));
  }
  return shown;
}

[[noreturn]] void refuse(const std::string& begin, const std::string& why) {
  refuse_option<OptionMistake>("sample", "=", shown(begin),
                               ": a sample of text cannot begin with '", shown(begin), "': ", why);
}

std::vector<std::int32_t> encoded(const Vocabulary& vocabulary, const std::string& begin) try {
  return vocabulary.encode(begin.empty() ? "\n" : begin);
} catch (const InvalidArgument& error) {
  if (begin.empty()) return {0};  // the text has one line only
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
  require(options.tokens >= 1 && options.temperature > 0, "samples of ", options.tokens,
          " tokens at temperature ", options.temperature, "; both are above 0");
  const Vocabulary* const vocabulary = trainer.built().train_data().vocabulary();
  if (!vocabulary) return;
  const TowerRecord& predictor = trainer.built().nodes().predictors[0];
  const Output logits = predictor.get(options.output);
  std::vector<FeedType> feeds;
  add_feeds(predictor, 1, {}, feeds);
  std::vector<Tensor> inputs = batch_tensors(trainer.built().train_data(), 1);
  require(logits.shape().rank() == 2 && inputs[0].dtype() == DType::kI32 &&
              inputs[0].shape().rank() == 2,
          "samples of text need tokens i32 [time] and logits [n time, tokens], not ",
          inputs[0].shape(), " and ", logits.shape());
  const ColocateWith beside(logits);
  const std::vector<Fetch> fetches{cast(logits, DType::kF32)};  // 16 bits in mixed precision
  model_ = std::make_unique<Model>(trainer.session().prepare(fetches, feeds), std::move(inputs),
                                   encoded(*vocabulary, options.begin));
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
  if (!model_) return;
  const Vocabulary& vocabulary = *trainer.built().train_data().vocabulary();
  Tensor& tokens = model_->inputs[0];
  const auto time = static_cast<std::size_t>(tokens.shape()[1]);
  const std::uint64_t key =
      combine_key(trainer.built().options().seed, static_cast<std::uint64_t>(step));
  std::vector<std::int32_t> text = model_->begin;
  for (std::int64_t i = 0; i < options.tokens; ++i) {
    // The last tokens come first; a causal model does not look at the rest of the row.
    const std::size_t known = std::min(text.size(), time);
    std::ranges::copy(std::span(text).last(known), tokens.mutable_data<std::int32_t>().begin());
    model_->step.run(model_->inputs);
    const Tensor& logits = model_->step.fetched(0);
    const auto classes = static_cast<std::size_t>(logits.shape()[1]);
    const auto usable = std::min(classes, static_cast<std::size_t>(vocabulary.size()));
    text.push_back(draw(logits.data<float>().subspan((known - 1) * classes, usable),
                        combine_key(key, static_cast<std::uint64_t>(i))));
  }
  if (const auto& say = trainer.built().options().say)
    say(cat("sample after step ", step, ":\n", printable(vocabulary.decode(text))));
}

// Draws by the softmax of logits / temperature.
std::int32_t TextSamples::draw(std::span<const float> logits, std::uint64_t key) const {
  const double most = std::ranges::max(logits);
  const auto weight = [&](float logit) {
    return std::exp((static_cast<double>(logit) - most) / options.temperature);
  };
  double sum = 0;
  for (const float logit : logits) sum += weight(logit);
  double left = sum * static_cast<double>(CounterRandom(key).bits() >> 11) * 0x1p-53;
  for (std::size_t token = 0; token + 1 < logits.size(); ++token) {
    left -= weight(logits[token]);
    if (left < 0) return static_cast<std::int32_t>(token);
  }
  return static_cast<std::int32_t>(logits.size()) - 1;
}

}  // namespace belfry
