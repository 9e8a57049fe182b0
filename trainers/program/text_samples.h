// Samples of text that a model writes while it is trained.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "belfry/towers/attention_layers.h"
#include "belfry/trainers/core/callbacks.h"

namespace belfry {

class TextGenerator;

struct TextSampleOptions {
  std::string begin = "";         // the text that a sample continues; "": a line break
  std::int64_t tokens = 200;      // added to it
  double temperature = 0.8;       // logits are divided by it; 0: the most probable token
  std::string output = "logits";  // name of the model's output (Tower::output)
  // The logits [1, tokens] of what follows one more token, by the model's variables, such as
  // models::gpt_step(): a token then costs one position. Empty: each runs the model over all of
  // them.
  std::function<Output(Tower&, TokenStep&)> step = {};
};

// Prints a sample after each epoch, after a last epoch that was cut short, and for a run that had
// ended before (by TrainerOptions::say). The fields of the data begin with tokens i32 [time]. The
// model is causal, and its output has a row of logits per token: [n time, tokens]. Each token is
// drawn by its probability, as a function of the seed, the step and its place. It depends on the
// tokens before it: all of them as long as they fit into the model's time. Then the last half of
// them stays, and grows again. Prints nothing if the data have no vocabulary, unless a beginning
// was requested.
class TextSamples final : public Callback {
 public:
  explicit TextSamples(TextSampleOptions wanted = {});
  ~TextSamples() override;
  // Throws OptionMistake, naming the option sample, if no token stands for a part of the beginning.
  void check(Trainer& trainer) const override;
  // Throws InvalidArgument if inputs or output have other shapes, and NotFoundError if there is no
  // such output.
  void setup(Trainer& trainer) override;
  void after_epoch(Trainer& trainer, const StepInfo& info) override;
  void after_training(Trainer& trainer, const StepInfo& info) override;
  void on_ended_run(Trainer& trainer) override;

  TextSampleOptions options;  // read by setup()

 private:
  std::unique_ptr<TextGenerator> generator(Trainer& trainer) const;
  void show(Trainer& trainer, std::int64_t step);

  std::unique_ptr<TextGenerator> generator_;
  std::vector<std::int32_t> begin_;
  std::int64_t shown_at_ = -1;  // step
};

}  // namespace belfry
