// A transformer that learns to write, token by token. Try: gpt --devices=cpu:2 --data_dir=DIR, with
// the text in DIR/input.txt; then the same with --run_dir=RUN, and again with --sample="ROMEO:".
#include <memory>

#include "belfry/belfry.h"
#include "belfry/trainers/models/gpt_text.h"
#include "belfry/trainers/models/models.h"
using namespace belfry;

constexpr std::int64_t kWindowsPerEpoch = 3000;

std::vector<OwnOption> flags_of(models::GptText& text, TextSamples& samples, double& smoothing) {
  std::vector<OwnOption> flags = text.flags();
  flags.insert(flags.end(),
               {{.name = "sample",
                 .variable = &samples.options.begin,
                 .text = "the beginning that samples of text continue, after each epoch, and at "
                         "once if the run in --run_dir has ended"},
                label_smoothing_flag(smoothing)});
  return flags;
}

int main(int argc, char** argv) {
  models::GptText text;
  double smoothing = 0;
  const auto model = [&](Tower& tower, Output token, Output label) {
    return models::gpt(tower, token, label, text.sized(), smoothing);
  };
  const auto samples =
      std::make_shared<TextSamples>(TextSampleOptions{.step = [&](Tower& tower, TokenStep& step) {
        return models::gpt_step(tower, step, text.sized());
      }});
  DatasetFactory source;  // set once flags are read; training and tests share a file
  const auto windows = [&](const RunDirs& dirs, bool train) {
    if (text.tokens == "llmc" && text.tokenizer.empty() && !samples->options.begin.empty())
      throw FlagError(
          "--sample has no use beside --tokens=llmc: nobody knows what these tokens stand for; "
          "name their --tokenizer, or leave --sample out");
    if (!source) source = data::text(text.windows(kWindowsPerEpoch));
    return source(dirs, train);
  };
  return train(argc, argv,
               {.model = model,
                .data = windows,
                .optimizer = adamw(scheduled_rate(1e-3, cosine_schedule(1e-4), 100),
                                   {.beta2 = 0.99, .weight_decay = 0.1}),
                .global_batch_size = 12,
                .epochs = 8,  // 2,000 steps
                .callbacks = {samples},
                .flags = flags_of(text, *samples, smoothing)});
}
