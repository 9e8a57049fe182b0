// Images from TFRecord files, such as ImageNet's, or generated ones instead.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "belfry/trainers/data/dataset.h"

namespace belfry {

struct ImageRecords {
  std::vector<std::string> paths;
  std::int64_t side = 224;  // of gathered images, pixels
  int classes = 1000;
  std::int64_t label_offset = 0;  // subtracted from image/class/label
  BadRecordPolicy bad_records = {};
};

// Fields: "image" f32 [side,side,3], each channel less its mean over ImageNet and divided by its
// deviation; "label" i32 scalar. Records are tf.train.Examples with the features image/encoded
// (JPEG or PNG) and image/class/label. This call finds the records in the files; gathering reads
// and decodes them.
//
// gather() takes the middle of an image, seven eighths of the shorter side high and wide. Training
// takes a random part of 8 to 100 % of an image's area, with an aspect ratio from 3:4 to 4:3, and
// mirrors half of the parts. Both depend on seed, epoch and sample.
//
// A record is bad if its CRC is wrong, it lacks these features, its label is no class, or its image
// cannot be decoded. The next record takes its place.
std::unique_ptr<Dataset> image_records(ImageRecords wanted);

namespace data {

struct ImagenetOptions {
  std::int64_t side = 224;
  int classes = 1000;
  std::int64_t label_offset = 0;
};

// A source for recipes. With RunDirs::data_dir it gives image_records() of the files train-* there,
// and validation-* for tests; without it generated_images(): 1280 for training, 256 others for
// tests.
DatasetFactory imagenet(ImagenetOptions options = {});

}  // namespace data
}  // namespace belfry
