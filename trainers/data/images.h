// Images with labels, from files of several formats, or generated ones instead.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "belfry/towers/tower.h"
#include "belfry/trainers/data/dataset.h"
#include "belfry/trainers/options/own_option.h"

namespace belfry::data {

struct ImageOptions {
  // How the files of RunDirs::data_dir hold images:
  //   tfrecord    TFRecord files of tf.train.Examples with the features image/encoded (JPEG or PNG)
  //               and image/class/label
  //   folder      a folder per class, with JPEG and PNG files; classes are numbered in the order of
  //               the names of the folders for training
  //   webdataset  tar files, plain or gzipped; a sample is KEY.jpg, KEY.jpeg or KEY.png, and
  //               KEY.cls with its class as a decimal number
  //   npy         arrays of NumPy: x, u8 [n,height,width,3], and y, whole labels [n], of NAME.npz,
  //               or of NAME_x.npy and NAME_y.npy
  std::string format = "tfrecord";
  std::int64_t side = 224;  // of gathered images, pixels
  std::int64_t classes = 1000;
  std::int64_t label_offset = 0;  // subtracted from labels; 0 for folders
  // Patterns of the names in data_dir, where * stands for any characters. "": train-* and
  // validation-* for TFRecord files, train* and val* that end in .tar, .tar.gz or .tgz, and the
  // folders train and val*. For arrays it is NAME: train and test.
  std::string train_files = {}, test_files = {};
  // Gives images as u8, a quarter of the bytes, for normalise_images() in the model.
  bool as_bytes = false;
};

// A source for recipes, with the fields "image" f32 [side,side,3], each channel less its mean over
// ImageNet and divided by its deviation, and "label" i32 scalar. Without RunDirs::data_dir it gives
// generated_images(): 1280 for training, 256 others for tests.
//
// gather() takes the middle of an image, seven eighths of the shorter side high and wide. Training
// takes a random part of 8 to 100 % of an image's area, with an aspect ratio from 3:4 to 4:3, and
// mirrors half of the parts. Both depend on seed, epoch and sample.
//
// Only the places of the images are kept in memory. An image is bad if it cannot be read or
// decoded, or has no label that is a class. The next one takes its place.
DatasetFactory images(ImageOptions options = {});

// Images of bytes as f32, each channel less its mean over ImageNet and divided by its deviation;
// f32 ones as they are. For tower functions: the devices compute it.
Output normalise_images(Tower& tower, Output images);

// A program's flags for the options, with their values as defaults: --data_format, --train_files,
// --test_files, --image_size, --classes, --image_bytes and --label_offset.
std::vector<OwnOption> image_flags(ImageOptions& options);

}  // namespace belfry::data
