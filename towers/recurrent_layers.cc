#include "belfry/towers/recurrent_layers.h"

#include <cmath>

#include "belfry/framework/core_ops/initializers.h"
#include "belfry/ops/cast.h"
#include "belfry/ops/concat.h"
#include "belfry/ops/recurrent/recurrent.h"
#include "belfry/towers/layer_scope_impl.h"
#include "belfry/towers/layers.h"

namespace belfry {
namespace {

// One of the two kinds of recurrent layers.
struct RecurrentKind {
  const char* name;
  std::int64_t gates;
  RecurrentResult (*build)(Output, const RecurrentWeights&, const RecurrentOptions&, At);
  bool has_c;
};

constexpr RecurrentKind kLstmLayer{"lstm", 4, lstm, true};
constexpr RecurrentKind kGruLayer{"gru", 3, gru, false};

void require_recurrent(const RecurrentKind& kind, std::string_view name, Output x,
                       const RecurrentLayer& layer, SourceLine site) {
  const auto require_here = [&](bool condition, const auto&... why) {
    if (!condition) require_layer(false, kind.name, name, site, cat(why...));
  };
  require_channels(kind.name, name, x, 3, site);
  require_here(x.shape()[1] != kUnknownSize, "the time of ", x.type(), " must be known");
  require_here(layer.hidden > 0 && layer.layers > 0,
               "needs hidden units and layers of at least 1, not ", layer.hidden, " and ",
               layer.layers);
  require_here(layer.dropout >= 0 && layer.dropout < 1, "dropout must be in [0, 1), not ",
               layer.dropout);
  const std::size_t states = static_cast<std::size_t>(layer.layers) * (layer.bidirectional ? 2 : 1);
  require_here(layer.h.empty() || layer.h.size() == states, "needs ", states,
               " first states h, one per layer and direction, or none, not ", layer.h.size());
  require_here(kind.has_c || layer.c.empty(), "has no first states c, only h");
  require_here(layer.c.empty() || layer.c.size() == states, "needs ", states,
               " first states c, one per layer and direction, or none, not ", layer.c.size());
}

struct WeightAndBias {
  Output w, b;
};

// Variables W [from,columns] and b [columns] of the scope `name`, in the type of x.
WeightAndBias weight_and_bias(Tower& tower, std::string_view name, Output x, std::int64_t from,
                              std::int64_t columns, const RecurrentLayer& layer, SourceLine site) {
  Graph& graph = tower.graph();
  const VariableScope scope(graph, name, VariableReuse::kInherit, site);
  const double limit = 1 / std::sqrt(static_cast<double>(layer.hidden));
  const VariableOptions options{
      .dtype = variable_dtype(x),
      .initializer = layer.init ? layer.init : init::uniform(-limit, limit),
      .trainable = layer.trainable};
  WeightAndBias result;
  result.w = cast(variable(graph, "W", {from, columns}, options, site), x.dtype(), site);
  if (layer.bias) result.b = cast(variable(graph, "b", {columns}, options, site), x.dtype(), site);
  return result;
}

// One direction of one layer, whose states are number `state`.
RecurrentResult one_direction(Tower& tower, const RecurrentKind& kind, Output x,
                              const RecurrentLayer& layer, bool reverse, std::size_t state,
                              SourceLine site) {
  const std::int64_t columns = kind.gates * layer.hidden;
  const WeightAndBias of_x = weight_and_bias(tower, "input", x, x.shape()[2], columns, layer, site);
  const WeightAndBias of_h =
      weight_and_bias(tower, "hidden", x, layer.hidden, columns, layer, site);
  return kind.build(
      x, {.input = of_x.w, .hidden = of_h.w, .input_bias = of_x.b, .hidden_bias = of_h.b},
      {.h = layer.h.empty() ? Output() : layer.h[state],
       .c = layer.c.empty() ? Output() : layer.c[state],
       .lengths = layer.lengths,
       .reverse = reverse,
       .cudnn = layer.cudnn},
      site);
}

RecurrentOutputs recurrent_layers(Tower& tower, const RecurrentKind& kind, std::string_view name,
                                  Output x, const RecurrentLayer& layer, SourceLine site) {
  require_recurrent(kind, name, x, layer, site);
  Graph& graph = tower.graph();
  const LayerScope scope(tower, kind.name, name, site);
  RecurrentOutputs all;
  const auto add = [&](Output from, bool reverse) {
    const RecurrentResult found =
        one_direction(tower, kind, from, layer, reverse, all.h.size(), site);
    all.h.push_back(found.h);
    if (kind.has_c) all.c.push_back(found.c);
    return found.y;
  };
  for (int i = 0; i < layer.layers; ++i) {
    const VariableScope number(graph, cat("layer", i));
    const Output from = i > 0 && layer.dropout > 0 ? dropout(tower, x, layer.dropout, site) : x;
    x = add(from, false);
    if (!layer.bidirectional) continue;
    const VariableScope backwards(graph, "reverse");
    x = concat({x, add(from, true)}, 2, site);
  }
  all.y = x;
  return all;
}

}  // namespace

RecurrentOutputs lstm(Tower& tower, std::string_view name, Output x, RecurrentLayer layer, At at) {
  return recurrent_layers(tower, kLstmLayer, name, x, layer, at.site);
}

RecurrentOutputs gru(Tower& tower, std::string_view name, Output x, RecurrentLayer layer, At at) {
  return recurrent_layers(tower, kGruLayer, name, x, layer, at.site);
}

}  // namespace belfry
