#include "belfry/trainers/program/text_samples.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/core_ops/placeholder.h"
#include "belfry/framework/graph/scopes.h"
#include "belfry/ops/cast.h"
#include "belfry/ops/precision.h"
#include "belfry/towers/replicate.h"
#include "belfry/trainers/core/trainer.h"
#include "belfry/trainers/data/vocabulary.h"
#include "belfry/trainers/util/counter_random.h"
#include "belfry/trainers/util/option_error.h"

namespace belfry {

// A step with a cache, compiled for one sample. Its inputs are the token, its position, the length,
// and the tensors of caches, which it also fetches, after the logits.
struct TextSamples::Cached {
  CompiledStep& step;
  std::vector<Tensor> inputs;
  std::size_t known = 0;  // positions in the caches

  void forget() {
    known = 0;
    for (std::size_t i = kCaches; i < inputs.size(); ++i)
      std::ranges::fill(inputs[i].mutable_data<float>(), 0.0F);
  }
  void add(std::int32_t token) {
    const auto position = static_cast<std::int32_t>(known);
    inputs[0].mutable_data<std::int32_t>()[0] = token;
    inputs[1].mutable_data<std::int32_t>()[0] = position;
    inputs[2].mutable_data<std::int32_t>()[0] = position + 1;
    step.run(inputs);
    for (std::size_t i = kCaches; i < inputs.size(); ++i)
      std::ranges::copy(step.fetched(i - kCaches + 1).data<float>(),
                        inputs[i].mutable_data<float>().begin());
    ++known;
  }

  static constexpr std::size_t kCaches = 3;  // the first of the inputs
};

// The predictor, compiled for one sample.
struct TextSamples::Model {
  CompiledStep& step;
  std::vector<Tensor> inputs;  // one sample
  std::vector<std::int32_t> begin;
  std::optional<Cached> cached = {};  // used instead, if there is one

  std::size_t time() const { return static_cast<std::size_t>(inputs[0].shape()[1]); }
  // The logits of what follows the tokens, which fit into the model's time. They begin with those
  // of the last call, unless it is `anew`.
  std::span<const float> logits_after(std::span<const std::int32_t> tokens, bool anew);
};

std::span<const float> TextSamples::Model::logits_after(std::span<const std::int32_t> tokens,
                                                        bool anew) {
  if (cached) {
    if (anew) cached->forget();
    for (const std::int32_t token : tokens.subspan(cached->known)) cached->add(token);
    return cached->step.fetched(0).data<float>();
  }
  // A causal model does not look at the rest of the row.
  std::ranges::copy(tokens, inputs[0].mutable_data<std::int32_t>().begin());
  step.run(inputs);
  const Tensor& logits = step.fetched(0);
  const auto classes = static_cast<std::size_t>(logits.shape()[1]);
  return logits.data<float>().subspan((tokens.size() - 1) * classes, classes);
}

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
  if (options.step) model_->cached.emplace(cached(trainer));
}

// Builds a tower for one token, with the variables of the predictors.
TextSamples::Cached TextSamples::cached(Trainer& trainer) const {
  const TowerRecord& predictor = trainer.built().nodes().predictors[0];
  Graph& graph = trainer.graph();
  TokenStep step{.time = static_cast<std::int64_t>(model_->time())};
  std::vector<Fetch> fetches;
  const auto build = [&](Tower& tower) {
    const AutocastScope scope(graph, autocasting(trainer.built().options().precision));
    step.token = placeholder(graph, "token", DType::kI32, {1, 1});
    step.position = placeholder(graph, "position", DType::kI32, {1});
    step.length = placeholder(graph, "length", DType::kI32, {1});
    fetches.emplace_back(cast(options.step(tower, step), DType::kF32));
    for (const KeyValueCache& cache : step.caches)
      for (const Output part : {cache.keys, cache.values}) fetches.emplace_back(part);
  };
  const int free = static_cast<int>(trainer.built().nodes().towers.size());
  const TowerRecord tower =
      predict_tower(graph, {.device = predictor.device, .index = free}, build);
  std::vector<FeedType> feeds;
  add_feeds(tower, 1, {}, feeds);
  require(feeds.size() == Cached::kCaches + fetches.size() - 1, "a step of a sample of text has ",
          feeds.size(), " inputs, but ", fetches.size() - 1,
          " tensors of caches; it makes its caches by key_value_cache()");
  std::vector<Tensor> inputs;
  for (const Output& input : tower.inputs) inputs.emplace_back(input.shape(), input.dtype());
  return {trainer.session().prepare(fetches, feeds), std::move(inputs)};
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
  const std::size_t time = model_->time();
  const std::uint64_t key =
      combine_key(trainer.built().options().seed, static_cast<std::uint64_t>(step));
  std::vector<std::int32_t> text = model_->begin;
  std::size_t first = text.size() > time ? text.size() - time : 0;  // of the tokens that count
  for (std::int64_t i = 0; i < options.tokens; ++i) {
    const bool full = text.size() - first > time;
    if (full) first = text.size() - std::max<std::size_t>(time / 2, 1);
    const std::span<const float> logits =
        model_->logits_after(std::span(text).subspan(first), full || i == 0);
    const auto usable = std::min(logits.size(), static_cast<std::size_t>(vocabulary.size()));
    text.push_back(draw(logits.first(usable), combine_key(key, static_cast<std::uint64_t>(i))));
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
