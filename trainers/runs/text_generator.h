// Continues text by a model, token by token.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "belfry/framework/graph/device_spec.h"
#include "belfry/framework/run/session.h"
#include "belfry/ops/precision.h"
#include "belfry/towers/attention_layers.h"
#include "belfry/towers/replicate.h"
#include "belfry/trainers/data/vocabulary.h"

namespace belfry {

// How a token is drawn. Of equally probable tokens the first one counts as more probable.
struct DrawOptions {
  double temperature = 0.8;  // logits are divided by it; 0: the most probable token
  std::int64_t top_k = 0;    // one of so many most probable tokens; 0: of all
  double top_p = 1;          // one of the most probable tokens that together have this probability
};

// The token that is drawn by the softmax of logits / temperature, as a function of `key`.
std::int32_t draw_token(std::span<const float> logits, const DrawOptions& options,
                        std::uint64_t key);

// The tokens of a beginning; of "" a line break, or the first token where the text has none. Throws
// InvalidArgument if no token stands for a part of `begin`, or for any.
std::vector<std::int32_t> first_tokens(const Vocabulary& vocabulary, const std::string& begin);

class TextGenerator {
 public:
  virtual ~TextGenerator() = default;

  // Continues `begin`, of at least one token, by `count` tokens, or fewer if the end of the text
  // comes, which is not shown. Token i is a function of `key`, i and the tokens before it: all of
  // them as long as they fit into the model's time. Then the last half of them stays, and grows
  // again. Calls `show` with parts of the text, from its beginning on: whole characters of UTF-8,
  // and escapes ("\x1b") for what is none, or controls terminals. A character that is not complete
  // at the end is left out.
  void generate(const Vocabulary& vocabulary, std::vector<std::int32_t> begin, std::int64_t count,
                const DrawOptions& options, std::uint64_t key,
                const std::function<void(std::string_view)>& show);

 protected:
  virtual std::size_t time() const = 0;  // the most tokens that count
  // The logits of what follows the tokens, which fit into the model's time. They begin with those
  // of the last call, unless it is `anew`.
  virtual std::span<const float> logits_after(std::span<const std::int32_t> tokens, bool anew) = 0;
};

// Runs a causal model over all tokens, for each token. Its inputs begin with tokens i32 [1, time];
// it gives a row of logits per token.
std::unique_ptr<TextGenerator> whole_text_generator(CompiledStep& step, std::vector<Tensor> inputs);

// A tower that computes one token at a time, beside a cache of keys and values.
struct TokenTower {
  TowerRecord tower;
  std::vector<Fetch> fetches;  // logits, then the tensors of caches
  std::int64_t time = 0;       // of the caches
};
struct TokenTowerOptions {
  // The logits [1, tokens] of what follows one more token, such as models::gpt_step().
  std::function<Output(Tower&, TokenStep&)> step;
  std::int64_t time = 0;  // of the caches
  DeviceSpec device = DeviceSpec::local("CPU", 0);
  int index = 0;  // of the tower
  Precision precision = Precision::kF32;
};
// Throws InvalidArgument if the step does not make its caches by key_value_cache().
TokenTower build_token_tower(Graph& graph, const TokenTowerOptions& options);

// `session` is of the tower's graph.
std::unique_ptr<TextGenerator> token_generator(Session& session, const TokenTower& tower);

}  // namespace belfry
