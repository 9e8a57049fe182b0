// Measures a model on data that it does not train on.
#pragma once
#include <vector>

#include "belfry/framework/session.h"
#include "belfry/trainers/batches.h"
#include "belfry/trainers/training_graph.h"

namespace belfry {

class Evaluator {
 public:
  // Compiles the predictor for batches of `batch` samples, and for the shorter one that may be left at
  // the end of the data. Borrows all.
  Evaluator(Session& session, const TowerRecord& predictor, const Dataset& data, std::int64_t batch);

  // The loss and each metric of the predictor, in its order: means over all samples, each taken exactly
  // once. Batches count by their numbers of samples.
  std::vector<NamedValue> run();

 private:
  struct Shot {
    Step* step = nullptr;
    std::vector<Tensor> inputs;
    std::vector<std::byte*> memory;  // of inputs
  };

  Shot prepare(Session& session, std::int64_t batch) const;

  const TowerRecord& predictor_;
  const Dataset& data_;
  EvaluationPlan plan_;
  Shot full_, last_;
};

}  // namespace belfry
