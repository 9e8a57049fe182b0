#include "belfry/trainers/data/images.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include "belfry/framework/core_ops/constant.h"
#include "belfry/framework/run/session.h"
#include "belfry/tests/trainers/data/tf_files.h"
#include "belfry/tests/trainers/data/training_samples.h"
#include "belfry/trainers/data/decode_image.h"
#include "belfry/trainers/util/option_error.h"

namespace belfry {
namespace images_test {

using test::as_bytes;
using test::image_example;
using test::jpeg_of;
using test::message_of;
using test::png_of;
using test::ramp;
using test::TemporaryFolder;
using test::tf_record;
using ::testing::HasSubstr;

TEST(DecodeImage, GivesThePixelsOfPngAndThoseOfJpegNearly) {
  const test::PlainImage plain = ramp(20, 30);
  const DecodedImage png = decode_image(as_bytes(png_of(plain)));
  EXPECT_EQ(png.height, 20);
  EXPECT_EQ(png.width, 30);
  EXPECT_EQ(png.pixels, plain.pixels);
  const DecodedImage jpeg = decode_image(as_bytes(jpeg_of(plain)));
  ASSERT_EQ(jpeg.pixels.size(), plain.pixels.size());
  for (std::size_t i = 0; i < plain.pixels.size(); ++i)
    EXPECT_NEAR(jpeg.pixels[i], plain.pixels[i], 4) << i;
}

TEST(DecodeImage, SaysWhatIsWrong) {
  const std::string png = png_of(ramp(20, 30)), jpeg = jpeg_of(ramp(20, 30));
  const auto message = [](const std::string& file, std::int64_t most = kMostPixels) {
    return message_of<InvalidArgument>([&] { decode_image(as_bytes(file), most); });
  };
  EXPECT_THAT(message("GIF89a"), HasSubstr("neither JPEG nor PNG: 6 bytes"));
  EXPECT_THAT(message(png.substr(0, 60)), HasSubstr("PNG: "));
  EXPECT_THAT(message(jpeg.substr(0, jpeg.size() / 2)), HasSubstr("the data end early"));
  EXPECT_THAT(message(jpeg.substr(0, 100)), HasSubstr("JPEG: "));
  for (const std::string& file : {png, jpeg})
    EXPECT_THAT(message(file, 599),
                HasSubstr("an image of 20 x 30 pixels, where at most 599 are taken"));
}

// A progressive image whose first scan is there `more` times more. A scan costs as much as all
// pixels.
std::string with_scans(int more) {
  const std::string file = jpeg_of(ramp(16, 16), test::JpegKind::kProgressive);
  const std::size_t scan = file.find("\xFF\xDA");
  std::size_t end = scan + 2;
  while (file[end] != '\xFF' || file[end + 1] == '\0') ++end;
  std::string all = file.substr(0, end);
  for (int i = 0; i < more; ++i) all += file.substr(scan, end - scan);
  return all + file.substr(end);
}

// A PNG of 10 x 10 pixels whose data inflate to 100 MB.
TEST(DecodeImage, TakesNoPngThatInflatesToMoreThanItsPixels) {
  const std::string whole = png_of(ramp(10, 10));
  std::string data(compressBound(100'000'000), '\0');
  uLongf size = data.size();
  const std::vector<Bytef> zeros(100'000'000);
  ASSERT_EQ(compress2(reinterpret_cast<Bytef*>(data.data()), &size, zeros.data(), zeros.size(), 9),
            Z_OK);
  data.resize(size);
  const auto big_endian = [](std::size_t value) {
    std::string bytes;
    for (const int shift : {24, 16, 8, 0}) bytes += static_cast<char>(value >> shift);
    return bytes;
  };
  const std::string named = "IDAT" + data;
  const auto sum =
      crc32(0, reinterpret_cast<const Bytef*>(named.data()), static_cast<uInt>(named.size()));
  const std::string bomb = whole.substr(0, whole.find("IDAT") - 4) + big_endian(data.size()) +
                           named + big_endian(sum) + whole.substr(whole.find("IEND") - 4);
  EXPECT_THAT(message_of<InvalidArgument>([&] { decode_image(as_bytes(bomb)); }),
              HasSubstr("PNG: the data inflate to more than the pixels take"));
  test::PlainImage noise = ramp(300, 300);  // whose data are long enough to be looked at
  std::uint32_t random = 1;
  for (auto& value : noise.pixels) {
    random = random * 1664525 + 1013904223;
    value = static_cast<std::uint8_t>(random >> 24);
  }
  const std::string file = png_of(noise);
  EXPECT_GT(file.size(), 200'000u);
  EXPECT_EQ(decode_image(as_bytes(file)).pixels, noise.pixels);
}

TEST(DecodeImage, BoundsTheScansOfAProgressiveImage) {
  EXPECT_EQ(decode_image(as_bytes(with_scans(0))).height, 16);
  EXPECT_EQ(decode_image(as_bytes(with_scans(100))).height, 16);
  EXPECT_THAT(message_of<InvalidArgument>([] { decode_image(as_bytes(with_scans(600))); }),
              HasSubstr("JPEG: more than 500 scans of 16 x 16 pixels"));
}

TEST(ResizeImage, KeepsARampAndMirrorsIt) {
  const DecodedImage image = decode_image(as_bytes(png_of(ramp(16, 16))));
  std::vector<float> same(16 * 16 * 3), small(4 * 4 * 3), mirrored(4 * 4 * 3);
  resize_image(image, {0, 0, 16, 16}, 16, false, same);
  for (std::size_t i = 0; i < same.size(); ++i) EXPECT_NEAR(same[i], image.pixels[i], 1e-3);
  // The middle of a ramp stays in place, whatever the size.
  resize_image(image, {4, 4, 8, 8}, 4, false, small);
  for (std::size_t y = 0; y < 4; ++y)
    for (std::size_t x = 0; x < 4; ++x) {
      EXPECT_NEAR(small[(y * 4 + x) * 3], 8 * (4 + 2 * static_cast<double>(y) + 0.5), 1e-3);
      EXPECT_NEAR(small[(y * 4 + x) * 3 + 1], 8 * (4 + 2 * static_cast<double>(x) + 0.5), 1e-3);
    }
  resize_image(image, {4, 4, 8, 8}, 4, true, mirrored);
  for (std::size_t y = 0; y < 4; ++y)
    for (std::size_t x = 0; x < 4; ++x)
      EXPECT_EQ(mirrored[(y * 4 + x) * 3 + 1], small[(y * 4 + 3 - x) * 3 + 1]);
}

// First along columns, then along rows, a weight after the other.
std::vector<float> plainly_resized(const DecodedImage& image, const ImagePart& part, int side) {
  const PixelTaps rows(part.top, part.height, side, image.height),
      columns(part.left, part.width, side, image.width);
  std::vector<float> result;
  for (std::size_t y = 0; y < static_cast<std::size_t>(side); ++y)
    for (std::size_t x = 0; x < static_cast<std::size_t>(side); ++x)
      for (std::int64_t c = 0; c < 3; ++c) {
        float sum = 0;
        std::int64_t column = columns.first(x);
        for (const float across : columns.weights(x)) {
          float value = 0;
          std::int64_t row = rows.first(y);
          for (const float down : rows.weights(y))
            value += down *
                     image.pixels[static_cast<std::size_t>((row++ * image.width + column) * 3 + c)];
          sum += across * value;
          ++column;
        }
        result.push_back(sum);
      }
  return result;
}

// Sides and widths that are no multiples of what is computed at once.
TEST(ResizeImage, GivesWeightedMeansInOneOrder) {
  DecodedImage image{.height = 29, .width = 23, .box = {0, 0, 29, 23}};
  std::uint32_t random = 1;
  for (int i = 0; i < 29 * 23 * 3; ++i) {
    random = random * 1664525 + 1013904223;
    image.pixels.push_back(static_cast<std::uint8_t>(random >> 24));
  }
  for (const ImagePart& part : {ImagePart{0, 0, 29, 23}, {3.5, 2.25, 20, 9}, {7, 8, 2, 1.5}})
    for (const int side : {1, 3, 4, 6, 17}) {
      std::vector<float> found(static_cast<std::size_t>(side * side * 3));
      resize_image(image, part, side, false, found);
      EXPECT_EQ(found, plainly_resized(image, part, side)) << part.height << ' ' << side;
    }
}

// As photographs have it: colours at half the resolution, and with each kind of scans.
std::string photograph(test::JpegKind kind, int sampling) {
  test::PlainImage image{60, 90, {}};
  std::uint32_t random = 1;
  for (std::uint32_t i = 0; i < 60 * 90 * 3; ++i) {
    random = random * 1664525 + 1013904223;
    image.pixels.push_back(static_cast<std::uint8_t>(i / 90 + (random >> 27)));
  }
  return jpeg_of(image, kind, sampling);
}

TEST(DecodeImage, GivesTheSamePixelsOfAPart) {
  const ImagePart parts[] = {{0, 0, 60, 90},  {20.5, 30.25, 16, 17.5}, {0, 50, 25, 40},
                             {44, 0, 16, 20}, {30, 89, 1, 1},          {17, 16, 33, 48}};
  for (const test::JpegKind kind : {test::JpegKind::kSequential, test::JpegKind::kProgressive})
    for (const int sampling : {1, 2})
      for (const ImagePart& part : parts) {
        const std::string file = photograph(kind, sampling);
        const auto box = [&](std::int64_t height, std::int64_t width) {
          return box_of(part, 12, height, width);
        };
        const DecodedImage whole = decode_image(as_bytes(file));
        const DecodedImage some = decode_image(as_bytes(file), kMostPixels, box);
        EXPECT_LE(some.pixels.size(), whole.pixels.size());
        std::vector<float> expected(12 * 12 * 3), found(12 * 12 * 3);
        resize_image(whole, part, 12, false, expected);
        resize_image(some, part, 12, false, found);
        EXPECT_EQ(found, expected) << part.top << ' ' << part.left << ' ' << sampling;
        if (part.height == 1) {
          EXPECT_THROW(resize_image(some, parts[0], 12, false, found), InvalidArgument);
        }
      }
}

TEST(DecodeImage, FindsOutThatAFileIsCutOffAfterThePart) {
  const std::string file = photograph(test::JpegKind::kSequential, 2);
  const auto top = [](std::int64_t, std::int64_t width) { return PixelBox{0, 0, 8, width}; };
  EXPECT_EQ(decode_image(as_bytes(file), kMostPixels, top).height, 60);
  EXPECT_THAT(message_of<InvalidArgument>([&] {
                decode_image(as_bytes(file.substr(0, file.size() - 300)), kMostPixels, top);
              }),
              HasSubstr("the data end early"));
}

class ImagesTest : public testing::Test {
 protected:
  void write(const std::string& name, const std::vector<std::string>& examples) {
    std::string file;
    for (const std::string& example : examples) file += tf_record(example);
    folder_.write(name, as_bytes(file));
  }
  std::unique_ptr<Dataset> open(data::ImageOptions options, std::int64_t skipped = 0,
                                bool train = true) const {
    return data::images(options)({folder_.path(), {.most = skipped}}, train);
  }
  const std::vector<std::int64_t> all_{0, 1, 2};
  TemporaryFolder folder_;
};

TEST_F(ImagesTest, GiveImagesOfOneSizeWithTheirLabelsLessTheOffset) {
  write("train-00000-of-00002",
        {image_example(png_of(ramp(16, 16)), 1), image_example(jpeg_of(ramp(20, 31)), 3)});
  write("train-00001-of-00002", {image_example(png_of(ramp(3, 2)), 2)});
  const auto data = open({.side = 14, .classes = 3, .label_offset = 1});
  ASSERT_EQ(data->size(), 3);
  EXPECT_EQ(data->files().size(), 2u);
  const std::vector<Tensor> batch = gather_tensors(*data, all_);
  EXPECT_EQ(batch[0].shape(), (Shape{3, 14, 14, 3}));
  EXPECT_THAT(
      std::vector<int>(batch[1].data<std::int32_t>().begin(), batch[1].data<std::int32_t>().end()),
      testing::ElementsAre(0, 2, 1));
  // The crop has 14 of 16 pixels, so its first pixel is pixel (1, 1) of the image.
  const auto pixels = batch[0].data<float>();
  EXPECT_NEAR(pixels[0], (8 / 255.0 - 0.485) / 0.229, 1e-3);
  EXPECT_NEAR(pixels[1], (8 / 255.0 - 0.456) / 0.224, 1e-3);
  EXPECT_NEAR(pixels[2], (50 / 255.0 - 0.406) / 0.225, 1e-3);
}

TEST_F(ImagesTest, OfBytesAreNormalisedOnTheDevice) {
  write("train-0", {image_example(png_of(ramp(16, 16)), 1), image_example(png_of(ramp(9, 12)), 2)});
  const std::vector<std::int64_t> both{0, 1};
  const Tensor expected = gather_tensors(*open({.side = 7, .classes = 3}), both)[0];
  const Tensor bytes = gather_tensors(*open({.side = 7, .classes = 3, .as_bytes = true}), both)[0];
  ASSERT_EQ(bytes.dtype(), DType::kU8);
  Graph graph;
  Tower tower(graph);
  const Output normalised = data::normalise_images(tower, constant(graph, bytes));
  const Tensor found = Session(graph).run({normalised})[0];
  ASSERT_EQ(found.shape(), expected.shape());
  for (std::size_t i = 0; i < found.data<float>().size(); ++i)
    EXPECT_NEAR(found.data<float>()[i], expected.data<float>()[i], 0.5 / 255 / 0.22) << i;
  const auto made_up = data::images({.side = 7, .classes = 3, .as_bytes = true})({}, true);
  EXPECT_EQ(gather_tensors(*made_up, both)[0].dtype(), DType::kU8);
}

TEST_F(ImagesTest, TrainOnPartsThatAreAFunctionOfSeedEpochAndSample) {
  write("train-0", {image_example(png_of(ramp(30, 30)), 0), image_example(png_of(ramp(24, 30)), 1),
                    image_example(png_of(ramp(30, 17)), 2)});
  const auto data = open({.side = 8, .classes = 3});
  const auto drawn = test::training_samples(*data, {1, 0}, all_);
  EXPECT_EQ(test::training_samples(*data, {1, 0}, all_), drawn);
  EXPECT_NE(test::training_samples(*data, {1, 1}, all_)[0], drawn[0]);
  EXPECT_NE(test::training_samples(*data, {2, 0}, all_)[0], drawn[0]);
  const Tensor last = test::training_samples(*data, {1, 0}, {2})[0];
  EXPECT_TRUE(std::ranges::equal(last.data<float>(), drawn[0].data<float>().last(8 * 8 * 3)));
  // Green grows to one side or the other, depending on the mirror.
  int mirrored = 0;
  for (std::int64_t epoch = 0; epoch < 40; ++epoch) {
    const Tensor images = test::training_samples(*data, {1, epoch}, {0})[0];
    const auto pixels = images.data<float>();
    mirrored += pixels[1] > pixels[7 * 3 + 1];
  }
  EXPECT_GT(mirrored, 8);
  EXPECT_LT(mirrored, 32);
}

TEST_F(ImagesTest, NameEachKindOfBadRecord) {
  const std::string good = image_example(png_of(ramp(8, 8)), 1);
  const std::pair<std::string, std::string> kinds[] = {
      {image_example("no image", 1), "neither JPEG nor PNG: 8 bytes"},
      {image_example(png_of(ramp(8, 8)), 9), "the label 9 is no class from 0 to 4"},
      {test::example(test::int_feature("image/class/label", 1)), "no feature image/encoded"},
      {test::example(test::bytes_feature("image/encoded", "x")), "no feature image/class/label"},
      {"\xFF", "no message of protobuf"}};
  for (const auto& [bad, reason] : kinds) {
    write("train-0", {good, bad, good});
    const std::string place = cat("train-0: bad record at byte ", good.size() + 16, ": ", reason);
    EXPECT_THAT(
        message_of<IoError>([&] { gather_tensors(*open({.side = 4, .classes = 5}), all_); }),
        HasSubstr(place));
    const auto data = open({.side = 4, .classes = 5}, 1);
    EXPECT_EQ(gather_tensors(*data, all_)[1], (Tensor({3}, std::vector<std::int32_t>{1, 1, 1})));
    EXPECT_EQ(data->left_out(), 1);
  }
}

TEST_F(ImagesTest, EndWhereAllRecordsAreBadOrThereAreNone) {
  write("validation-0", {image_example("x", 1), image_example("y", 1)});
  EXPECT_THAT(message_of<IoError>([&] {
                gather_tensors(*open({.side = 4}, 9, false), std::vector<std::int64_t>{0});
              }),
              HasSubstr("all records are bad"));
  EXPECT_THAT(message_of<NotFoundError>([&] { open({}, 0, true)->size(); }),
              HasSubstr("has no file named train-*; name the folder with the TFRecord files"));
  write("train-0", {});
  EXPECT_THAT(
      message_of<IoError>([&] { open({}, 0, true)->size(); }),
      HasSubstr("no images; get the files again, or name another folder (the option data_dir)"));
}

class FolderImagesTest : public testing::Test {
 protected:
  void write(const std::string& path, const std::string& content) {
    std::filesystem::create_directories(
        std::filesystem::path(folder_.path() + "/" + path).parent_path());
    folder_.write(path, as_bytes(content));
  }
  std::unique_ptr<Dataset> open(bool train = true, std::int64_t skipped = 0,
                                std::int64_t classes = 2) const {
    return data::images({.format = "folder", .side = 8, .classes = classes})(
        {folder_.path(), {.most = skipped}}, train);
  }
  static std::vector<std::int32_t> labels_of(const Dataset& data, std::vector<std::int64_t> rows) {
    const Tensor labels = gather_tensors(data, rows)[1];
    return {labels.data<std::int32_t>().begin(), labels.data<std::int32_t>().end()};
  }
  const std::string png_ = png_of(ramp(16, 16));
  TemporaryFolder folder_;
};

TEST_F(FolderImagesTest, AreNumberedByTheNamesOfTheFoldersForTraining) {
  write("train/cat/b.PNG", png_);
  write("train/cat/a.jpg", jpeg_of(ramp(9, 20)));
  write("train/cat/notes.txt", "no image");
  write("train/cat/._a.jpg", "of another system");
  write("train/ant/z.jpeg", jpeg_of(ramp(20, 9)));
  write("val.txt", "no folder");
  write("val/cat/1.png", png_);
  const auto data = open();
  EXPECT_EQ(data->describe(), cat("3 images of ", folder_.path(), "/train"));
  EXPECT_EQ(data->files(), std::vector<std::string>{cat(folder_.path(), "/train")});
  EXPECT_THAT(labels_of(*data, {0, 1, 2}), testing::ElementsAre(0, 1, 1));
  EXPECT_THAT(labels_of(*open(false), {0}), testing::ElementsAre(1));
  EXPECT_EQ(gather_tensors(*data, std::vector<std::int64_t>{2})[0],
            gather_tensors(*open(false), std::vector<std::int64_t>{0})[0]);
}

TEST_F(FolderImagesTest, SayWhichFileOrFolderIsWrong) {
  EXPECT_THAT(message_of<NotFoundError>([&] { open()->size(); }),
              HasSubstr("has no folder named train; name the folder"));
  write("train/cat/deep/a.png", png_);
  write("train/dog/deep/b.png", png_);
  EXPECT_THAT(message_of<IoError>([&] { open()->size(); }),
              HasSubstr("folders inside them are not searched"));
  write("train/cat/a.png", png_);
  write("train/dog/b.png", "no image");
  write("val/cow/c.png", png_);
  EXPECT_THAT(message_of<OptionMistake>([&] { open(true, 0, 1000)->size(); }),
              HasSubstr("classes=1000, but "));
  EXPECT_THAT(message_of<IoError>([&] { open(false)->size(); }),
              HasSubstr("val/cow is no class, as the folder for training has none of that name"));
  EXPECT_THAT(message_of<IoError>([&] { labels_of(*open(), {1}); }),
              HasSubstr("train/dog/b.png: bad record at byte 0: neither JPEG nor PNG: 8 bytes"));
  const auto data = open(true, 1);
  EXPECT_THAT(labels_of(*data, {0, 1}), testing::ElementsAre(0, 0));
  EXPECT_EQ(data->left_out(), 1);
  write("validation/cat/c.png", png_);
  EXPECT_THAT(message_of<IoError>([&] { open(false)->size(); }),
              HasSubstr("say which to take (the option test_files)"));
}

}  // namespace images_test
}  // namespace belfry
