// ResNet-18 to 152 on images of folders, tar files, TFRecord files or arrays, or on generated ones.
// It is built twice: as resnet, and as resnet50, since 50 is the default depth. Try: resnet50
// --devices=gpu:8 --global_batch_size=256 --data_dir=DIR --label_offset=1 --data_workers=16
// --bad_records=skip:10
#include "belfry/belfry.h"
#include "belfry/trainers/models/models.h"
using namespace belfry;

int main(int argc, char** argv) {
  std::string statistics = "tower", padding = "same";
  std::int64_t depth = 50;
  data::ImageOptions input;
  double smoothing = 0;
  const auto model = [&](Tower& tower, Output image, Output label) {
    return models::resnet(tower, data::normalise_images(tower, image), label,
                          static_cast<int>(depth),
                          {.batch_norm = find_batch_norm_over(statistics),
                           .label_smoothing = smoothing,
                           .classes = static_cast<int>(input.classes),
                           .padding = find_padding_style(padding)});
  };
  const auto images = [&](const RunDirs& dirs, bool train) {
    return data::images(input)(dirs, train);
  };
  std::vector<OwnOption> flags = data::image_flags(input);
  flags.insert(
      flags.end(),
      {{.name = "depth",
        .variable = &depth,
        .text = "layers with weights: 18, 34, 50, 101 or 152",
        .range = {"one of 18, 34, 50, 101, 152",
                  [](double x) { return x == 18 || x == 34 || x == 50 || x == 101 || x == 152; }}},
       {.name = "batch_norm",
        .variable = &statistics,
        .text = "statistics of each device's batch, or of all devices' together; with the latter "
                "the bits do not depend on the number of devices",
        .unit = "NAME",
        .choices = {"tower", "synchronised"}},
       {.name = "padding",
        .variable = &padding,
        .text = "of windows with a stride: an odd pixel at the bottom and right, as in TensorFlow, "
                "or as many on all sides, as in PyTorch, whose weights need it",
        .unit = "NAME",
        .choices = {"same", "torch"}},
       label_smoothing_flag(smoothing)});
  return train(argc, argv,
               {.model = model,
                .data = images,
                .optimizer = momentum(scheduled_rate(0.1, step_schedule({{30}, {60}, {80}})),
                                      {.weight_decay = 1e-4}),
                .global_batch_size = 256,
                .epochs = 90,
                .flags = flags});
}
