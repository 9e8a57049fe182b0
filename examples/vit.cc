// A vision transformer (Dosovitskiy et al. 2021) on CIFAR-10, or on TFRecord files of images: an
// image is a row of patches, read like a sentence of words. Try: vit --devices=cpu:4 --data_dir=DIR
// --dropout=0.1
#include "belfry/belfry.h"
using namespace belfry;

struct VitSize {
  std::int64_t layers = 4, heads = 4, width = 64, patch = 4;
  std::int64_t side = 32, classes = 10;  // of the images
  double dropout = 0;
};

Output encoder_block(Tower& tower, std::string_view name, Output x, const VitSize& size) {
  const VariableScope scope(tower.graph(), name);
  const Output y = layer_norm(tower, "norm0", x);
  x = x +
      dropout(tower,
              multi_head_attention(tower, "attention", y, {.heads = static_cast<int>(size.heads)}),
              size.dropout);
  Output z = dense(tower, "fc0", layer_norm(tower, "norm1", x),
                   {.units = static_cast<int>(4 * size.width)});
  z = dense(tower, "fc1", dropout(tower, gelu(z), size.dropout),
            {.units = static_cast<int>(size.width)});
  return x + dropout(tower, z, size.dropout);
}

// Places of patches and the class token are learned.
Output vit(Tower& tower, Output image, const VitSize& size) {
  Graph& graph = tower.graph();
  const std::int64_t patches_in_row = size.side / size.patch;
  const std::int64_t count = patches_in_row * patches_in_row;
  const Output patches = reshape(conv2d(tower, "patches", image,
                                        {.filters = static_cast<int>(size.width),
                                         .kernel = static_cast<int>(size.patch),
                                         .stride = static_cast<int>(size.patch)}),
                                 {kUnknownSize, count, size.width});
  const Output token =
      variable(graph, "class_token", {1, 1, size.width}, {.initializer = init::normal(0.02)});
  const Output places =
      variable(graph, "places", {count + 1, size.width}, {.initializer = init::normal(0.02)});
  // One token for each image.
  const Output tokens = broadcast_to(token, slice(patches, {0, 0, 0}, {-1, 1, -1}));
  Output x = dropout(tower, concat({tokens, patches}, 1) + places, size.dropout);
  for (int i = 0; i < size.layers; ++i)
    x = encoder_block(tower, "block" + std::to_string(i), x, size);
  x = layer_norm(tower, "norm", slice(x, {0, 0, 0}, {-1, 1, -1}));
  return dense(tower, "head", flatten(x), {.units = static_cast<int>(size.classes)});
}

Output classify(Tower& tower, Output image, Output label, const VitSize& size) {
  const Output logits = vit(tower, image, size);
  tower.output("logits", logits);
  tower.metric("accuracy", accuracy(logits, label));
  return cross_entropy(logits, label);
}

OwnOption number_flag(const char* name, std::int64_t& value, const char* text) {
  return {.name = name,
          .variable = &value,
          .text = text,
          .range = {"a number from 1 to 4096", [](double x) { return x >= 1 && x <= 4096; }}};
}

int main(int argc, char** argv) {
  VitSize flags;
  std::string images = "cifar10";
  std::int64_t image_size = 224, label_offset = 0;
  const auto size = [&] {
    VitSize all = flags;
    if (images == "imagenet") all.side = image_size, all.classes = 1000;
    if (all.width % all.heads != 0) throw FlagError("--heads does not divide --width");
    if (all.side % all.patch != 0)
      throw FlagError("--patch=" + std::to_string(all.patch) + " does not divide images of " +
                      std::to_string(all.side) + " pixels");
    return all;
  };
  const auto model = [&](Tower& tower, Output image, Output label) {
    return classify(tower, image, label, size());
  };
  const auto data = [&](const RunDirs& dirs, bool train) {
    return images == "cifar10"
               ? data::cifar10(dirs, train)
               : data::imagenet({.side = image_size, .label_offset = label_offset})(dirs, train);
  };
  return train(
      argc, argv,
      {.model = model,
       .data = data,
       .optimizer = adamw(scheduled_rate(1e-3, cosine_schedule(), 100), {.weight_decay = 0.05}),
       .global_batch_size = 64,
       .epochs = 10,
       .flags = {number_flag("layers", flags.layers, "encoder blocks"),
                 number_flag("heads", flags.heads, "heads of attention; they divide the width"),
                 number_flag("width", flags.width, "elements of a token between blocks"),
                 number_flag("patch", flags.patch, "height and width of a patch, pixels"),
                 {.name = "images",
                  .variable = &images,
                  .text = "CIFAR-10, or the TFRecord files that resnet50 reads",
                  .unit = "NAME",
                  .choices = {"cifar10", "imagenet"}},
                 number_flag("image_size", image_size, "of imagenet: height and width, pixels"),
                 {.name = "label_offset",
                  .variable = &label_offset,
                  .text = "of imagenet: subtracted from image/class/label; 1 where classes count "
                          "from 1",
                  .range = {"a number >= 0", [](double x) { return x >= 0; }}},
                 {.name = "dropout",
                  .variable = &flags.dropout,
                  .text = "probability that an element is zero in a training step",
                  .range = {"a number >= 0 and below 1", [](double x) { return x >= 0 && x < 1; }},
                  .unit = "RATE"}}});
}
