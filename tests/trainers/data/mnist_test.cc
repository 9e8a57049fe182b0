#include "belfry/trainers/data/mnist.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <set>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/framework/base/fnv1a.h"
#include "belfry/framework/base/text.h"
#include "belfry/tests/trainers/data/idx_files.h"
#include "belfry/tests/trainers/data/unread_folder.h"

namespace belfry {
namespace mnist_test {

using test::Bytes;
using test::gzip;
using test::idx_bytes;
using test::message_of;
using test::TemporaryFolder;
using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

std::vector<Tensor> all_samples(const Dataset& dataset) {
  std::vector<std::int64_t> indices(static_cast<std::size_t>(dataset.size()));
  std::iota(indices.begin(), indices.end(), std::int64_t{0});
  return gather_tensors(dataset, indices);
}

// Writes a folder of `images` training images with `labels` labels.
void write_mnist(const TemporaryFolder& folder, std::uint32_t images, std::uint32_t labels,
                 std::uint32_t classes = 10) {
  folder.write("train-images-idx3-ubyte.gz", gzip(idx_bytes({images, 28, 28})));
  folder.write("train-labels-idx1-ubyte", idx_bytes({labels}, classes));
}

std::string load_error(const TemporaryFolder& folder) {
  return message_of<Error>([&] { data::mnist({folder.path()}, true)->size(); });
}

TEST(Mnist, ReadsImagesInUnitRangeAndLabelsFromFiles) {
  const TemporaryFolder folder;
  write_mnist(folder, 12, 12);
  const auto dataset = data::mnist({folder.path()}, true);
  EXPECT_EQ(dataset->describe(), cat("MNIST, 12 training images from ", folder.path()));
  const auto fields = dataset->signature();
  EXPECT_EQ(fields[0].shape, (Shape{28, 28, 1}));
  EXPECT_EQ(fields[0].dtype, DType::kF32);
  EXPECT_EQ(fields[1].shape, Shape{});
  EXPECT_EQ(fields[1].dtype, DType::kI32);
  const auto samples = all_samples(*dataset);
  EXPECT_EQ(samples[0].shape(), (Shape{12, 28, 28, 1}));
  EXPECT_EQ(samples[0].data<float>()[255], 1.0f);
  EXPECT_FLOAT_EQ(samples[0].data<float>()[1], 1 / 255.f);
  EXPECT_EQ(samples[1].data<std::int32_t>()[11], 1);
}

TEST(Mnist, NamesBothFilesAndCountsWhenLabelsDoNotMatchImages) {
  const TemporaryFolder folder;
  write_mnist(folder, 12, 11);
  EXPECT_EQ(
      load_error(folder),
      cat(folder.path(), "/train-images-idx3-ubyte.gz has 12 images, but ", folder.path(),
          "/train-labels-idx1-ubyte has 11 labels, by byte 4 of the unpacked data of each; nobody "
          "knows which label is whose, so none can be left out (the option bad_records); get the "
          "file again, or name another folder (the option data_dir)"));
}

// The file is all holes. Reading its 2,000,000 images would take seconds.
TEST(Mnist, ComparesCountsBeforeImagesAreRead) {
  const TemporaryFolder folder;
  write_mnist(folder, 12, 11);
  const std::string images = folder.path() + "/train-images-idx3-ubyte";
  std::filesystem::remove(images + ".gz");
  const char header[] = "\0\0\x08\x03\0\x1E\x84\x80\0\0\0\x1C\0\0\0\x1C";
  std::ofstream(images).write(header, 16);
  std::filesystem::resize_file(images, 16);
  EXPECT_THAT(load_error(folder), HasSubstr("truncated at byte 16"));
  std::filesystem::resize_file(images, 16 + 2'000'000LL * 28 * 28 - 1);
  EXPECT_THAT(load_error(folder), HasSubstr("truncated at byte"));
  std::filesystem::resize_file(images, 16 + 2'000'000LL * 28 * 28 + 1);
  EXPECT_THAT(load_error(folder), HasSubstr(" has 2000000 images, but "))
      << "though there is a byte too much, which only who reads them all knows";
}

TEST(Mnist, ComparesCountsBeforeLabelsAreRead) {
  const TemporaryFolder folder;
  write_mnist(folder, 12, 11);
  const std::string labels = folder.path() + "/train-labels-idx1-ubyte";
  std::ofstream(labels).write("\0\0\x08\x01\xFF\xFF\xFF\xFF", 8);
  std::filesystem::resize_file(labels, 8 + 0xFFFF'FFFFLL + 1);
  EXPECT_THAT(load_error(folder), HasSubstr(labels + " has 4294967295 labels"))
      << "though there is a byte too much, which only who reads them all knows";
}

TEST(Mnist, NamesTheFilesThatItReads) {
  const TemporaryFolder folder;
  write_mnist(folder, 12, 12);
  EXPECT_THAT(data::mnist({folder.path()}, true)->files(),
              ::testing::ElementsAre(folder.path() + "/train-images-idx3-ubyte.gz",
                                     folder.path() + "/train-labels-idx1-ubyte"));
  EXPECT_TRUE(data::mnist({folder.path()}, false)->files().empty()) << "there are none";
  EXPECT_TRUE(data::mnist({}, true)->files().empty());
}

TEST(Mnist, SaysWhyAFileCannotBeLookedUp) {
  const TemporaryFolder folder;
  const std::string images = folder.path() + "/train-images-idx3-ubyte";
  std::filesystem::create_symlink(images, images);
  EXPECT_THAT(load_error(folder), HasSubstr(images + ": cannot look up: Too many levels"));
}

TEST(Mnist, NamesTheByteOfALabelAboveNine) {
  const TemporaryFolder folder;
  write_mnist(folder, 12, 12, 12);
  EXPECT_THAT(load_error(folder),
              AllOf(HasSubstr("/train-labels-idx1-ubyte: bad record at byte 18: expected a label "
                              "from 0 to 9, found 10; fix the file, or let such records be left "
                              "out (the option bad_records, skip:N)"),
                    HasSubstr("(the option data_dir)")));
}

TEST(Mnist, LeavesOutImagesWhoseLabelIsNone) {
  const TemporaryFolder folder;
  write_mnist(folder, 24, 24, 12);  // the labels 10 and 11, twice
  const auto data = data::mnist({folder.path(), {.most = 4}}, true);
  ASSERT_EQ(data->size(), 20);
  const auto samples = all_samples(*data);
  EXPECT_EQ(samples[1].data<std::int32_t>()[9], 9);
  EXPECT_EQ(samples[1].data<std::int32_t>()[10], 0);
  const int first_byte = 12 * 28 * 28 % 256;  // first byte of image 12
  EXPECT_FLOAT_EQ(samples[0].data<float>()[10 * 28 * 28], static_cast<float>(first_byte) / 255);
  EXPECT_EQ(data->left_out(), 4);
  EXPECT_THAT(data->describe(), EndsWith(cat(folder.path(), ", without 4 bad records")));
  EXPECT_THAT(message_of<IoError>([&] {
                data::mnist({folder.path(), {.most = 3}}, true)->size();
              }),
              HasSubstr("at byte 31: expected a label from 0 to 9, found 11; 3 were left out"));
}

// No later record can be found, so none can be left out.
TEST(Mnist, EndsAtADamagedFile) {
  const TemporaryFolder folder;
  folder.write("train-labels-idx1-ubyte", idx_bytes({12}, 10));
  Bytes cut = idx_bytes({12, 28, 28}), corrupt = gzip(cut);
  cut.resize(16 + 7 * 28 * 28 + 5);
  corrupt[corrupt.size() - 8] ^= std::byte{1};  // in the checksum
  for (const auto& [bytes, reason] :
       {std::pair(cut, "truncated at byte 5509"), {corrupt, "found: incorrect data check"}}) {
    const std::string path = folder.write("train-images-idx3-ubyte", bytes);
    EXPECT_THAT(message_of<IoError>([&] {
                  data::mnist({folder.path(), {.most = 9}}, true)->size();
                }),
                AllOf(HasSubstr(path + ": "), HasSubstr(reason), HasSubstr("get the file again")));
  }
}

TEST(Mnist, NamesAFileWithoutImages) {
  const TemporaryFolder folder;
  write_mnist(folder, 0, 0);
  EXPECT_THAT(load_error(folder), HasSubstr("train-images-idx3-ubyte.gz has no images"));
  folder.write("train-images-idx3-ubyte.gz", idx_bytes({256, 0, 28}));
  EXPECT_THAT(load_error(folder), HasSubstr("train-images-idx3-ubyte.gz: bytes 8 to 11: expected "
                                            "dimension 1 above 0, found shape [256,0,28]"));
}

TEST(Mnist, RefusesImagesOfAnotherSize) {
  const TemporaryFolder folder;
  folder.write("train-images-idx3-ubyte", idx_bytes({4, 14, 56}));
  folder.write("train-labels-idx1-ubyte", idx_bytes({4}));
  EXPECT_THAT(load_error(folder), HasSubstr("expected images of 28x28, found 14x56"));
}

TEST(Mnist, SaysWhichFileIsMissingAndWhichFlagNamesTheFolder) {
  const TemporaryFolder folder;
  EXPECT_THAT(message_of<NotFoundError>([&] { data::mnist({folder.path()}, false)->size(); }),
              AllOf(HasSubstr(folder.path() + "/t10k-images-idx3-ubyte"),
                    HasSubstr("(the option data_dir)")));
}

// Another download would not help.
TEST(Mnist, SaysThatItMayNotReadTheFolder) {
  const TemporaryFolder folder;
  write_mnist(folder, 4, 4);
  const test::UnreadFolder unread(folder.path());
  if (!unread.denied()) GTEST_SKIP() << "root may read everything here";
  EXPECT_THAT(load_error(folder),
              AllOf(HasSubstr("Permission denied; let this process read it, or name another"),
                    Not(HasSubstr("get the file again"))));
}

TEST(Mnist, ReadsTheRealFilesWhereTheyAre) {
  const char* root = std::getenv("BELFRY_DATA_DIR");
  if (!root) GTEST_SKIP() << "BELFRY_DATA_DIR is not set";
  const RunDirs dirs{cat(root, "/mnist")};
  const auto train = data::mnist(dirs, true), test = data::mnist(dirs, false);
  EXPECT_EQ(train->size(), 60000);
  EXPECT_EQ(test->size(), 10000);
  const std::vector<std::int64_t> first = {0, 1, 2, 3, 4};
  EXPECT_THAT(gather_tensors(*train, first)[1].data<std::int32_t>(),
              ::testing::ElementsAre(5, 0, 4, 1, 9));
  const auto samples = all_samples(*test);
  EXPECT_THAT(samples[1].data<std::int32_t>().first(5), ::testing::ElementsAre(7, 2, 1, 0, 4));
  const auto pixels = samples[0].data<float>();
  double sum = 0;
  for (const float pixel : pixels) sum += pixel;
  EXPECT_NEAR(sum / static_cast<double>(pixels.size()), 0.1325, 1e-4);
}

// As bytes, which pixels are made of.
std::vector<std::byte> drawn_bytes(const Dataset& dataset) {
  const std::vector<Tensor> samples = all_samples(dataset);
  std::vector<std::byte> bytes;
  for (const float pixel : samples[0].data<float>())
    bytes.push_back(static_cast<std::byte>(std::lround(pixel * 255)));
  for (const int label : samples[1].data<std::int32_t>())
    bytes.push_back(static_cast<std::byte>(label));
  return bytes;
}

TEST(GeneratedDigits, AreTheSameBitsOnEveryMachine) {
  Fnv1a hash;
  hash.add(drawn_bytes(*data::generated_digits(1000, 1)));
  EXPECT_EQ(hash.value(), 0xD361136998EC1DCDu);
}

TEST(GeneratedDigits, DependOnSeedAndIndexAlone) {
  const auto many = data::generated_digits(50, 5);
  const std::vector<std::int64_t> some{7, 3, 7};
  const std::vector<Tensor> few = gather_tensors(*many, some), all = all_samples(*many);
  for (std::size_t i = 0; i < some.size(); ++i) {
    const auto row = static_cast<std::size_t>(some[i]);
    EXPECT_TRUE(std::ranges::equal(few[0].data<float>().subspan(i * 784, 784),
                                   all[0].data<float>().subspan(row * 784, 784)));
    EXPECT_EQ(few[1].data<std::int32_t>()[i], all[1].data<std::int32_t>()[row]);
  }
  EXPECT_NE(drawn_bytes(*data::generated_digits(50, 6)), drawn_bytes(*many));
  EXPECT_THROW(gather_tensors(*many, std::vector<std::int64_t>{50}), InvalidArgument);
}

TEST(GeneratedDigits, AreGatheredByAnyThread) {
  const auto digits = data::generated_digits(300, 5);
  std::vector<std::vector<std::byte>> gathered(4);
  {
    std::vector<std::jthread> threads;
    for (auto& bytes : gathered) threads.emplace_back([&] { bytes = drawn_bytes(*digits); });
  }
  for (const auto& bytes : gathered) EXPECT_EQ(bytes, gathered[0]);
  EXPECT_EQ(gathered[0], drawn_bytes(*data::generated_digits(300, 5)));
}

TEST(GeneratedDigits, HoldEveryClassAboutEquallyOften) {
  const std::vector<Tensor> digits = all_samples(*data::generated_digits(5000, 3));
  std::vector<int> count(10);
  for (const int label : digits[1].data<std::int32_t>())
    ++count.at(static_cast<std::size_t>(label));
  for (const int c : count) EXPECT_NEAR(c, 500, 100);
}

TEST(GeneratedDigits, ShareNoImageBetweenTrainingAndTest) {
  const auto hashes_of = [](const Dataset& dataset) {
    const auto samples = all_samples(dataset);
    const std::size_t bytes = 784 * sizeof(float);
    const char* data = reinterpret_cast<const char*>(samples[0].raw());
    std::set<std::uint64_t> hashes;
    for (std::int64_t i = 0; i < dataset.size(); ++i)
      hashes.insert(
          std::hash<std::string_view>()({data + static_cast<std::size_t>(i) * bytes, bytes}));
    return hashes;
  };
  const auto train = hashes_of(*data::mnist({}, true)), test = hashes_of(*data::mnist({}, false));
  EXPECT_EQ(train.size(), 60000u);
  EXPECT_EQ(test.size(), 10000u);
  std::vector<std::uint64_t> common;
  std::ranges::set_intersection(train, test, std::back_inserter(common));
  EXPECT_TRUE(common.empty());
}

TEST(GeneratedDigits, SayThatTheyAreGenerated) {
  EXPECT_EQ(data::mnist({}, true)->describe(),
            "generated digits: 60000 training images (no data directory given)");
  EXPECT_EQ(data::generated_digits(20, 7)->describe(), "generated digits: 20 images from seed 7");
  EXPECT_THROW(data::generated_digits(-1, 7), InvalidArgument);
}

}  // namespace mnist_test
}  // namespace belfry
