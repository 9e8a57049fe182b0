// A transformer that learns to write, token by token. Try: gpt --devices=cpu:2 --data_dir=DIR, with
// the text in DIR/input.txt; then the same with --run_dir=RUN, and again with --sample="ROMEO:".
#include <memory>

#include "belfry/belfry.h"
#include "belfry/trainers/models/models.h"
using namespace belfry;

constexpr std::int64_t kWindowsPerEpoch = 3000;

// Different tokens of a kind.
std::int64_t tokens_of(const std::string& kind) {
  return kind == "characters" ? 65 : kind == "bytes" ? 256 : 50257;
}

std::vector<OwnOption> flags_of(std::string& tokens, models::GptSize& size, std::string& preset,
                                TextSamples& samples, double& smoothing) {
  std::vector<OwnOption> flags = models::gpt_flags(size, preset);
  for (OwnOption& flag : flags)
    if (flag.name == "vocabulary") flag.text += "; 0: 65 characters, 256 bytes, 50257 of llm.c";
  flags.insert(flags.end(),
               {{.name = "tokens",
                 .variable = &tokens,
                 .text = "of input.txt, or of token files of llm.c",
                 .choices = {"characters", "bytes", "llmc"}},
                {.name = "sample",
                 .variable = &samples.options.begin,
                 .text = "the beginning that samples of text continue, after each epoch, and at "
                         "once if the run in --run_dir has ended"},
                label_smoothing_flag(smoothing)});
  return flags;
}

int main(int argc, char** argv) {
  // As --preset=char has it. A vocabulary of 0 has as many tokens as their kind.
  models::GptSize flags{.layers = 4,
                        .heads = 4,
                        .width = 128,
                        .sequence_length = 64,
                        .vocabulary = 0,
                        .tie_embeddings = true,
                        .gelu = "exact"};
  std::string tokens = "characters", preset;
  double smoothing = 0;
  const auto size = [&] {
    models::GptSize all = flags;
    if (all.vocabulary == 0) all.vocabulary = tokens_of(tokens);
    return all;
  };
  const auto model = [&](Tower& tower, Output token, Output label) {
    return models::gpt(tower, token, label, size(), smoothing);
  };
  const auto samples =
      std::make_shared<TextSamples>(TextSampleOptions{.step = [&](Tower& tower, TokenStep& step) {
        return models::gpt_step(tower, step, size());
      }});
  DatasetFactory source;  // set once flags are read; training and tests share a file
  const auto text = [&](const RunDirs& dirs, bool train) {
    if (tokens == "llmc" && !samples->options.begin.empty())
      throw FlagError(
          "--sample has no use beside --tokens=llmc: nobody knows what these tokens "
          "stand for; leave it out");
    if (!source)
      source = data::text({.tokens = tokens,
                           .length = flags.sequence_length,
                           .per_epoch = kWindowsPerEpoch,
                           .vocabulary = size().vocabulary});
    return source(dirs, train);
  };
  return train(argc, argv,
               {.model = model,
                .data = text,
                .optimizer = adamw(scheduled_rate(1e-3, cosine_schedule(1e-4), 100),
                                   {.beta2 = 0.99, .weight_decay = 0.1}),
                .global_batch_size = 12,
                .epochs = 8,  // 2,000 steps
                .callbacks = {samples},
                .flags = flags_of(tokens, flags, preset, *samples, smoothing)});
}
