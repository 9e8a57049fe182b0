// A transformer that learns to write, token by token. Try: gpt --devices=cpu:2 --data_dir=DIR, with
// the text in DIR/input.txt; then the same with --run_dir=RUN, and again with --sample="ROMEO:".
#include <memory>

#include "belfry/belfry.h"
#include "belfry/trainers/models/models.h"
using namespace belfry;

// The kind of tokens, and how many of them the model knows.
struct Tokens {
  std::string kind = "characters";
  std::int64_t number = 0;  // 0: as many as the kind has

  std::int64_t most() const {
    if (number > 0) return number;
    return kind == "characters" ? 65 : kind == "bytes" ? 256 : 50257;
  }
};

constexpr std::int64_t kTime = 64, kWindowsPerEpoch = 3000;

// 4 blocks of 4 heads. The output layer shares the table of tokens.
models::GptSize size_of_model(const Tokens& tokens) {
  return {.tokens = static_cast<int>(tokens.most()),
          .layers = 4,
          .heads = 4,
          .width = 128,
          .tied_head = true,
          .gelu = GeluForm::kExact};
}

std::vector<OwnOption> flags_of(Tokens& tokens, TextSamples& samples, double& smoothing) {
  return {{.name = "tokens",
           .variable = &tokens.kind,
           .text = "of input.txt, or of token files of llm.c",
           .choices = {"characters", "bytes", "llmc"}},
          {.name = "vocabulary",
           .variable = &tokens.number,
           .text = "different tokens that the model knows, at least as many as the data have; 0: "
                   "65 characters, 256 bytes, 50257 of llm.c",
           .range = {"a whole number from 0 to 1114112, as many as Unicode has characters",
                     [](double x) { return x >= 0 && x <= 1114112; }}},
          {.name = "sample",
           .variable = &samples.options.begin,
           .text = "the beginning that samples of text continue, after each epoch, and at once "
                   "if the run in --run_dir has ended"},
          label_smoothing_flag(smoothing)};
}

int main(int argc, char** argv) {
  Tokens tokens;
  double smoothing = 0;
  const auto model = [&](Tower& tower, Output token, Output label) {
    return models::gpt(tower, token, label, size_of_model(tokens), {.label_smoothing = smoothing});
  };
  const auto samples =
      std::make_shared<TextSamples>(TextSampleOptions{.step = [&](Tower& tower, TokenStep& step) {
        return models::gpt_step(tower, step, size_of_model(tokens));
      }});
  DatasetFactory source;  // set once flags are read; training and tests share a file
  const auto text = [&](const RunDirs& dirs, bool train) {
    if (tokens.kind == "llmc" && !samples->options.begin.empty())
      throw FlagError(
          "--sample has no use beside --tokens=llmc: nobody knows what these tokens "
          "stand for; leave it out");
    if (!source)
      source = data::text({.tokens = tokens.kind,
                           .length = kTime,
                           .per_epoch = kWindowsPerEpoch,
                           .vocabulary = tokens.most()});
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
                .flags = flags_of(tokens, *samples, smoothing)});
}
