// The models of benchmarks and of tests that compare modes.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "belfry/trainers/core/model.h"
#include "belfry/trainers/data/dataset.h"
#include "belfry/trainers/models/gpt.h"
#include "belfry/trainers/optimizers/optimizer.h"

namespace belfry {

// The batch over which batch norm takes its statistics.
enum class BatchNormOver { kTower, kSynchronised };  // a tower's batch, or all towers' batches
// "tower" or "synchronised". Throws InvalidArgument with both and the nearest one.
BatchNormOver find_batch_norm_over(std::string_view name);

// The padding of convolutions and pools of 3 and more pixels. With a stride of 2, kSame has an odd
// pixel at the bottom and right, as in TensorFlow; kTorch has as many pixels on all sides, as
// PyTorch's networks do. So weights of one compute wrong results with the other.
enum class PaddingStyle { kSame, kTorch };
// "same" or "torch". Throws InvalidArgument with both.
PaddingStyle find_padding_style(std::string_view name);

struct ModelOptions {
  BatchNormOver batch_norm = BatchNormOver::kTower;
  double label_smoothing = 0;                  // of the loss (CrossEntropyOptions)
  int sequence_length = 0;                     // tokens; 0: the model's
  int classes = 1000;                          // of resnet()
  std::optional<models::GptSize> gpt = {};     // of the model gpt
  PaddingStyle padding = PaddingStyle::kSame;  // of resnet, not of resnet20
};

// Tower functions: image [n, height, width, channels], label i32 [n] -> the mean cross entropy.
// Each has the output "logits" and the metric "accuracy".
namespace models {
// The model of examples/mnist.cc: two convolutions, two dense layers; 10 classes.
Output mnist(Tower& tower, Output image, Output label, const ModelOptions& options = {});
// 512-512-10 on all pixels.
Output mlp(Tower& tower, Output image, Output label, const ModelOptions& options = {});
// ResNet-20 for CIFAR (He et al. 2015, section 4.2, n = 3): 10 classes, batch norm; shortcuts have
// no parameters (option A), so 269,722 are trained.
Output resnet20(Tower& tower, Output image, Output label, const ModelOptions& options = {});
// ResNet-18, 34, 50, 101 or 152 for ImageNet (He et al. 2015, table 1), in version 1.5: a block's
// stride is in its 3x3 convolution. With 1000 classes, 11,689,512, 21,797,672, 25,557,032,
// 44,549,160 or 60,192,808 parameters are trained. Throws OptionMistake for another depth.
Output resnet(Tower& tower, Output image, Output label, int depth,
              const ModelOptions& options = {});
// VGG-16 (Simonyan and Zisserman 2014, configuration D) with dropout: 1000 classes; 138,357,544
// parameters are trained.
Output vgg16(Tower& tower, Output image, Output label, const ModelOptions& options = {});
// Recurrent layers, two of 512, over embedded characters, of which there are 65. Tokens and labels
// as for gpt(). 4,269,121 parameters with LSTM, and 3,218,497 with GRU.
Output text_lstm(Tower& tower, Output tokens, Output label, const ModelOptions& options = {});
Output text_gru(Tower& tower, Output tokens, Output label, const ModelOptions& options = {});
}  // namespace models

struct ModelSpec {
  std::string name;
  ModelFunction model;
  // "image" f32 [size, size, channels] and "label" i32 scalar; or "tokens" and "label", i32 [time].
  std::vector<Dataset::Field> fields;
  int classes;
  int batch_size;  // per tower, by default
  Optimizer optimizer;
  std::string batch_norm = {};  // "tower" or "synchronised", as asked; "" for models without any
};

// mnist, mlp, resnet20, resnet18, resnet34, resnet50, resnet101, resnet152, vgg16, gpt, lstm, gru.
std::vector<std::string> model_names();

// `image_size`, in pixels, replaces the model's own: 28 for mnist and mlp, 32 for resnet20, 224 for
// the other resnets and vgg16; 0 keeps it. Throws InvalidArgument with all names and the nearest
// one, if the size is negative, or for a GptSize that the model lacks; OptionMistake for options of
// images, tokens (256 for gpt, 64 for lstm and gru), or synchronised batch norm that it lacks.
ModelSpec find_model(std::string_view name, int image_size = 0, ModelOptions options = {});

// The types of trained variables, and so of gradients, in order of creation. Builds one tower.
std::vector<TensorType> trainable_types(const ModelSpec& spec);

}  // namespace belfry
