// ResNet-20 on CIFAR-10, 12 epochs. Try: resnet20 --devices=cpu:2 --data_dir=DIR --data_workers=2
#include "belfry/belfry.h"
#include "belfry/trainers/models/models.h"
using namespace belfry;

int main(int argc, char** argv) {
  std::string statistics = "tower";
  double smoothing = 0;
  const auto model = [&](Tower& tower, Output image, Output label) {
    return models::resnet20(
        tower, image, label,
        {.batch_norm = find_batch_norm_over(statistics), .label_smoothing = smoothing});
  };
  return train(
      argc, argv,
      {.model = model,
       .data = data::cifar10,
       .optimizer = momentum(scheduled_rate(0.1, cosine_schedule()), {.weight_decay = 1e-4}),
       .global_batch_size = 128,
       .epochs = 12,
       .flags = {{.name = "batch_norm",
                  .variable = &statistics,
                  .text = "statistics of each device's batch, or of all devices' together; with "
                          "the latter the bits do not depend on the number of devices",
                  .unit = "NAME",
                  .choices = {"tower", "synchronised"}},
                 label_smoothing_flag(smoothing)}});
}
