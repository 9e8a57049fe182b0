#include "belfry/trainers/core/model.h"

#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"

namespace belfry {

std::vector<std::size_t> ModelFunction::arities() const {
  std::vector<std::size_t> result;
  for (std::size_t n = 0; n < calls_.size(); ++n)
    if (calls_[n]) result.push_back(n);
  return result;
}

Output ModelFunction::operator()(Tower& tower, std::span<const Output> inputs) const {
  const std::size_t n = inputs.size();
  require(static_cast<bool>(*this), "no model was given");
  std::vector<std::string> names;
  for (const Output& input : inputs) names.push_back(cat(input.name(), " ", input.type()));
  require(n < calls_.size() && calls_[n], "the model takes ", join(arities(), " or "),
          " inputs after the tower, but the data have ", n, " fields: ", join(names));
  const Output loss = calls_[n](tower, inputs);
  if (const std::vector<std::string>& named = tower.losses(); !named.empty()) {
    require(!loss, "the model names the losses ", join(named), " and returns ",
            loss ? loss.name() : "", ", too; return {} from a function that names its losses");
    return loss;
  }
  if (!loss && tower.loss()) return loss;
  require(static_cast<bool>(loss), "the model returned an empty Output instead of a loss");
  require(loss.shape().rank() == 0 && is_floating(loss.dtype()), "the model returned ", loss.type(),
          " '", loss.name(), "' (built at ", loss.node().origin().site,
          ") instead of a scalar loss; use reduce_mean");
  return loss;
}

void ModelFunction::build(Tower& tower, std::span<const Output> inputs) const {
  if (const Output loss = (*this)(tower, inputs)) tower.loss(loss);
}

}  // namespace belfry
