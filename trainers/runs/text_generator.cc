#include "belfry/trainers/runs/text_generator.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/core_ops/placeholder.h"
#include "belfry/framework/graph/scopes.h"
#include "belfry/ops/cast.h"
#include "belfry/trainers/core/training_step.h"
#include "belfry/trainers/util/counter_random.h"

namespace belfry {
namespace {

// Leaves the weights of the most probable tokens, by top_k and top_p, and makes all others zero.
void keep_most_probable(std::vector<double>& weights, const DrawOptions& options) {
  std::vector<std::size_t> order(weights.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto comes_first = [&](std::size_t a, std::size_t b) {
    return weights[a] != weights[b] ? weights[a] > weights[b] : a < b;
  };
  std::size_t kept = order.size();
  if (options.top_k > 0) kept = std::min(kept, static_cast<std::size_t>(options.top_k));
  std::ranges::partial_sort(order, order.begin() + static_cast<std::ptrdiff_t>(kept), comes_first);
  if (options.top_p < 1) {
    double sum = 0, all = 0;
    for (std::size_t i = 0; i < kept; ++i) all += weights[order[i]];
    for (std::size_t i = 0; i < kept; ++i)
      if ((sum += weights[order[i]]) >= options.top_p * all) kept = i + 1;
  }
  for (std::size_t i = kept; i < order.size(); ++i) weights[order[i]] = 0;
}

// The bytes of the character that a text begins with; 0 if it is a control character other than a
// newline or tab, or not UTF-8.
std::size_t printable_size(std::string_view text) {
  const Utf8Character next = first_character(text);
  const bool controls = (next.code < 0x20 && next.code != '\n' && next.code != '\t') ||
                        (next.code >= 0x7F && next.code < 0xA0);
  return controls ? 0 : next.bytes;
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

// The bytes at the end that more bytes may complete to a character.
std::size_t unfinished_size(std::string_view text) {
  for (std::size_t size = 1; size <= std::min<std::size_t>(3, text.size()); ++size) {
    const std::string_view end = text.substr(text.size() - size);
    if ((end[0] & 0xC0) == 0x80) continue;
    // One of these completes it, whatever its second byte must be.
    for (const char* const rest : {"\x80\x80\x80", "\xA0\x80\x80", "\x90\x80\x80"})
      if (first_character(cat(end, rest)).bytes > size) return size;
    return 0;
  }
  return 0;
}

class WholeTextGenerator final : public TextGenerator {
 public:
  WholeTextGenerator(CompiledStep& step, std::vector<Tensor> inputs)
      : step_(step), inputs_(std::move(inputs)) {}

 private:
  std::size_t time() const override { return static_cast<std::size_t>(inputs_[0].shape()[1]); }
  std::span<const float> logits_after(std::span<const std::int32_t> tokens, bool) override {
    // A causal model does not look at the rest of the row.
    std::ranges::copy(tokens, inputs_[0].mutable_data<std::int32_t>().begin());
    step_.run(inputs_);
    const Tensor& logits = step_.fetched(0);
    const auto classes = static_cast<std::size_t>(logits.shape()[1]);
    return logits.data<float>().subspan((tokens.size() - 1) * classes, classes);
  }

  CompiledStep& step_;
  std::vector<Tensor> inputs_;  // one sample
};

constexpr std::size_t kCaches = 3;  // the first of the inputs, after token, position and length

class TokenGenerator final : public TextGenerator {
 public:
  TokenGenerator(CompiledStep& step, std::vector<Tensor> inputs, std::int64_t time)
      : step_(step), inputs_(std::move(inputs)), time_(static_cast<std::size_t>(time)) {}

 private:
  std::size_t time() const override { return time_; }
  std::span<const float> logits_after(std::span<const std::int32_t> tokens, bool anew) override {
    if (anew) forget();
    for (const std::int32_t token : tokens.subspan(known_)) add(token);
    return step_.fetched(0).data<float>();
  }
  void forget() {
    known_ = 0;
    for (std::size_t i = kCaches; i < inputs_.size(); ++i)
      std::ranges::fill(inputs_[i].mutable_data<float>(), 0.0F);
  }
  void add(std::int32_t token) {
    const auto position = static_cast<std::int32_t>(known_);
    inputs_[0].mutable_data<std::int32_t>()[0] = token;
    inputs_[1].mutable_data<std::int32_t>()[0] = position;
    inputs_[2].mutable_data<std::int32_t>()[0] = position + 1;
    step_.run(inputs_);
    for (std::size_t i = kCaches; i < inputs_.size(); ++i)
      std::ranges::copy(step_.fetched(i - kCaches + 1).data<float>(),
                        inputs_[i].mutable_data<float>().begin());
    ++known_;
  }

  CompiledStep& step_;
  std::vector<Tensor> inputs_;
  const std::size_t time_;
  std::size_t known_ = 0;  // positions in the caches
};

}  // namespace

std::int32_t draw_token(std::span<const float> logits, const DrawOptions& options,
                        std::uint64_t key) {
  const auto most = std::ranges::max_element(logits);
  if (options.temperature == 0) return static_cast<std::int32_t>(most - logits.begin());
  std::vector<double> weights(logits.size());
  std::ranges::transform(logits, weights.begin(), [&](float logit) {
    return std::exp((static_cast<double>(logit) - static_cast<double>(*most)) /
                    options.temperature);
  });
  if (options.top_k > 0 || options.top_p < 1) keep_most_probable(weights, options);
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  double left = sum * static_cast<double>(CounterRandom(key).bits() >> 11) * 0x1p-53;
  std::size_t drawn = 0;
  for (std::size_t token = 0; token < weights.size() && left >= 0; ++token) {
    if (weights[token] == 0) continue;
    drawn = token;
    left -= weights[token];
  }
  return static_cast<std::int32_t>(drawn);
}

std::vector<std::int32_t> first_tokens(const Vocabulary& vocabulary, const std::string& begin) {
  std::vector<std::int32_t> tokens;
  try {
    tokens = vocabulary.encode(begin.empty() ? "\n" : begin);
  } catch (const InvalidArgument&) {
    if (!begin.empty()) throw;
  }
  require(!tokens.empty() || begin.empty(), "no token stands for any of '", shown(begin),
          "'; begin with other text");
  if (tokens.empty()) tokens.push_back(0);
  return tokens;
}

void TextGenerator::generate(const Vocabulary& vocabulary, std::vector<std::int32_t> begin,
                             std::int64_t count, const DrawOptions& options, std::uint64_t key,
                             const std::function<void(std::string_view)>& show) {
  require(!begin.empty(), "there is no text to continue: it begins with at least one token");
  std::vector<std::int32_t> text = std::move(begin);
  TextDecoder decoder(vocabulary);
  std::string unshown;
  const auto show_more = [&](std::span<const std::int32_t> tokens) {
    for (const std::int32_t token : tokens) unshown += decoder.add(token);
    const std::size_t whole = unshown.size() - unfinished_size(unshown);
    if (whole > 0) show(printable(std::string_view(unshown).substr(0, whole)));
    unshown.erase(0, whole);
  };
  show_more(text);
  std::size_t first = text.size() > time() ? text.size() - time() : 0;  // of tokens that count
  for (std::int64_t i = 0; i < count; ++i) {
    const bool full = text.size() - first > time();
    if (full) first = text.size() - std::max<std::size_t>(time() / 2, 1);
    const std::span<const float> logits =
        logits_after(std::span(text).subspan(first), full || i == 0);
    const auto usable = std::min(logits.size(), static_cast<std::size_t>(vocabulary.size()));
    const std::int32_t next =
        draw_token(logits.first(usable), options, combine_key(key, static_cast<std::uint64_t>(i)));
    if (next == vocabulary.end_of_text()) return;
    text.push_back(next);
    show_more({&next, 1});
  }
}

std::unique_ptr<TextGenerator> whole_text_generator(CompiledStep& step,
                                                    std::vector<Tensor> inputs) {
  return std::make_unique<WholeTextGenerator>(step, std::move(inputs));
}

TokenTower build_token_tower(Graph& graph, const TokenTowerOptions& options) {
  TokenTower built{.time = options.time};
  TokenStep step{.time = options.time};
  const auto build = [&](Tower& tower) {
    const AutocastScope scope(graph, autocasting(options.precision));
    step.token = placeholder(graph, "token", DType::kI32, {1, 1});
    step.position = placeholder(graph, "position", DType::kI32, {1});
    step.length = placeholder(graph, "length", DType::kI32, {1});
    built.fetches.emplace_back(cast(options.step(tower, step), DType::kF32));
    for (const KeyValueCache& cache : step.caches)
      for (const Output part : {cache.keys, cache.values}) built.fetches.emplace_back(part);
  };
  built.tower = predict_tower(graph, {.device = options.device, .index = options.index}, build);
  require(built.tower.inputs.size() == kCaches + built.fetches.size() - 1,
          "a step of a sample of text has ", built.tower.inputs.size(), " inputs, but ",
          built.fetches.size() - 1, " tensors of caches; it makes its caches by key_value_cache()");
  return built;
}

std::unique_ptr<TextGenerator> token_generator(Session& session, const TokenTower& tower) {
  std::vector<FeedType> feeds;
  add_feeds(tower.tower, 1, {}, feeds);
  std::vector<Tensor> inputs;
  for (const Output& input : tower.tower.inputs) inputs.emplace_back(input.shape(), input.dtype());
  return std::make_unique<TokenGenerator>(session.prepare(tower.fetches, feeds), std::move(inputs),
                                          tower.time);
}

}  // namespace belfry
