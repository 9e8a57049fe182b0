// Text that a model makes up while it is trained.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "belfry/trainers/core/callbacks.h"

namespace belfry {

struct TextSampleOptions {
  std::string begin = "";         // what a sample goes on from; "": a line break
  std::int64_t tokens = 200;      // that are added
  double temperature = 0.8;       // logits are divided by it; above 0
  std::string output = "logits";  // of the model (Tower::output)
};

// Shows a sample after each epoch, after a last epoch that was cut short, and of a run that had
// ended before (Trainer::say). For data whose fields begin with tokens i32 [time], and a model that
// is causal and whose output has a row of logits per token: [n time, tokens]. Each token is drawn
// by its probability, as a function of the seed, the step and its place. Shows none if the data
// have no vocabulary and no beginning was asked for.
class TextSamples final : public Callback {
 public:
  explicit TextSamples(TextSampleOptions wanted = {});
  ~TextSamples() override;
  // Throws OptionMistake for a beginning that has what no token stands for, which it calls the
  // option sample.
  void check(Trainer& trainer) const override;
  // Throws InvalidArgument for inputs and an output of other shapes; NotFoundError for an output
  // that there is not.
  void setup(Trainer& trainer) override;
  void after_epoch(Trainer& trainer, const StepInfo& info) override;
  void after_training(Trainer& trainer, const StepInfo& info) override;
  void on_ended_run(Trainer& trainer) override;

  TextSampleOptions options;  // heeded by setup()

 private:
  struct Model;
  void show(Trainer& trainer, std::int64_t step);
  std::int32_t draw(std::span<const float> logits, std::uint64_t key) const;

  std::unique_ptr<Model> model_;
  std::int64_t shown_at_ = -1;  // step
};

}  // namespace belfry
