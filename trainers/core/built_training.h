// What a training is built of: one graph, one session and compiled steps, for a kind of trainer,
// options and data.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "belfry/framework/run/session.h"
#include "belfry/trainers/core/arithmetic.h"
#include "belfry/trainers/core/trainer_options.h"
#include "belfry/trainers/core/training_graph.h"
#include "belfry/trainers/core/training_step.h"
#include "belfry/trainers/data/batches.h"
#include "belfry/trainers/data/dataset.h"

namespace belfry {

struct TowerSpan;
struct TrainerKind;

class BuiltTraining {
 public:
  // Arguments and errors are those of Trainer's constructor.
  BuiltTraining(const TrainerKind& kind, TrainerOptions options, const Dataset& train,
                const Dataset* test);
  BuiltTraining(const BuiltTraining&) = delete;
  BuiltTraining& operator=(const BuiltTraining&) = delete;

  const TrainerKind& kind() const { return kind_; }
  // The given options, with choices filled in: strategy, shards, and callbacks in the order of
  // phases.
  const TrainerOptions& options() const { return options_; }
  // All processes of the training; null: there is one.
  Processes* processes() const { return options_.session.processes.get(); }
  const Dataset& train_data() const { return train_; }
  const Dataset* test_data() const { return test_; }
  // Whether there are data to evaluate: test data, or other validation sets.
  bool evaluates() const { return test_ || !options_.validation.empty(); }
  const BatchPlan& batches() const { return batches_; }
  // The towers of this process, among those of all processes.
  TowerSpan own_towers() const;

  Graph& graph() { return graph_; }
  const Graph& graph() const { return graph_; }
  Session& session() { return *session_; }
  // The nodes of the training: its towers, one for each of options().devices in their order, its
  // steps, and towers that predict.
  const TrainingGraph& nodes() const { return nodes_; }
  TrainingSteps& steps() { return steps_; }
  // The plans of all compiled steps: one for each form of batches (more if a step takes several
  // batches), or one for each tower that runs free.
  std::vector<std::shared_ptr<const Plan>> plans() const { return steps_.plans(); }
  // The plans of one training step with full batches.
  std::vector<PlanOfStep> plans_of_step() const;

  // Lines for people: what "auto" chose for options().aggregation.allreduce, and why. "" without
  // "auto".
  const std::string& choice() const { return choice_; }
  // The default number of shards, before it was raised to one per device; 0: options had a number.
  int shards_by_default() const { return default_shards_; }
  // Whether a step that is not finite changes nothing (OnNonfinite).
  bool guards() const;
  // Whether a step takes several batches, each of which moves averages of batch norm.
  bool moves_averages_by_batch() const;
  // None unless the precision is f16.
  std::optional<double> loss_scale();

  // What all processes compute with.
  const Arithmetics& arithmetics() const;
  // Records why earlier parts of the run changed its bits (earlier_bits()); "" if none did. A
  // checkpoint keeps it.
  void resume_bits(std::string earlier) { earlier_bits_ = std::move(earlier); }
  const std::string& earlier_bits() const { return earlier_bits_; }
  // Which process computes with other instructions or libraries than rank 0, or why earlier parts
  // of the run changed its bits; "" for neither. If not "", results are not canonical.
  std::string other_bits() const;

 private:
  void choose_shards();
  void compile();

  const TrainerKind& kind_;
  TrainerOptions options_;
  const Dataset& train_;
  const Dataset* test_;
  int default_shards_ = 0;
  std::string choice_, earlier_bits_;
  mutable std::optional<Arithmetics> arithmetics_;
  BatchPlan batches_;
  Graph graph_;
  TrainingGraph nodes_;
  std::unique_ptr<Session> session_;
  TrainingSteps steps_;
};

}  // namespace belfry
