// Images of TFRecord files, as ImageNet is kept, or generated ones in their place.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "belfry/trainers/data/dataset.h"

namespace belfry {

struct ImageRecords {
  std::vector<std::string> paths;
  std::int64_t side = 224;  // of the images given out, pixels
  int classes = 1000;
  std::int64_t label_offset = 0;  // subtracted from image/class/label
  BadRecordPolicy bad_records = {};
};

// Fields: "image" f32 [side,side,3], each channel less its mean over ImageNet and divided by its
// deviation; "label" i32 scalar. Records are tf.train.Examples with the features image/encoded
// (JPEG or PNG) and image/class/label. The files are looked through when this is called, and
// records read and decoded when they are gathered.
//
// As they are, images give their middle, seven eighths of the shorter side high and wide. Training
// takes a part of 8 to 100 % of an image, from 3:4 to 4:3 high, from anywhere, and mirrors half of
// them: a function of seed, epoch and sample.
//
// A record that cannot be used is bad: one with a wrong CRC, without these features, with a label
// that is no class, or an image that cannot be decoded. The next one takes its place.
std::unique_ptr<Dataset> image_records(ImageRecords wanted);

namespace data {

struct ImagenetOptions {
  std::int64_t side = 224;
  int classes = 1000;
  std::int64_t label_offset = 0;
};

// A source for recipes. With RunDirs::data_dir, image_records() of the files train-* in it, and
// validation-* for tests; without, generated_images(): 1280 for training, 256 others for tests.
DatasetFactory imagenet(ImagenetOptions options = {});

}  // namespace data
}  // namespace belfry
