// A vision transformer on CIFAR-10, or of a published size on other images. Try:
//   vit --devices=cpu:4 --data_dir=DIR --dropout=0.1
//   vit --preset=b16 --devices=gpu:8 --data_dir=DIR
#include "belfry/trainers/models/vit.h"

#include "belfry/belfry.h"
using namespace belfry;

int main(int argc, char** argv) {
  models::VitSize flags;
  data::ImageOptions input{
      .format = "cifar10", .side = data::kCifarSide, .classes = data::kCifarClasses};
  std::string preset;
  double smoothing = 0;
  const auto model = [&](Tower& tower, Output image, Output label) {
    models::VitSize size = flags;
    size.image_size = input.side;
    size.classes = input.classes;
    return models::vit(tower, data::normalise_images(tower, image), label, size, smoothing);
  };
  const auto images = [&](const RunDirs& dirs, bool train) {
    if (input.format != "cifar10") return data::images(input)(dirs, train);
    const bool as_usual = input.side == data::kCifarSide && input.classes == data::kCifarClasses &&
                          input.label_offset == 0 && !input.as_bytes &&
                          (input.train_files + input.test_files).empty();
    if (!as_usual)
      throw FlagError(
          "--data_format=cifar10 has 10 classes of images of 32 x 32 pixels; leave out the other "
          "flags about images, or name another --data_format");
    return data::cifar10(dirs, train);
  };
  std::vector<OwnOption> all = models::vit_flags(flags, preset);
  for (OwnOption& flag : data::image_flags(input)) {
    if (flag.name == "data_format") flag.choices.insert(flag.choices.begin(), "cifar10");
    all.push_back(flag);
  }
  all.push_back(label_smoothing_flag(smoothing));
  return train(
      argc, argv,
      {.model = model,
       .data = images,
       .optimizer = adamw(scheduled_rate(1e-3, cosine_schedule(), 100), {.weight_decay = 0.05}),
       .global_batch_size = 64,
       .epochs = 10,
       .flags = all});
}
