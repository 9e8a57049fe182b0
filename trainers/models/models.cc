#include "belfry/trainers/models/models.h"

#include <algorithm>

#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/core_ops/constant.h"
#include "belfry/framework/core_ops/initializers.h"
#include "belfry/framework/core_ops/placeholder.h"
#include "belfry/ops/accuracy.h"
#include "belfry/ops/convolution/max_pool.h"
#include "belfry/ops/gather.h"
#include "belfry/ops/gelu.h"
#include "belfry/ops/matmul.h"
#include "belfry/ops/operand.h"
#include "belfry/ops/reduce.h"
#include "belfry/ops/relu.h"
#include "belfry/ops/reshape.h"
#include "belfry/ops/sparse_softmax_cross_entropy.h"
#include "belfry/towers/layers.h"
#include "belfry/towers/recurrent_layers.h"
#include "belfry/trainers/util/option_error.h"

namespace belfry {
namespace models {
namespace {

Output classify(Tower& tower, Output logits, Output label, const ModelOptions& options) {
  tower.output("logits", logits);
  tower.metric("accuracy", accuracy(logits, label));
  return cross_entropy(logits, label, {.smoothing = options.label_smoothing});
}

// A residual network: its layers.
struct ResNet {
  Tower& tower;
  BatchNormOver over;

  Output conv_bn(const std::string& name, Output x, ConvLayer layer, Initializer gamma = {}) const;
  Output basic_block(const std::string& name, Output x, int filters, int stride) const;
  Output bottleneck(const std::string& name, Output x, int width, int stride) const;
};

Output ResNet::conv_bn(const std::string& name, Output x, ConvLayer layer,
                       Initializer gamma) const {
  layer.bias = false;
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

Output ResNet::basic_block(const std::string& name, Output x, int filters, int stride) const {
  const VariableScope block(tower.graph(), name);
  const bool same = stride == 1 && x.shape().back() == filters;
  const Output shortcut = same ? x : padded_shortcut(tower, x, filters, stride);
  x = relu(conv_bn("conv1", x, {.filters = filters, .stride = stride}));
  return relu(conv_bn("conv2", x, {.filters = filters}) + shortcut);
}

Output ResNet::bottleneck(const std::string& name, Output x, int width, int stride) const {
  const VariableScope block(tower.graph(), name);
  const int filters = 4 * width;
  Output shortcut = x;
  if (stride != 1 || x.shape().back() != filters)
    shortcut = conv_bn("shortcut", x, {.filters = filters, .kernel = 1, .stride = stride});
  x = relu(conv_bn("conv1", x, {.filters = width, .kernel = 1}));
  x = relu(conv_bn("conv2", x, {.filters = width, .kernel = 3, .stride = stride}));
  x = conv_bn("conv3", x, {.filters = filters, .kernel = 1}, init::zeros());
  return relu(x + shortcut);
}

// x [n, time, width]: applies attention, then two dense layers, each beside a shortcut. `attend`
// gets the normalised x and the options of attention.
template <class Attend>
Output transformer_block(Tower& tower, const std::string& name, Output x, const GptSize& size,
                         const Attend& attend) {
  const VariableScope block(tower.graph(), name);
  const std::int64_t time = x.shape()[1];
  const Initializer init = init::normal(0.02);
  x = x + attend(layer_norm(tower, "norm0", x), AttentionLayer{.heads = size.heads, .init = init});
  Output y = reshape(layer_norm(tower, "norm1", x), {kUnknownSize, size.width});
  y = gelu(dense(tower, "fc0", y, {.units = 4 * size.width, .init = init}), {.form = size.gelu});
  y = dense(tower, "fc1", y, {.units = size.width, .init = init});
  return x + reshape(y, {kUnknownSize, time, size.width});
}

}  // namespace

Output mnist(Tower& tower, Output image, Output label, const ModelOptions& options) {
  Output x = relu(conv2d(tower, "conv0", image, {.filters = 32, .kernel = 3}));
  x = max_pool(x, {.window = 2});
  x = relu(conv2d(tower, "conv1", x, {.filters = 64, .kernel = 3}));
  x = max_pool(x, {.window = 2});
  x = relu(dense(tower, "fc0", flatten(x), {.units = 128}));
  return classify(tower, dense(tower, "fc1", x, {.units = 10}), label, options);
}

Output mlp(Tower& tower, Output image, Output label, const ModelOptions& options) {
  Output x = relu(dense(tower, "fc0", flatten(image), {.units = 512}));
  x = relu(dense(tower, "fc1", x, {.units = 512}));
  return classify(tower, dense(tower, "fc2", x, {.units = 10}), label, options);
}

Output resnet20(Tower& tower, Output image, Output label, const ModelOptions& options) {
  const ResNet net{tower, options.batch_norm};
  constexpr int kGroups = 3, kBlocks = 3;
  Output x = relu(net.conv_bn("conv0", image, {.filters = 16}));
  for (int g = 0; g < kGroups; ++g)
    for (int b = 0; b < kBlocks; ++b)
      x = net.basic_block(cat("group", g, "/block", b), x, 16 << g, b == 0 && g > 0 ? 2 : 1);
  return classify(tower, dense(tower, "fc", reduce_mean(x, {1, 2}), {.units = 10}), label, options);
}

Output resnet50(Tower& tower, Output image, Output label, const ModelOptions& options) {
  const ResNet net{tower, options.batch_norm};
  constexpr int kBlocks[] = {3, 4, 6, 3};
  Output x = relu(net.conv_bn("conv0", image, {.filters = 64, .kernel = 7, .stride = 2}));
  x = max_pool(x, {.window = 3, .stride = 2});
  for (int g = 0; g < 4; ++g)
    for (int b = 0; b < kBlocks[g]; ++b)
      x = net.bottleneck(cat("group", g, "/block", b), x, 64 << g, b == 0 && g > 0 ? 2 : 1);
  return classify(tower, dense(tower, "fc", reduce_mean(x, {1, 2}), {.units = 1000}), label,
                  options);
}

Output vgg16(Tower& tower, Output image, Output label, const ModelOptions& options) {
  constexpr int kGroups[] = {2, 2, 3, 3, 3}, kHidden = 2, kUnits = 4096;
  constexpr double kDropped = 0.5;
  Output x = image;
  for (int g = 0; g < 5; ++g) {
    for (int c = 0; c < kGroups[g]; ++c)
      x = relu(conv2d(tower, cat("group", g, "/conv", c), x,
                      {.filters = std::min(64 << g, 512), .init = init::he_normal()}));
    x = max_pool(x, {.window = 2});
  }
  x = flatten(x);
  for (int layer = 0; layer < kHidden; ++layer)
    x = dropout(tower, relu(dense(tower, cat("fc", layer), x, {.units = kUnits})), kDropped);
  return classify(tower, dense(tower, "fc2", x, {.units = 1000}), label, options);
}

namespace {

// The logits [n * time, tokens] of tokens [n, time]. `positioned` makes of the table of `time`
// positions what is added to the tokens; `attend(i, x, options)` is the attention of block i.
template <class Positioned, class Attend>
Output gpt_logits(Tower& tower, Output tokens, std::int64_t time, const GptSize& size,
                  const Positioned& positioned, const Attend& attend) {
  const Initializer init = init::normal(0.02);
  Graph& graph = tower.graph();
  const Variable positions =
      variable(graph, "positions", {time, size.width}, {.initializer = init});
  const Variable table =
      variable(graph, "tokens/table", {size.tokens, size.width}, {.initializer = init});
  Output x = gather(table, tokens) + positioned(positions);
  for (int layer = 0; layer < size.layers; ++layer)
    x = transformer_block(tower, cat("block", layer), x, size,
                          [&](Output y, const AttentionLayer& of) { return attend(layer, y, of); });
  x = reshape(layer_norm(tower, "norm", x), {kUnknownSize, size.width});
  return size.tied_head
             ? matmul(x, table, {.transpose_b = true})
             : dense(tower, "head", x, {.units = size.tokens, .bias = false, .init = init});
}

}  // namespace

Output gpt(Tower& tower, Output tokens, Output label, const GptSize& size,
           const ModelOptions& options) {
  const Output logits = gpt_logits(
      tower, tokens, tokens.shape()[1], size, [](Output table) { return table; },
      [&](int, Output x, const AttentionLayer& layer) {
        return causal_self_attention(tower, "attention", x, layer);
      });
  return classify(tower, logits, reshape(label, {kUnknownSize}), options);
}

Output gpt_step(Tower& tower, TokenStep& step, const GptSize& size) {
  for (int layer = 0; layer < size.layers; ++layer)
    step.caches.push_back(key_value_cache(tower, cat("cache", layer),
                                          {step.token.shape()[0], step.time, size.width}));
  return gpt_logits(
      tower, step.token, step.time, size,
      [&](Output table) {
        return reshape(gather(table, step.position), {kUnknownSize, 1, size.width});
      },
      [&](int block, Output x, const AttentionLayer& layer) {
        return causal_self_attention(tower, "attention", x, layer, step,
                                     step.caches[static_cast<std::size_t>(block)]);
      });
}

namespace {

// `layers(x, layer)`: the recurrent layers.
template <class Layers>
Output recurrent_text(Tower& tower, Output tokens, Output label, const ModelOptions& options,
                      const Layers& layers) {
  constexpr int kCharacters = 65, kHidden = 512;
  const Output x = embedding(tower, "characters", tokens, {.rows = kCharacters, .width = kHidden});
  const Output y = layers(x, RecurrentLayer{.hidden = kHidden, .layers = 2}).y;
  const Output logits =
      dense(tower, "head", reshape(y, {kUnknownSize, kHidden}), {.units = kCharacters});
  return classify(tower, logits, reshape(label, {kUnknownSize}), options);
}

}  // namespace

Output text_lstm(Tower& tower, Output tokens, Output label, const ModelOptions& options) {
  return recurrent_text(tower, tokens, label, options, [&](Output x, const RecurrentLayer& layer) {
    return lstm(tower, "lstm", x, layer);
  });
}

Output text_gru(Tower& tower, Output tokens, Output label, const ModelOptions& options) {
  return recurrent_text(tower, tokens, label, options, [&](Output x, const RecurrentLayer& layer) {
    return gru(tower, "gru", x, layer);
  });
}

}  // namespace models

namespace {

Output build_gpt(Tower& tower, Output tokens, Output label, const ModelOptions& options) {
  return models::gpt(tower, tokens, label, {}, options);
}

// A spec without the size of its images, or the number of its tokens.
struct Entry {
  const char* name;
  Output (*build)(Tower&, Output, Output, const ModelOptions&);
  bool has_batch_norm;
  int size, channels, classes, batch_size;  // without channels, of tokens
  Optimizer (*optimizer)();

  std::vector<Dataset::Field> fields(std::int64_t of) const {
    if (channels == 0) return {{"tokens", DType::kI32, {of}}, {"label", DType::kI32, {of}}};
    return {{"image", DType::kF32, {of, of, channels}}, {"label", DType::kI32, {}}};
  }
};

constexpr Entry kEntries[] = {
    {"mnist", models::mnist, false, 28, 1, 10, 64, [] { return adam(1e-3); }},
    {"mlp", models::mlp, false, 28, 1, 10, 64, [] { return momentum(0.01); }},
    {"resnet20", models::resnet20, true, 32, 3, 10, 128, [] { return momentum(0.01); }},
    {"resnet50", models::resnet50, true, 224, 3, 1000, 32, [] { return momentum(0.01); }},
    {"vgg16", models::vgg16, false, 224, 3, 1000, 32, [] { return momentum(0.01); }},
    {"gpt", build_gpt, false, 256, 0, 65, 8, [] { return adamw(3e-4); }},
    {"lstm", models::text_lstm, false, 64, 0, 65, 32, [] { return adam(2e-3); }},
    {"gru", models::text_gru, false, 64, 0, 65, 32, [] { return adam(2e-3); }},
};

}  // namespace

BatchNormOver find_batch_norm_over(std::string_view name) {
  if (name == "tower") return BatchNormOver::kTower;
  if (name == "synchronised") return BatchNormOver::kSynchronised;
  const std::vector<std::string> names{"tower", "synchronised"};
  throw InvalidArgument(cat("unknown statistics '", name, "'", did_you_mean(name, names),
                            " (batch norm takes those of: ", join(names), ")"));
}

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const Entry& entry : kEntries) names.emplace_back(entry.name);
  return names;
}

ModelSpec find_model(std::string_view name, int image_size, ModelOptions options) {
  require(image_size >= 0, "images of ", image_size, " pixels: the size must be at least 1");
  for (const Entry& entry : kEntries) {
    if (name != entry.name) continue;
    require_option<OptionMistake>(
        options.batch_norm == BatchNormOver::kTower || entry.has_batch_norm, "batch_norm",
        "=synchronised: the model ", name, " has no batch norm; leave it out");
    const bool text = entry.channels == 0;
    require_option<OptionMistake>(
        !text || image_size == 0, "image_size", "=", image_size, ": the model ", name,
        " has no images, but tokens; say how many (", the_option("sequence_length"), ")");
    require_option<OptionMistake>(text || options.sequence_length == 0, "sequence_length", "=",
                                  options.sequence_length, ": the model ", name,
                                  " has no tokens, but images (", the_option("image_size"),
                                  "); it is for the models gpt, lstm and gru");
    const int wanted = text ? options.sequence_length : image_size;
    return {.name = entry.name,
            .model = [build = entry.build, options](
                         Tower& tower, Output image,
                         Output label) { return build(tower, image, label, options); },
            .fields = entry.fields(wanted > 0 ? wanted : entry.size),
            .classes = entry.classes,
            .batch_size = entry.batch_size,
            .optimizer = entry.optimizer(),
            .batch_norm = !entry.has_batch_norm                         ? ""
                          : options.batch_norm == BatchNormOver::kTower ? "tower"
                                                                        : "synchronised"};
  }
  const std::vector<std::string> names = model_names();
  throw InvalidArgument(
      cat("unknown model '", name, "'", did_you_mean(name, names), " (models: ", join(names), ")"));
}

std::vector<TensorType> trainable_types(const ModelSpec& spec) {
  Graph graph;
  Tower tower(graph);
  std::vector<Output> inputs;
  for (const Dataset::Field& field : spec.fields) {
    std::vector<std::int64_t> dims = field.shape.dims();
    dims.insert(dims.begin(), 1);
    inputs.push_back(placeholder(graph, field.name, field.dtype, Shape(std::move(dims))));
  }
  spec.model(tower, inputs);
  std::vector<TensorType> types;
  for (const Variable variable : tower.trainables())
    types.push_back({variable.shape(), variable.dtype()});
  return types;
}

}  // namespace belfry
