// A vision transformer on CIFAR-10, or of a published size on ImageNet. Try: vit --devices=cpu:4
// --data_dir=DIR --dropout=0.1; or vit --preset=b16 --devices=gpu:8 --data_dir=DIR
#include "belfry/trainers/models/vit.h"

#include "belfry/belfry.h"
using namespace belfry;

int main(int argc, char** argv) {
  models::VitSize size;
  std::string preset, format = "cifar10";
  std::int64_t label_offset = 0;
  double smoothing = 0;
  const auto model = [&](Tower& tower, Output image, Output label) {
    return models::vit(tower, image, label, size, smoothing);
  };
  const auto images = [&](const RunDirs& dirs, bool train) {
    if (format != "cifar10")
      return data::imagenet({.side = size.image_size,
                             .classes = static_cast<int>(size.classes),
                             .label_offset = label_offset})(dirs, train);
    if (size.image_size != data::kCifarSide || size.classes != data::kCifarClasses)
      throw FlagError(
          "--data_format=cifar10 has images of 32 x 32 pixels and 10 classes; leave out "
          "--image_size and --classes, or use --data_format=tfrecord");
    return data::cifar10(dirs, train);
  };
  std::vector<OwnOption> flags = models::vit_flags(size, preset, format);
  flags.push_back({.name = "label_offset",
                   .variable = &label_offset,
                   .text = "subtracted from image/class/label: 1 where classes count from 1",
                   .range = {"a number >= 0", [](double x) { return x >= 0; }}});
  flags.push_back(label_smoothing_flag(smoothing));
  return train(
      argc, argv,
      {.model = model,
       .data = images,
       .optimizer = adamw(scheduled_rate(1e-3, cosine_schedule(), 100), {.weight_decay = 0.05}),
       .global_batch_size = 64,
       .epochs = 10,
       .flags = flags});
}
