// What a model that ctc_loss() has trained reads.
#pragma once
#include <cstdint>

#include "belfry/framework/graph/graph.h"

namespace belfry {

struct CtcBestPathOptions {
  std::int64_t blank = 0;  // CtcOptions::blank
};

struct CtcBestPath {
  Output labels;   // i64 [n, time]: those of a sample first, and then -1
  Output lengths;  // i64 [n]: how many labels a sample has
};

// logits [n, time, c], whose time is known, and logit_lengths [n], i32 or i64 -> the labels of the
// path that takes the largest logit of each step, without repetitions and blanks. Other paths may
// give other labels that are likelier together.
CtcBestPath ctc_best_path(Output logits, Output logit_lengths, CtcBestPathOptions options = {},
                          At at = {});

}  // namespace belfry
