#include "belfry/towers/layers.h"

#include <algorithm>
#include <array>

#include "belfry/framework/core_ops/constant.h"
#include "belfry/framework/core_ops/initializers.h"
#include "belfry/framework/core_ops/random.h"
#include "belfry/ops/cast.h"
#include "belfry/ops/conv1d.h"
#include "belfry/ops/convolution/conv2d_transpose.h"
#include "belfry/ops/gather.h"
#include "belfry/ops/matmul.h"
#include "belfry/ops/normalization/batch_norm.h"
#include "belfry/ops/normalization/batch_statistics.h"
#include "belfry/ops/normalization/group_norm.h"
#include "belfry/ops/normalization/layer_norm.h"
#include "belfry/ops/operand.h"
#include "belfry/ops/reshape.h"
#include "belfry/ops/shape_of.h"
#include "belfry/ops/stop_gradient.h"
#include "belfry/towers/layer_scope_impl.h"

namespace belfry {
namespace {

constexpr std::string_view kTransposed = "conv2d_transpose";

Output add_bias(Tower& tower, Output x, bool trainable, At at) {
  const Variable b = variable(
      tower.graph(), "b", {x.shape().back()},
      {.dtype = variable_dtype(x), .initializer = init::zeros(), .trainable = trainable}, at);
  return x + cast(b, x.dtype());
}

// The first value of the gains of a normalisation.
template <class Layer>
Initializer gamma_of(const Layer& layer) {
  return layer.gamma ? layer.gamma : init::ones();
}

// A variable with one factor per column of x.
Variable column_variable(Tower& tower, std::string_view name, Output x, const Initializer& init,
                         bool trainable, SourceLine site) {
  return variable(tower.graph(), name, {x.shape().back()},
                  {.dtype = x.dtype(), .initializer = init, .trainable = trainable}, site);
}

Variable moment_variable(Tower& tower, std::string_view name, const Shape& shape, DType dtype,
                         double initial, At at) {
  return variable(tower.graph(), name, shape,
                  {.dtype = dtype, .initializer = init::constant(initial), .trainable = false}, at);
}

// The averages of a batch norm layer are one copy for all towers: tower 0's, or those that a
// variable scope shares.
Variable average(Tower& tower, std::string_view name, const Shape& shape, DType dtype,
                 double initial, At at) {
  Graph& graph = tower.graph();
  if (tower.is_training() && tower.options().here > 0) {
    const std::string path = cat(graph.scopes().variable_path(), "/", name);
    const std::string_view logical = std::string_view(path).substr(tower.variable_prefix().size());
    const Variable found = graph.stored_variable(logical);
    require(static_cast<bool>(found), "towers disagree: tower ", tower.options().index,
            " has variable '", logical, "' (built at ", at.site, "), but tower 0 has not");
    require(found.shape() == shape && found.dtype() == dtype, "towers disagree on variable '",
            logical, "': ", found.node().output_type(0), " in tower 0 (built at ",
            found.node().origin().site, "), ", TensorType{shape, dtype}, " in tower ",
            tower.options().index, " (built at ", at.site, ")");
    return found;
  }
  HostScope host(graph, tower.device().merged_with(enclosing_device(graph)));
  return moment_variable(tower, name, shape, dtype, initial, at);
}

// How many values per channel the moments of x cover, if known.
double known_values(const Shape& x) {
  for (std::size_t axis = 0; axis + 1 < x.rank(); ++axis)
    if (x[axis] == kUnknownSize) return 0;
  return static_cast<double>(x.product(0, x.rank() - 1));
}

// The count by which the variance of x is corrected before it moves its average. As in TensorFlow,
// this is done from rank 4 on. `counted`: the count if only a run knows it.
template <class F>
ValueCount correcting_count(Output x, const F& counted) {
  if (x.shape().rank() < 4) return {};
  const double known = known_values(x.shape());
  return {.known = known, .counted = known > 0 ? Output() : counted()};
}

// Mean, variance and the number of all rows, over the batches of all towers.
std::array<Output, 3> shared_moments(Tower& tower, Output x, At at) {
  const auto outputs = [](const Node& all) -> std::array<Output, 3> {
    return {all.output(0), all.output(1), all.output(2)};
  };
  const Output parts[] = {x, constant(tower.graph(), 1.0, x.dtype(), At("weight", at.site))};
  // The node is the same as with peers, so that a run knows its model on other devices.
  if (!tower.links().has_peers())
    return outputs(tower.graph().add(kBatchStatistics, parts, at.site));
  const std::string_view name = tower.graph().scopes().variable_path();
  return outputs(tower.links().join(
      kBatchStatistics, parts,
      cat("synchronised batch norm '", name.substr(tower.variable_prefix().size()), "'"), at.site));
}

// A dense layer over the last dimension, as one product of all rows.
Output dense_of_rows(Tower& tower, std::string_view name, Output x, const DenseLayer& layer,
                     At at) {
  std::vector<std::int64_t> dims = x.shape().dims();
  dims.back() = layer.units;
  require_layer(std::ranges::count(dims, kUnknownSize) <= 1, "dense", name, at.site,
                cat("at most one dimension of ", x.type(), " may be unknown"));
  const Output rows = reshape(x, {kUnknownSize, x.shape().back()}, at.site);
  return reshape(dense(tower, name, rows, layer, at.site), Shape(dims), at.site);
}

// A layer of an op with variables W [from,kernel...,to/groups] and b. apply(W) gives y before the
// bias.
template <class Layer, class Apply>
Output convolution_layer(Tower& tower, std::string_view what, std::string_view name, Output x,
                         const Layer& layer, const Shape& kernel, const Apply& apply, At at) {
  require_channels(what, name, x, kernel.rank() + 2, at.site);
  require_layer(
      layer.filters > 0 && std::ranges::all_of(kernel.dims(), [](auto d) { return d > 0; }), what,
      name, at.site,
      cat("needs filters and a kernel of at least 1, not ", layer.filters, " and ", kernel));
  const std::int64_t channels = x.shape().back();
  require_layer(
      layer.groups > 0 && channels % layer.groups == 0 && layer.filters % layer.groups == 0, what,
      name, at.site,
      cat("groups must divide the ", channels, " channels of x and the ", layer.filters,
          " filters, which ", layer.groups, " does not"));
  LayerScope scope(tower, what, name, at);
  const bool transposed = what == kTransposed;
  std::vector<std::int64_t> dims = kernel.dims();
  dims.insert(dims.begin(), transposed ? channels : layer.filters);
  dims.push_back((transposed ? layer.filters : channels) / layer.groups);
  const Variable w = variable(
      tower.graph(), "W", Shape(dims),
      {.dtype = variable_dtype(x), .initializer = layer.init, .trainable = layer.trainable},
      at.site);
  const Output y = apply(cast(w, x.dtype()));
  return layer.bias ? add_bias(tower, y, layer.trainable, at.site) : y;
}

Shape kernel_shape(const ConvLayer& layer) {
  return {layer.kernel.vertical, layer.kernel.horizontal};
}

// Options of the op, for Conv2dOptions and Conv1dOptions.
template <class Options, class Layer>
Options conv_options(const Layer& layer) {
  return {.stride = layer.stride,
          .padding = layer.padding,
          .dilation = layer.dilation,
          .groups = layer.groups};
}

}  // namespace

Output conv2d(Tower& tower, std::string_view name, Output x, ConvLayer layer, At at) {
  const auto apply = [&](Output w) {
    return conv2d(x, w, conv_options<Conv2dOptions>(layer), at.site);
  };
  return convolution_layer(tower, "conv2d", name, x, layer, kernel_shape(layer), apply, at.site);
}

Output conv2d_transpose(Tower& tower, std::string_view name, Output x, ConvLayer layer, At at) {
  const auto apply = [&](Output w) {
    return conv2d_transpose(x, w, conv_options<Conv2dOptions>(layer), at.site);
  };
  return convolution_layer(tower, kTransposed, name, x, layer, kernel_shape(layer), apply, at.site);
}

Output conv1d(Tower& tower, std::string_view name, Output x, Conv1dLayer layer, At at) {
  const auto apply = [&](Output w) {
    return conv1d(x, w, conv_options<Conv1dOptions>(layer), at.site);
  };
  return convolution_layer(tower, "conv1d", name, x, layer, {layer.kernel}, apply, at.site);
}

Output dense(Tower& tower, std::string_view name, Output x, DenseLayer layer, At at) {
  require_layer(x.shape().rank() >= 1, "dense", name, at.site,
                cat("takes vectors of features, not ", x.type()));
  require_channels("dense", name, x, x.shape().rank(), at.site);
  require_layer(layer.units > 0, "dense", name, at.site,
                cat("needs at least 1 unit, not ", layer.units));
  if (x.shape().rank() != 2) return dense_of_rows(tower, name, x, layer, at);
  LayerScope scope(tower, "dense", name, at);
  const Variable w = variable(
      tower.graph(), "W", {x.shape().back(), layer.units},
      {.dtype = variable_dtype(x), .initializer = layer.init, .trainable = layer.trainable},
      at.site);
  const Output y = matmul(x, cast(w, x.dtype()), {}, at.site);
  return layer.bias ? add_bias(tower, y, layer.trainable, at.site) : y;
}

namespace {

// Nothing moves the averages of a frozen layer, so each tower has a copy of them where it computes,
// as of other variables. The layer is a constant to differentiation but for x.
Output frozen_batch_norm(Tower& tower, Output x, Variable gamma, Variable beta,
                         const BatchNormLayer& layer, At at) {
  const Shape shape{x.shape().back()};
  const auto average = [&](std::string_view name, double initial) {
    return moment_variable(tower, name, shape, x.dtype(), initial, at.site);
  };
  const Variable mean = average("mean/EMA", 0), variance = average("variance/EMA", 1);
  return batch_norm_inference(x, stop_gradient(gamma), stop_gradient(beta), stop_gradient(mean),
                              stop_gradient(variance), {.epsilon = layer.epsilon}, at.site);
}

// x is of f32 or f64. `given` is what it was cast from.
Output wide_batch_norm(Tower& tower, Output x, Output given, const BatchNormLayer& layer, At at) {
  const Shape shape{x.shape().back()};
  const DType dtype = x.dtype();
  const Variable gamma =
      column_variable(tower, "gamma", x, gamma_of(layer), layer.trainable, at.site);
  const Variable beta = column_variable(tower, "beta", x, init::zeros(), layer.trainable, at.site);
  const bool frozen = !gamma.trainable() && !beta.trainable();
  if (frozen && tower.is_training()) return frozen_batch_norm(tower, x, gamma, beta, layer, at);
  const Variable mean = average(tower, "mean/EMA", shape, dtype, 0, at.site);
  const Variable variance = average(tower, "variance/EMA", shape, dtype, 1, at.site);
  if (!tower.is_training())
    return batch_norm_inference(x, gamma, beta, mean, variance, {.epsilon = layer.epsilon},
                                at.site);
  const auto record = [&](Output batch_mean, Output batch_variance, const ValueCount& values) {
    tower.links().record({.mean_average = mean,
                          .variance_average = variance,
                          .mean = batch_mean,
                          .variance = batch_variance,
                          .momentum = layer.momentum,
                          .site = at.site,
                          .synchronised = layer.synchronised,
                          .values = values});
  };
  if (layer.synchronised) {
    const auto [all_mean, all_variance, count] = shared_moments(tower, x, at);
    ValueCount values = correcting_count(x, [&, count = count] { return count; });
    if (values) values.counted = count;
    record(all_mean, all_variance, values);
    return batch_norm_inference(x, gamma, beta, all_mean, all_variance, {.epsilon = layer.epsilon},
                                at.site);
  }
  const BatchNorm train = batch_norm_train(x, gamma, beta, {.epsilon = layer.epsilon}, at.site);
  record(train.mean, train.variance, correcting_count(x, [&] {
           return cast(size_of(given, at.site), dtype) / static_cast<double>(shape[0]);
         }));
  return train.y;
}

}  // namespace

Output batch_norm(Tower& tower, std::string_view name, Output x, BatchNormLayer layer, At at) {
  require_channels("batch_norm", name, x, x.shape().rank(), at.site);
  require_layer(layer.momentum >= 0 && layer.momentum <= 1, "batch_norm", name, at.site,
                cat("momentum must be from 0 to 1, not ", layer.momentum));
  require_layer(layer.epsilon > 0, "batch_norm", name, at.site,
                cat("epsilon must be positive, not ", layer.epsilon));
  LayerScope scope(tower, "batch_norm", name, at);
  return cast(wide_batch_norm(tower, cast(x, variable_dtype(x)), x, layer, at), x.dtype());
}

Output layer_norm(Tower& tower, std::string_view name, Output x, LayerNormLayer layer, At at) {
  require_channels("layer_norm", name, x, x.shape().rank(), at.site);
  LayerScope scope(tower, "layer_norm", name, at);
  const Output wide = cast(x, variable_dtype(x));
  const Variable gamma =
      column_variable(tower, "gamma", wide, gamma_of(layer), layer.trainable, at.site);
  const Output beta =
      layer.bias
          ? column_variable(tower, "beta", wide, init::zeros(), layer.trainable, at.site)
          : constant(tower.graph(), Tensor(gamma.shape(), wide.dtype()), At("zeros", at.site));
  return cast(layer_norm(wide, gamma, beta, {.epsilon = layer.epsilon}, at.site), x.dtype());
}

Output rms_norm(Tower& tower, std::string_view name, Output x, RmsNormLayer layer, At at) {
  require_channels("rms_norm", name, x, x.shape().rank(), at.site);
  LayerScope scope(tower, "rms_norm", name, at);
  const Output wide = cast(x, variable_dtype(x));
  const Variable gamma =
      column_variable(tower, "gamma", wide, gamma_of(layer), layer.trainable, at.site);
  return cast(rms_norm(wide, gamma, {.epsilon = layer.epsilon}, at.site), x.dtype());
}

namespace {

// gamma and beta for the columns of x.
struct Affine {
  template <class Layer>
  Affine(Tower& tower, Output x, const Layer& layer, SourceLine site)
      : gamma(column_variable(tower, "gamma", x, gamma_of(layer), layer.trainable, site)),
        beta(column_variable(tower, "beta", x, init::zeros(), layer.trainable, site)) {}

  Variable gamma, beta;
};

}  // namespace

Output group_norm(Tower& tower, std::string_view name, Output x, GroupNormLayer layer, At at) {
  require_channels("group_norm", name, x, x.shape().rank(), at.site);
  require_layer(layer.groups > 0 && x.shape().back() % layer.groups == 0, "group_norm", name,
                at.site, cat(layer.groups, " groups do not divide the channels of ", x.type()));
  LayerScope scope(tower, "group_norm", name, at);
  const Output wide = cast(x, variable_dtype(x));
  const Affine to(tower, wide, layer, at.site);
  const GroupNormOptions options{.groups = layer.groups, .epsilon = layer.epsilon};
  return cast(group_norm(wide, to.gamma, to.beta, options, at.site), x.dtype());
}

Output instance_norm(Tower& tower, std::string_view name, Output x, InstanceNormLayer layer,
                     At at) {
  require_channels("instance_norm", name, x, x.shape().rank(), at.site);
  LayerScope scope(tower, "instance_norm", name, at);
  const Output wide = cast(x, variable_dtype(x));
  const InstanceNormOptions options{.epsilon = layer.epsilon};
  if (!layer.affine) return cast(instance_norm(wide, options, at.site), x.dtype());
  const Affine to(tower, wide, layer, at.site);
  return cast(instance_norm(wide, to.gamma, to.beta, options, at.site), x.dtype());
}

Output embedding(Tower& tower, std::string_view name, Output ids, EmbeddingLayer layer, At at) {
  require_layer(
      layer.rows > 0 && layer.width > 0, "embedding", name, at.site,
      cat("needs rows and a width of at least 1, not ", layer.rows, " and ", layer.width));
  LayerScope scope(tower, "embedding", name, at);
  const Variable table = variable(tower.graph(), "table", {layer.rows, layer.width},
                                  {.dtype = variable_dtype(layer.dtype),
                                   .initializer = layer.init ? layer.init : init::normal(0.02),
                                   .trainable = layer.trainable},
                                  at.site);
  return cast(gather(table, ids, at.site), layer.dtype);
}

Output dropout(Tower& tower, Output x, double rate, At at) {
  return tower.is_training() && rate != 0 ? dropout(x, rate, at) : x;
}

Output random_normal(Tower& tower, Output samples, Shape shape, double stddev, DType dtype, At at) {
  const RandomNormalOptions options{std::move(shape), stddev, dtype, !tower.is_training()};
  return tower.graph().add(kRandomNormal, {samples}, at, NodeOptions(options)).output();
}

Output random_uniform(Tower& tower, Output samples, Shape shape, double low, double high,
                      DType dtype, At at) {
  const RandomUniformOptions options{std::move(shape), low, high, dtype, !tower.is_training()};
  return tower.graph().add(kRandomUniform, {samples}, at, NodeOptions(options)).output();
}

}  // namespace belfry
