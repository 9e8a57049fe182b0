// Short trainings, for tests of what changes combined gradients.
#pragma once
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "belfry/framework/base/text.h"
#include "belfry/tests/support/test_devices.h"
#include "belfry/tests/trainers/core/small_problem.h"
#include "belfry/trainers/core/trainer.h"
#include "belfry/trainers/core/trainer_kinds.h"
#include "belfry/trainers/data/synthetic_data.h"
#include "belfry/trainers/models/models.h"
#include "belfry/trainers/util/hash.h"

namespace belfry::test {

// How the MLP is trained.
struct MlpMode {
  std::string kind = "replicated", strategy = "collective";
  int towers = 4;
};

// The hashes of weights and of all state after options.epochs times three batches of the MLP.
// `options` needs no model, devices, batch size and shards.
inline std::string mlp_hashes(const MlpMode& mode, TrainerOptions options) {
  const ModelSpec spec = find_model("mlp", 6);
  const auto data = synthetic_data(spec.fields, spec.classes, 96, 5);
  options.model = spec.model;
  options.devices = devices(mode.towers);
  options.aggregation.allreduce = mode.strategy;
  options.batch_size = 32 / mode.towers;
  options.session.logical_gpus = logical_gpus();
  options.session.deterministic = true;
  if (logical_gpus() == 1 && (mode.kind == "simple" || mode.towers < 8)) options.shards = 8;
  Trainer trainer(find_trainer(mode.kind), std::move(options), *data);
  trainer.train();
  EXPECT_TRUE(differing_replicas(trainer.session(), trainer.graph()).empty());
  return cat(params_hash(trainer.session(), trainer.graph()), " ",
             state_hash(trainer.session(), trainer.graph()));
}

// How far each weight of a smooth_model moves.
inline std::vector<double> moves(TrainerOptions options) {
  const auto data = smooth_data(16);
  Trainer trainer(find_trainer("replicated"), std::move(options), *data);
  const std::vector<Variable>& weights = trainer.built().nodes().towers[0].trainables;
  std::vector<Tensor> before;
  for (const Variable v : weights) before.push_back(trainer.session().read(v));
  trainer.train();
  std::vector<double> result;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const Tensor after = trainer.session().read(weights[i]);
    for (std::size_t j = 0; j < after.data<double>().size(); ++j)
      result.push_back(after.data<double>()[j] - before[i].data<double>()[j]);
  }
  return result;
}

// Why these options of a smooth_model are refused.
inline std::string refusal(const char* kind, TrainerOptions options) {
  const auto data = smooth_data(16);
  try {
    Trainer trainer(find_trainer(kind), std::move(options), *data);
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "(accepted)";
}

}  // namespace belfry::test
