#include "belfry/trainers/data/not_finite_input.h"

#include "belfry/framework/base/not_finite.h"
#include "belfry/framework/base/text.h"

namespace belfry {

std::string not_finite_input(const Dataset& data, std::span<const Tensor> tensors,
                             std::span<const std::int64_t> samples, const std::string& kind) {
  const std::vector<Dataset::Field> fields = data.signature();
  for (std::size_t f = 0; f < fields.size(); ++f) {
    const Tensor& rows = tensors[f];
    auto found = find_not_finite(rows.dtype(), {rows.raw(), rows.bytes()});
    if (!found) continue;
    const std::int64_t per_sample = rows.elements() / rows.shape()[0];
    const auto row = static_cast<std::size_t>(found->element / per_sample);
    found->element %= per_sample;
    if (row < samples.size())
      return cat("field '", fields[f].name, "' of ", kind, " sample ", samples[row], " has ",
                 *found);
  }
  return "";
}

std::string not_finite_input(const Dataset& data, const BatchPlan& plan, TowerSpan towers,
                             const Batch& batch) {
  std::vector<std::int64_t> order(static_cast<std::size_t>(plan.order_size()));
  plan.shuffle(batch.position.epoch, order);
  for (std::int64_t t = 0; t < towers.count; ++t)
    if (std::string text =
            not_finite_input(data, batch.tower(t),
                             plan.rows(order, batch.position.batch, towers.first + t), "training");
        !text.empty())
      return text;
  return "";
}

}  // namespace belfry
