// Transformers that predict the next token (decoders, pre-norm), after GPT-2 (Radford et al. 2019)
// or Llama (Touvron et al. 2023), of any size.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "belfry/towers/attention_layers.h"
#include "belfry/trainers/options/own_option.h"

namespace belfry::models {

struct GptSize {
  // "gpt2": learned positions, layer norm, GELU and biases. "llama": rotary positions, RMSNorm,
  // SwiGLU and no biases.
  std::string architecture = "gpt2";
  std::int64_t layers = 6, heads = 6;
  std::int64_t kv_heads = 0;  // of keys and values (grouped heads); 0: as many as `heads`
  std::int64_t width = 384;
  // Of the dense layers in a block. 0: 4 times `width`, or for llama 8/3 of it, as a multiple
  // of 32.
  std::int64_t mlp_width = 0;
  std::int64_t sequence_length = 256;  // tokens
  // Of gpt2, which the table of positions has; 0: as many as `sequence_length`. Weights of a model
  // with more positions than a sample has tokens need it.
  std::int64_t positions = 0;
  std::int64_t vocabulary = 65;  // different tokens
  double dropout = 0;            // of embeddings, and of what blocks add
  bool tie_embeddings = false;   // the head uses the table of tokens, not its own weights
  bool bias = true;              // of dense layers and norms of gpt2
  double rope_theta = 10000;     // base of the rotations of llama
  double norm_epsilon = 1e-5;
  std::string gelu = "tanh";  // of gpt2: or "exact"
  // Weights of the layers that add to a shortcut begin with deviation 0.02 / sqrt(2 * layers), as
  // in GPT-2.
  bool scaled_init = false;
};

// Throws OptionMistake, naming the option, for a size that cannot be.
void check_gpt_size(const GptSize& size);

// tokens and label i32 [n, time], of at most `sequence_length` -> the mean cross entropy; each
// position is a sample of loss and accuracy. Has the output "logits". Weights begin normal with
// deviation 0.02 (scaled_init: some with less). 10,795,776 parameters by default.
Output gpt(Tower& tower, Output tokens, Output label, const GptSize& size,
           double label_smoothing = 0);
// The logits [n, vocabulary] of what follows one more token, with the variables of gpt() and the
// keys and values of earlier tokens (attention_layers.h): text grows by one position at a time.
Output gpt_step(Tower& tower, TokenStep& step, const GptSize& size);

// A flag for each member of the size, and --preset, which stands for some of them: char, gpt2-124m,
// gpt2-355m, llama-tiny, llama-8b.
std::vector<OwnOption> gpt_flags(GptSize& size, std::string& preset);

}  // namespace belfry::models
