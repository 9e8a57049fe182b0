#include "belfry/ops/losses/ctc_best_path.h"

#include "belfry/framework/base/require.h"
#include "belfry/framework/graph/scopes.h"
#include "belfry/ops/cast.h"
#include "belfry/ops/expand_dims.h"
#include "belfry/ops/indexing/cumsum.h"
#include "belfry/ops/indexing/take.h"
#include "belfry/ops/indexing/top_k.h"
#include "belfry/ops/operand.h"
#include "belfry/ops/pointwise/comparisons.h"
#include "belfry/ops/pointwise/where.h"
#include "belfry/ops/reduce.h"
#include "belfry/ops/shapes/constants.h"
#include "belfry/ops/shapes/pad.h"
#include "belfry/ops/slice.h"

namespace belfry {

CtcBestPath ctc_best_path(Output logits, Output logit_lengths, CtcBestPathOptions options, At at) {
  Graph& graph = logits.graph();
  SiteScope site(graph, at.site);
  require(logits.shape().rank() == 3 && logits.shape()[1] != kUnknownSize,
          "ctc_best_path (built at ", graph.scopes().site_or(at.site),
          "): needs logits [n, time, classes] of a known time, not ", logits.type());
  const std::int64_t time = logits.shape()[1];
  const Output path = argmax(logits, 2);
  const Output before = slice(pad(path, {{}, {1, 0}}, {.value = -1}), {0, 0}, {-1, time});
  const Output in_time = less(arange(graph, 0, static_cast<double>(time), 1, DType::kI64),
                              expand_dims(cast(logit_lengths, DType::kI64), 1));
  const Output is_label =
      logical_and(in_time, logical_and(not_equal(path, options.blank), not_equal(path, before)));
  const Output counted = cast(is_label, DType::kI64);
  // Labels move to their places, and all else after the last place, which is cut off.
  const Output place = where(is_label, cumsum(counted, {.axis = 1, .exclusive = true}), time);
  const Output none = zeros_like(pad(path, {{}, {0, 1}}));
  const Output moved = scatter_add(none, place, path + 1, {.axis = 1, .batch_dims = 1});
  return {.labels = slice(moved, {0, 0}, {-1, time}) - 1, .lengths = reduce_sum(counted, {1})};
}

}  // namespace belfry
