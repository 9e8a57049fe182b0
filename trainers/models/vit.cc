#include "belfry/trainers/models/vit.h"

#include "belfry/framework/base/text.h"
#include "belfry/framework/core_ops/initializers.h"
#include "belfry/ops/broadcast_to.h"
#include "belfry/ops/concat.h"
#include "belfry/ops/gelu.h"
#include "belfry/ops/operand.h"
#include "belfry/ops/reshape.h"
#include "belfry/ops/slice.h"
#include "belfry/towers/attention_layers.h"
#include "belfry/towers/layers.h"
#include "belfry/trainers/models/classify_impl.h"
#include "belfry/trainers/models/size_flags_impl.h"
#include "belfry/trainers/util/option_error.h"

namespace belfry::models {
namespace {

void check_vit_size(const VitSize& size) {
  const auto check = [](bool holds, std::string_view option, const auto&... text) {
    require_option<OptionMistake>(holds, option, "=", text...);
  };
  check(size.patch >= 1 && size.image_size % size.patch == 0, "patch", size.patch,
        " does not divide the ", size.image_size, " pixels of an image (", the_option("image_size"),
        ")");
  check(size.heads >= 1 && size.width % size.heads == 0, "heads", size.heads,
        " does not divide the width ", size.width, " (", the_option("width"), ")");
}

Output encoder_block(Tower& tower, std::string_view name, Output x, const VitSize& size) {
  const VariableScope scope(tower.graph(), name);
  const LayerNormLayer norm{.epsilon = size.norm_epsilon};
  const std::int64_t mlp_width = size.mlp_width > 0 ? size.mlp_width : 4 * size.width;
  const Output y = multi_head_attention(tower, "attention", layer_norm(tower, "norm0", x, norm),
                                        {.heads = static_cast<int>(size.heads)});
  x = x + dropout(tower, y, size.dropout);
  Output z = dense(tower, "fc0", layer_norm(tower, "norm1", x, norm),
                   {.units = static_cast<int>(mlp_width)});
  z = dense(tower, "fc1", dropout(tower, gelu(z), size.dropout),
            {.units = static_cast<int>(size.width)});
  return x + dropout(tower, z, size.dropout);
}

}  // namespace

Output vit(Tower& tower, Output image, Output label, const VitSize& size, double label_smoothing) {
  check_vit_size(size);
  Graph& graph = tower.graph();
  const VariableOptions learned{.initializer = init::normal(0.02)};
  const std::int64_t side = size.image_size / size.patch;
  const Output patches = reshape(conv2d(tower, "patches", image,
                                        {.filters = static_cast<int>(size.width),
                                         .kernel = static_cast<int>(size.patch),
                                         .stride = static_cast<int>(size.patch)}),
                                 {kUnknownSize, side * side, size.width});
  const Output token = variable(graph, "class_token", {1, 1, size.width}, learned);
  const Output places = variable(graph, "places", {side * side + 1, size.width}, learned);
  // One token for each image.
  const Output tokens = broadcast_to(token, slice(patches, {0, 0, 0}, {-1, 1, -1}));
  Output x = dropout(tower, concat({tokens, patches}, 1) + places, size.dropout);
  for (int i = 0; i < size.layers; ++i) x = encoder_block(tower, cat("block", i), x, size);
  x = layer_norm(tower, "norm", slice(x, {0, 0, 0}, {-1, 1, -1}), {.epsilon = size.norm_epsilon});
  const Output logits = dense(tower, "head", flatten(x), {.units = static_cast<int>(size.classes)});
  return classify(tower, logits, label, label_smoothing);
}

std::vector<OwnOption> vit_flags(VitSize& size, std::string& preset) {
  // Table 1 of the paper has B; Ti and S are those of DeiT (Touvron et al. 2021, table 1).
  const auto for_imagenet = [](const char* name, const char* heads, const char* width) {
    return OwnOption::Choice{name,
                             {"data_format=tfrecord", "image_size=224", "patch=16", "layers=12",
                              heads, width, "mlp_width=0", "classes=1000", "norm_epsilon=1e-6"}};
  };
  return {preset_flag(preset,
                      {{"cifar",
                        {"data_format=cifar10", "image_size=32", "patch=4", "layers=4", "heads=4",
                         "width=64", "mlp_width=0", "classes=10", "norm_epsilon=1e-5"}},
                       for_imagenet("ti16", "heads=3", "width=192"),
                       for_imagenet("s16", "heads=6", "width=384"),
                       for_imagenet("b16", "heads=12", "width=768")}),
          size_flag("patch", size.patch, 1, "height and width of a patch, pixels"),
          size_flag("layers", size.layers, 1, "blocks of attention and dense layers"),
          size_flag("heads", size.heads, 1, "heads of attention; they divide the width"),
          size_flag("width", size.width, 1, "elements of a patch between blocks"),
          size_flag("mlp_width", size.mlp_width, 0,
                    "elements of a patch inside the dense layers of a block; 0: 4 times the width"),
          dropout_flag(size.dropout, "probability that an element is zero in a training step"),
          norm_epsilon_flag(size.norm_epsilon)};
}

}  // namespace belfry::models
