// A training step, compiled: the update of one or more towers, with their losses and metrics.
#pragma once
#include <span>
#include <vector>

#include "belfry/framework/session.h"
#include "belfry/trainers/training_graph.h"

namespace belfry {

class TrainingStep {
 public:
  // Compiles `update` for the inputs of `towers`. `rates` are placeholders of the learning rate.
  TrainingStep(Session& session, Node& update, std::span<const TowerRecord> towers,
               std::span<const Output> rates, PrepareOptions options = {});

  // `inputs`: all fields of the first tower, then of the next. `rate` is fed to the placeholders,
  // if there are any. Allocates nothing, but for a trace.
  void run(std::span<const Tensor> inputs, double rate, RunOptions options = {});
  // Of the last run, the mean over the towers: metric m, 0 being the loss.
  double metric(std::size_t m) const;
  std::size_t metrics() const { return metrics_; }
  const Plan& plan() const { return step_->plan(); }

 private:
  Step* step_;
  std::size_t towers_, metrics_;
  std::vector<Tensor> feeds_;  // only with rates: the inputs and the rates
};

}  // namespace belfry
