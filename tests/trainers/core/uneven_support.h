// Helpers for tests of uneven batches.
#pragma once
#include <cmath>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "belfry/tests/trainers/core/small_problem.h"
#include "belfry/trainers/core/trainer.h"
#include "belfry/trainers/core/trainer_kinds.h"
#include "belfry/trainers/util/hash.h"

namespace belfry {

// The values of all f64 variables, one variable after the other.
inline std::vector<double> trained(Trainer& trainer) {
  std::vector<double> values;
  for (const Variable v : trainer.graph().variables(kGlobalVariables)) {
    if (v.dtype() != DType::kF64) continue;
    const Tensor value = trainer.session().read(v);
    values.insert(values.end(), value.data<double>().begin(), value.data<double>().end());
  }
  return values;
}

inline void expect_near(const std::vector<double>& got, const std::vector<double>& want,
                        double bound, const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (std::size_t i = 0; i < got.size(); ++i)  // false for NaN
    ASSERT_TRUE(std::abs(got[i] - want[i]) <= bound * (1 + std::abs(want[i])))
        << what << ": " << got[i] << " instead of " << want[i];
}

}  // namespace belfry
