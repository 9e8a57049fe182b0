// Helpers for tests of the trainer "async".
#pragma once
#include <string>

#include "belfry/ops/accuracy.h"
#include "belfry/ops/relu.h"
#include "belfry/ops/reshape.h"
#include "belfry/ops/sparse_softmax_cross_entropy.h"
#include "belfry/tests/trainers/core/small_problem.h"
#include "belfry/trainers/core/trainer.h"
#include "belfry/trainers/core/trainer_kinds.h"
#include "belfry/trainers/util/hash.h"

namespace belfry {

inline TrainerOptions async_options(const char* async, int towers) {
  return {.model = smooth_model,
          .optimizer = sgd(0.1),
          .devices = cpus(towers),
          .async = async,
          .batch_size = 4};
}

inline Output averaged_model(Tower& tower, Output image, Output label) {
  Output x = relu(conv2d(tower, "conv0", image, {.filters = 4, .kernel = 3, .stride = 2}));
  x = batch_norm(tower, "bn0", x);
  x = dropout(tower, relu(dense(tower, "fc0", flatten(x), {.units = 16})), 0.25);
  const Output logits = dense(tower, "fc1", x, {.units = 10});
  tower.metric("accuracy", accuracy(logits, label));
  return cross_entropy(logits, label);
}

struct Hashes {
  std::string params, state;
  bool operator==(const Hashes&) const = default;
};

inline Hashes hashes_of(Trainer& trainer) {
  return {params_hash(trainer.session(), trainer.graph()),
          state_hash(trainer.session(), trainer.graph())};
}

inline TrainerOptions digit_options(const char* async, int towers, int threads = 0) {
  return {.model = averaged_model,
          .optimizer = adam(1e-2),
          .devices = cpus(towers),
          .async = async,
          .batch_size = 8,
          .epochs = 2,
          .session = {.threads = threads}};
}

}  // namespace belfry
