#include "belfry/trainers/models/models.h"

#include <algorithm>
#include <array>

#include "belfry/framework/base/find_word.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/core_ops/initializers.h"
#include "belfry/framework/core_ops/placeholder.h"
#include "belfry/ops/convolution/max_pool.h"
#include "belfry/ops/relu.h"
#include "belfry/ops/reshape.h"
#include "belfry/towers/layers.h"
#include "belfry/towers/recurrent_layers.h"
#include "belfry/trainers/models/classify_impl.h"
#include "belfry/trainers/util/option_error.h"

namespace belfry {
namespace models {
Output mnist(Tower& tower, Output image, Output label, const ModelOptions& options) {
  Output x = relu(conv2d(tower, "conv0", image, {.filters = 32, .kernel = 3}));
  x = max_pool(x, {.window = 2});
  x = relu(conv2d(tower, "conv1", x, {.filters = 64, .kernel = 3}));
  x = max_pool(x, {.window = 2});
  x = relu(dense(tower, "fc0", flatten(x), {.units = 128}));
  return classify(tower, dense(tower, "fc1", x, {.units = 10}), label, options.label_smoothing);
}

Output mlp(Tower& tower, Output image, Output label, const ModelOptions& options) {
  Output x = relu(dense(tower, "fc0", flatten(image), {.units = 512}));
  x = relu(dense(tower, "fc1", x, {.units = 512}));
  return classify(tower, dense(tower, "fc2", x, {.units = 10}), label, options.label_smoothing);
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
  return classify(tower, dense(tower, "fc2", x, {.units = 1000}), label, options.label_smoothing);
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
  return classify(tower, logits, reshape(label, {kUnknownSize}), options.label_smoothing);
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
  return models::gpt(tower, tokens, label, *options.gpt, options.label_smoothing);
}

template <int depth>
Output build_resnet(Tower& tower, Output image, Output label, const ModelOptions& options) {
  return models::resnet(tower, image, label, depth, options);
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
    {"resnet18", build_resnet<18>, true, 224, 3, 1000, 32, [] { return momentum(0.01); }},
    {"resnet34", build_resnet<34>, true, 224, 3, 1000, 32, [] { return momentum(0.01); }},
    {"resnet50", build_resnet<50>, true, 224, 3, 1000, 32, [] { return momentum(0.01); }},
    {"resnet101", build_resnet<101>, true, 224, 3, 1000, 32, [] { return momentum(0.01); }},
    {"resnet152", build_resnet<152>, true, 224, 3, 1000, 32, [] { return momentum(0.01); }},
    {"vgg16", models::vgg16, false, 224, 3, 1000, 32, [] { return momentum(0.01); }},
    {"gpt", build_gpt, false, 256, 0, 65, 8, [] { return adamw(3e-4); }},
    {"lstm", models::text_lstm, false, 64, 0, 65, 32, [] { return adam(2e-3); }},
    {"gru", models::text_gru, false, 64, 0, 65, 32, [] { return adam(2e-3); }},
};

}  // namespace

PaddingStyle find_padding_style(std::string_view name) {
  constexpr std::array<std::string_view, 2> kStyles = {"same", "torch"};
  return find_word<PaddingStyle>(kStyles, name, "style of padding");
}

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
    require(entry.build == build_gpt || !options.gpt, "the model ", name,
            " has no GptSize; that is for gpt");
    if (entry.build == build_gpt && !options.gpt) options.gpt = models::GptSize{};
    std::int64_t size = text ? options.sequence_length : image_size;
    if (size == 0) size = options.gpt ? options.gpt->sequence_length : entry.size;
    if (options.gpt) {
      options.gpt->sequence_length = size;
      models::check_gpt_size(*options.gpt);
    }
    return {.name = entry.name,
            .model = [build = entry.build, options](
                         Tower& tower, Output image,
                         Output label) { return build(tower, image, label, options); },
            .fields = entry.fields(size),
            .classes = options.gpt ? static_cast<int>(options.gpt->vocabulary) : entry.classes,
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
