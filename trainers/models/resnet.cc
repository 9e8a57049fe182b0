// Residual networks (He et al. 2015).
#include <array>

#include "belfry/framework/base/text.h"
#include "belfry/framework/core_ops/constant.h"
#include "belfry/framework/core_ops/initializers.h"
#include "belfry/ops/convolution/max_pool.h"
#include "belfry/ops/operand.h"
#include "belfry/ops/reduce.h"
#include "belfry/ops/relu.h"
#include "belfry/towers/layers.h"
#include "belfry/trainers/models/classify_impl.h"
#include "belfry/trainers/models/models.h"
#include "belfry/trainers/util/option_error.h"

namespace belfry::models {
namespace {

// A residual network: its layers.
struct ResNet {
  Tower& tower;
  BatchNormOver over;
  PaddingStyle style = PaddingStyle::kSame;

  // Of a window, which is odd.
  Padding padding(int window) const {
    return style == PaddingStyle::kTorch ? Padding(window / 2) : Padding::kSame;
  }
  Output conv_bn(const std::string& name, Output x, ConvLayer layer, Initializer gamma = {}) const;
  // For ImageNet: a convolution of 1 x 1 brings a shortcut to the size of its block.
  Output shortcut(Output x, int filters, int stride) const;
  Output basic_block(const std::string& name, Output x, int filters, int stride) const;
  Output bottleneck(const std::string& name, Output x, int width, int stride) const;
  // For CIFAR: shortcuts have no parameters.
  Output small_block(const std::string& name, Output x, int filters, int stride) const;
};

Output ResNet::conv_bn(const std::string& name, Output x, ConvLayer layer,
                       Initializer gamma) const {
  layer.bias = false;
  layer.padding = padding(layer.kernel.vertical);
  layer.init = init::he_normal();
  x = conv2d(tower, name, x, layer);
  return batch_norm(
      tower, name + "/bn", x,
      {.synchronised = over == BatchNormOver::kSynchronised, .gamma = std::move(gamma)});
}

// Every stride-th pixel, and zeros in the channels that x lacks: a convolution with the identity.
Output padded_shortcut(Tower& tower, Output x, int filters, int stride) {
  const std::int64_t channels = x.shape().back();
  Tensor identity({filters, 1, 1, channels}, DType::kF32);
  const auto values = identity.mutable_data<float>();
  for (std::int64_t c = 0; c < channels; ++c)
    values[static_cast<std::size_t>(c * channels + c)] = 1;
  return conv2d(x, constant(tower.graph(), std::move(identity), "shortcut"), {.stride = stride});
}

Output ResNet::small_block(const std::string& name, Output x, int filters, int stride) const {
  const VariableScope block(tower.graph(), name);
  const bool same = stride == 1 && x.shape().back() == filters;
  const Output shortcut = same ? x : padded_shortcut(tower, x, filters, stride);
  x = relu(conv_bn("conv1", x, {.filters = filters, .stride = stride}));
  return relu(conv_bn("conv2", x, {.filters = filters}) + shortcut);
}

Output ResNet::shortcut(Output x, int filters, int stride) const {
  if (stride == 1 && x.shape().back() == filters) return x;
  return conv_bn("shortcut", x, {.filters = filters, .kernel = 1, .stride = stride});
}

Output ResNet::basic_block(const std::string& name, Output x, int filters, int stride) const {
  const VariableScope block(tower.graph(), name);
  const Output beside = shortcut(x, filters, stride);
  x = relu(conv_bn("conv1", x, {.filters = filters, .stride = stride}));
  return relu(conv_bn("conv2", x, {.filters = filters}, init::zeros()) + beside);
}

Output ResNet::bottleneck(const std::string& name, Output x, int width, int stride) const {
  const VariableScope block(tower.graph(), name);
  const int filters = 4 * width;
  const Output beside = shortcut(x, filters, stride);
  x = relu(conv_bn("conv1", x, {.filters = width, .kernel = 1}));
  x = relu(conv_bn("conv2", x, {.filters = width, .kernel = 3, .stride = stride}));
  x = conv_bn("conv3", x, {.filters = filters, .kernel = 1}, init::zeros());
  return relu(x + beside);
}

// The blocks of each of the four groups.
struct Depth {
  int layers;
  bool has_bottlenecks;
  std::array<int, 4> blocks;
};
constexpr Depth kDepths[] = {{18, false, {2, 2, 2, 2}},
                             {34, false, {3, 4, 6, 3}},
                             {50, true, {3, 4, 6, 3}},
                             {101, true, {3, 4, 23, 3}},
                             {152, true, {3, 8, 36, 3}}};

const Depth& find_depth(int layers) {
  for (const Depth& depth : kDepths)
    if (depth.layers == layers) return depth;
  refuse_option<OptionMistake>("depth", "=", layers, " is none of 18, 34, 50, 101, 152");
}

}  // namespace

Output resnet20(Tower& tower, Output image, Output label, const ModelOptions& options) {
  const ResNet net{tower, options.batch_norm};
  constexpr int kGroups = 3, kBlocks = 3;
  Output x = relu(net.conv_bn("conv0", image, {.filters = 16}));
  for (int g = 0; g < kGroups; ++g)
    for (int b = 0; b < kBlocks; ++b)
      x = net.small_block(cat("group", g, "/block", b), x, 16 << g, b == 0 && g > 0 ? 2 : 1);
  return classify(tower, dense(tower, "fc", reduce_mean(x, {1, 2}), {.units = 10}), label,
                  options.label_smoothing);
}

Output resnet(Tower& tower, Output image, Output label, int depth, const ModelOptions& options) {
  const ResNet net{tower, options.batch_norm, options.padding};
  const Depth& of = find_depth(depth);
  Output x = relu(net.conv_bn("conv0", image, {.filters = 64, .kernel = 7, .stride = 2}));
  x = max_pool(x, {.window = 3, .stride = 2, .padding = net.padding(3)});
  for (int g = 0; g < 4; ++g)
    for (int b = 0; b < of.blocks[static_cast<std::size_t>(g)]; ++b) {
      const std::string name = cat("group", g, "/block", b);
      const int stride = b == 0 && g > 0 ? 2 : 1;
      x = of.has_bottlenecks ? net.bottleneck(name, x, 64 << g, stride)
                             : net.basic_block(name, x, 64 << g, stride);
    }
  return classify(tower, dense(tower, "fc", reduce_mean(x, {1, 2}), {.units = options.classes}),
                  label, options.label_smoothing);
}

}  // namespace belfry::models
