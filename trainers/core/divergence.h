// Training that went astray: losses, of training or of the last test, or weights that are NaN or
// infinite.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "belfry/trainers/core/trainer.h"

namespace belfry {

struct Divergence {
  double loss = 0;                              // of the last step
  std::optional<std::int64_t> loss_since = {};  // Trainer::not_finite_since()
  // The first trainable variable with a value that is not finite, and that value: "'fc/W' f32[2,1]
  // (built at model.cc:7) has nan at element 0". "" if there is none.
  std::string variable = {};

  std::optional<double> test_loss = {};  // of the last test, if it is not finite

  explicit operator bool() const { return loss_since || !variable.empty() || test_loss; }
  // For people; "" unless it has diverged.
  std::string str() const;
};

// Reads the trainable variables. For between two runs, such as after Trainer::train().
Divergence find_divergence(Trainer& trainer);

}  // namespace belfry
