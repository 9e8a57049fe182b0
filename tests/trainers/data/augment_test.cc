#include "belfry/trainers/data/augment.h"

#include <cmath>
#include <numeric>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/tests/trainers/data/idx_files.h"
#include "belfry/tests/trainers/data/training_samples.h"

namespace belfry {
namespace augment_test {

using test::message_of;
using test::training_samples;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const std::vector<std::int64_t> kRows{0, 1, 2, 3};

// Four images [3,2,2], of values 1 to 48, with labels 0 to 3.
std::unique_ptr<Dataset> four_images() {
  std::vector<float> values(4 * 12);
  std::iota(values.begin(), values.end(), 1.0f);
  return std::make_unique<TensorDataset>(
      std::vector<TensorDataset::Source>{
          {"image", Tensor({4, 3, 2, 2}, values), DType::kF32, {3, 2, 2}},
          {"label", Tensor({4}, std::vector<std::int32_t>{0, 1, 2, 3}), DType::kI32, {}}},
      "four images");
}

std::vector<float> image_in(const Tensor& images, std::size_t i) {
  const auto values = images.data<float>().subspan(i * 12, 12);
  return {values.begin(), values.end()};
}

TEST(Augment, ChangesTrainingAloneAndByEpochAndSample) {
  for (const SampleFunction& change :
       {random_shift(1), random_mirror(), random_colours({1, 0.5f, 0.5f}), random_resized_crop()}) {
    const auto data = map_samples(four_images(), change);
    EXPECT_EQ(gather_tensors(*data, kRows), gather_tensors(*four_images(), kRows));
    const std::vector<Tensor> drawn = training_samples(*data, {1, 0}, kRows);
    EXPECT_EQ(training_samples(*data, {1, 0}, kRows), drawn);
    EXPECT_EQ(image_in(training_samples(*data, {1, 0}, {2})[0], 0), image_in(drawn[0], 2));
    bool differs = false;
    for (std::int64_t epoch = 1; epoch < 10; ++epoch)
      differs = differs || training_samples(*data, {1, epoch}, kRows) != drawn;
    EXPECT_TRUE(differs);
  }
}

// The columns of an image [4,8,1] are 1 to 8.
TEST(Augment, ResizesAPartOfTheAreaAndRatioThatItMayHave) {
  std::vector<float> values;
  for (int i = 0; i < 32; ++i) values.push_back(static_cast<float>(i % 8 + 1));
  const auto data_of = [&](const CropChoice& choice) {
    return map_samples(
        std::make_unique<TensorDataset>(
            std::vector<TensorDataset::Source>{
                {"image", Tensor({1, 4, 8, 1}, values), DType::kF32, {4, 8, 1}},
                {"label", Tensor({1}, std::vector<std::int32_t>{5}), DType::kI32, {}}},
            "columns"),
        {{"image", DType::kF32, {2, 4, 1}}, {"label", DType::kI32, {}}},
        random_resized_crop(choice));
  };
  const auto all = data_of({});
  const std::vector<Tensor> tested = gather_tensors(*all, std::vector<std::int64_t>{0});
  // Triangles four pixels wide, cut off at the edges: 3/8, 3/8, 1/8 of columns 1, 2, 3, over 7/8.
  EXPECT_NEAR(tested[0].data<float>()[0], (3 * 1 + 3 * 2 + 3) / 7.0, 1e-6);
  EXPECT_NEAR(tested[0].data<float>()[1], 3.5, 1e-6);
  EXPECT_NEAR(tested[0].data<float>()[5], 3.5, 1e-6);
  EXPECT_EQ(tested[1].data<std::int32_t>()[0], 5);
  // A part of an eighth of the area, two pixels square, of which each column becomes two.
  const auto small = data_of({.least_area = 0.125f, .most_area = 0.125f, .least_ratio = 1});
  std::set<float> firsts;
  for (std::int64_t epoch = 0; epoch < 50; ++epoch) {
    const std::vector<Tensor> drawn = training_samples(*small, {1, epoch}, {0});
    const auto image = drawn[0].data<float>();
    firsts.insert(image[0]);
    EXPECT_EQ(drawn[1].data<std::int32_t>()[0], 5);
    EXPECT_GE(image[0], 1);
    EXPECT_LE(image[3], 8);
    if (image[0] > 1.5f && image[3] < 7.5f) {
      EXPECT_NEAR(image[3] - image[0], 1.5, 1e-5);
    }
    for (std::size_t x = 0; x < 4; ++x) EXPECT_FLOAT_EQ(image[x], image[4 + x]);
  }
  EXPECT_GT(firsts.size(), 40u);
  EXPECT_THAT(message_of<InvalidArgument>([] { random_resized_crop({.least_area = 0}); }),
              HasSubstr("above 0, up to 1"));
}

TEST(Augment, ShiftsByEachDistanceAndFillsWithZeros) {
  const auto data = map_samples(four_images(), random_shift(1));
  std::set<std::vector<float>> found;
  for (std::int64_t epoch = 0; epoch < 100; ++epoch)
    found.insert(image_in(training_samples(*data, {1, epoch}, {0})[0], 0));
  EXPECT_EQ(found.size(), 9u);
  EXPECT_TRUE(found.contains({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}));
  EXPECT_TRUE(found.contains({0, 0, 0, 0, 0, 0, 1, 2, 0, 0, 5, 6}));    // down and right
  EXPECT_TRUE(found.contains({7, 8, 0, 0, 11, 12, 0, 0, 0, 0, 0, 0}));  // up and left
}

TEST(Augment, MirrorsHalfOfTheImages) {
  const auto data = map_samples(four_images(), random_mirror());
  int mirrored = 0;
  for (std::int64_t epoch = 0; epoch < 100; ++epoch) {
    const std::vector<float> image = image_in(training_samples(*data, {1, epoch}, {0})[0], 0);
    if (image[0] == 1) continue;
    ++mirrored;
    EXPECT_THAT(image, ElementsAre(3, 4, 1, 2, 7, 8, 5, 6, 11, 12, 9, 10));
  }
  EXPECT_GT(mirrored, 30);
  EXPECT_LT(mirrored, 70);
}

TEST(Augment, ChangesBrightnessContrastAndSaturationEachByItself) {
  const auto changed = [](const ColourChange& most) {
    return image_in(
        training_samples(*map_samples(four_images(), random_colours(most)), {1, 3}, {0})[0], 0);
  };
  const std::vector<float> bright = changed({.brightness = 2});
  const float by = bright[0] - 1;
  EXPECT_GT(std::abs(by), 0.01f);
  EXPECT_LE(std::abs(by), 2.0f);
  for (std::size_t i = 0; i < 12; ++i)
    EXPECT_NEAR(bright[i], static_cast<float>(i) + 1 + by, 1e-5) << i;
  const std::vector<float> contrast = changed({.contrast = 0.5f});  // about the mean, 6.5
  const float factor = (contrast[0] - 6.5f) / (1 - 6.5f);
  EXPECT_GT(std::abs(factor - 1), 0.01f);
  EXPECT_LE(std::abs(factor - 1), 0.5f);
  for (std::size_t i = 0; i < 12; ++i)
    EXPECT_NEAR(contrast[i], 6.5f + factor * (static_cast<float>(i) - 5.5f), 1e-4) << i;
  const std::vector<float> saturation = changed({.saturation = 0.5f});
  for (std::size_t i = 0; i < 12; i += 2)
    EXPECT_NEAR(saturation[i] + saturation[i + 1], 2 * static_cast<float>(i) + 3, 1e-4) << i;
  EXPECT_NE(saturation[0], 1);
}

TEST(MixUp, MixesTwoImagesAndTheirLabelsByOneShare) {
  const auto data = mix_up(four_images(), 4, 1);
  EXPECT_EQ(data->signature()[1], (Dataset::Field{"label", DType::kF32, {4}}));
  EXPECT_EQ(gather_tensors(*data, std::vector<std::int64_t>{2})[1],
            (Tensor({1, 4}, std::vector<float>{0, 0, 1, 0})));
  int mixed = 0;
  for (std::int64_t epoch = 0; epoch < 20; ++epoch) {
    const std::vector<Tensor> drawn = training_samples(*data, {1, epoch}, kRows);
    for (std::size_t i = 0; i < 4; ++i) {
      const auto shares = drawn[1].data<float>().subspan(i * 4, 4);
      EXPECT_NEAR(std::accumulate(shares.begin(), shares.end(), 0.0f), 1, 1e-6);
      // Images differ by 12 in each value, as they are numbered by their labels.
      float expected = 1;
      for (std::size_t c = 0; c < 4; ++c) expected += 12 * static_cast<float>(c) * shares[c];
      EXPECT_NEAR(image_in(drawn[0], i)[0], expected, 1e-3);
      mixed += shares[i] > 0.01f && shares[i] < 0.99f;
    }
    EXPECT_EQ(image_in(training_samples(*data, {1, epoch}, {2})[0], 0), image_in(drawn[0], 2));
  }
  EXPECT_GT(mixed, 40);
  EXPECT_THAT(message_of<InvalidArgument>([] { mix_up(four_images(), 4, 2); }),
              HasSubstr("alpha 2, which must be above 0, up to 1"));
  EXPECT_THAT(message_of<InvalidArgument>([] { gather_tensors(*mix_up(four_images(), 3), kRows); }),
              HasSubstr("sample 3 has the label 3, where classes are 0 to 2"));
}

}  // namespace augment_test
}  // namespace belfry
