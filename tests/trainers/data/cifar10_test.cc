#include "belfry/trainers/data/cifar10.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/tests/trainers/data/idx_files.h"
#include "belfry/tests/trainers/data/training_samples.h"
#include "belfry/trainers/data/byte_input.h"

namespace belfry {
namespace cifar10_test {

using test::Bytes;
using test::gzip;
using test::message_of;
using test::TemporaryFolder;
using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;

constexpr std::size_t kRecord = 3073;

// A record per label. Pixel (y, x) has red label + y, green x and blue 100 + y.
Bytes records(const std::vector<int>& labels) {
  Bytes bytes;
  for (const int label : labels) {
    bytes.push_back(static_cast<std::byte>(label));
    for (int channel = 0; channel < 3; ++channel)
      for (int y = 0; y < 32; ++y)
        for (int x = 0; x < 32; ++x)
          bytes.push_back(static_cast<std::byte>(channel == 0   ? label + y
                                                 : channel == 1 ? x
                                                                : 100 + y));
  }
  return bytes;
}

float at(const Tensor& images, std::int64_t n, std::int64_t y, std::int64_t x, std::int64_t c) {
  return images.data<float>()[static_cast<std::size_t>(((n * 32 + y) * 32 + x) * 3 + c)];
}

TEST(Cifar10, ReadsAllBatchesThatAreThereAndNormalisesChannels) {
  const TemporaryFolder folder;
  folder.write("data_batch_2.bin", records({3, 1}));
  folder.write("data_batch_4.bin.gz", gzip(records({7})));
  folder.write("test_batch.bin.gz", gzip(records({9})));
  const auto train = data::cifar10({folder.path()}, true);
  ASSERT_EQ(train->size(), 3);
  EXPECT_EQ(train->files().size(), 2u);
  EXPECT_EQ(data::cifar10({folder.path()}, false)->size(), 1);
  const std::vector<std::int64_t> rows{0, 2};
  const std::vector<Tensor> batch = gather_tensors(*train, rows);
  EXPECT_EQ(batch[1].data<std::int32_t>()[0], 3);
  EXPECT_EQ(batch[1].data<std::int32_t>()[1], 7);
  EXPECT_FLOAT_EQ(at(batch[0], 0, 5, 6, 0), (8 / 255.0f - 0.4914f) / 0.2470f);
  EXPECT_FLOAT_EQ(at(batch[0], 0, 5, 6, 1), (6 / 255.0f - 0.4822f) / 0.2435f);
  EXPECT_FLOAT_EQ(at(batch[0], 1, 5, 6, 2), (105 / 255.0f - 0.4465f) / 0.2616f);
}

TEST(Cifar10, TakesTheUnpackedOneOfAFileThatIsThereTwice) {
  const TemporaryFolder folder;
  folder.write("data_batch_1.bin", records({3, 1}));
  folder.write("data_batch_1.bin.gz", gzip(records({7})));
  EXPECT_EQ(data::cifar10({folder.path()}, true)->size(), 2);
}

// The image tells the shift and the mirror. All 81 shifts must occur, mirrored and not.
TEST(Cifar10, ShiftsAndMirrorsImagesWithZerosBesideThem) {
  const TemporaryFolder folder;
  folder.write("data_batch_1.bin", records(std::vector<int>(60, 0)));
  const auto data = data::cifar10({folder.path()}, true);
  const std::vector<std::int64_t> all = [] {
    std::vector<std::int64_t> rows(60);
    for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<std::int64_t>(i);
    return rows;
  }();
  const Tensor plain = gather_tensors(*data, all)[0];
  std::set<std::tuple<int, int, bool>> seen;
  for (std::int64_t epoch = 0; epoch < 30; ++epoch) {
    const Tensor images = test::training_samples(*data, {1, epoch}, all)[0];
    for (std::int64_t n = 0; n < 60; ++n) {
      int matches = 0;
      for (int dy = -4; dy <= 4; ++dy)
        for (int dx = -4; dx <= 4; ++dx)
          for (const bool mirrored : {false, true}) {
            bool same = true;
            for (const auto& [y, x] : {std::pair{0, 0},
                                       {31, 31},
                                       {15, 12},
                                       {3, 28},
                                       {0, 31},
                                       {7, 19},
                                       {24, 9},
                                       {12, 3},
                                       {20, 29}}) {
              const int fy = y + dy, fx = (mirrored ? 31 - x : x) + dx;
              const bool inside = fy >= 0 && fy < 32 && fx >= 0 && fx < 32;
              for (int c = 0; c < 3; ++c)
                same = same && at(images, n, y, x, c) == (inside ? at(plain, n, fy, fx, c) : 0);
            }
            if (!same) continue;
            ++matches;
            seen.insert({dy, dx, mirrored});
          }
      ASSERT_EQ(matches, 1) << "epoch " << epoch << ", sample " << n;
    }
  }
  EXPECT_EQ(seen.size(), 162u);
}

TEST(Cifar10, ChangesASampleAsAFunctionOfSeedEpochAndIndex) {
  const TemporaryFolder folder;
  folder.write("data_batch_1.bin", records({1, 2, 3, 4, 5, 6}));
  const auto data = data::cifar10({folder.path()}, true);
  const Tensor all = test::training_samples(*data, {1, 2}, {0, 1, 2, 3, 4, 5})[0];
  const Tensor some = test::training_samples(*data, {1, 2}, {4, 1})[0];
  for (std::int64_t y = 0; y < 32; ++y)
    for (std::int64_t x = 0; x < 32; ++x) {
      EXPECT_EQ(at(some, 0, y, x, 0), at(all, 4, y, x, 0));
      EXPECT_EQ(at(some, 1, y, x, 0), at(all, 1, y, x, 0));
    }
  EXPECT_NE(test::training_samples(*data, {1, 3}, {0, 1, 2, 3, 4, 5})[0], all);
  EXPECT_NE(test::training_samples(*data, {2, 2}, {0, 1, 2, 3, 4, 5})[0], all);
}

TEST(Cifar10, NamesFileOffsetAndReasonOfABadRecord) {
  const TemporaryFolder folder;
  const std::string path = folder.write("data_batch_1.bin", records({1, 12, 2}));
  EXPECT_THAT(message_of<IoError>([&] { data::cifar10({folder.path()}, true)->size(); }),
              AllOf(HasSubstr(path + ": bad record at byte 3073: expected a label from 0 to 9"),
                    EndsWith("found 12; fix the file, or let such records be left out (the "
                             "option bad_records, skip:N)")));
}

TEST(Cifar10, LeavesOutAsManyBadRecordsAsItMay) {
  const TemporaryFolder folder;
  folder.write("data_batch_1.bin", records({1, 12, 2, 99, 3}));
  const auto data = data::cifar10({folder.path(), {.most = 2}}, true);
  ASSERT_EQ(data->size(), 3);
  EXPECT_EQ(data->left_out(), 2);
  EXPECT_THAT(data->describe(), EndsWith("without 2 bad records"));
  EXPECT_THAT(message_of<IoError>([&] {
                data::cifar10({folder.path(), {.most = 1}}, true)->size();
              }),
              AllOf(HasSubstr(cat("at byte ", 3 * kRecord, ": expected a label")),
                    HasSubstr("1 was left out before it")));
}

TEST(Cifar10, RefusesAnEmptyFileBesideOthers) {
  for (const bool packed : {false, true}) {
    const TemporaryFolder folder;
    folder.write("data_batch_1.bin", records({1, 2}));
    const std::string path = packed ? folder.write("data_batch_2.bin.gz", gzip({}))
                                    : folder.write("data_batch_2.bin", {});
    EXPECT_THAT(message_of<IoError>([&] {
                  data::cifar10({folder.path(), {.most = 1}}, true)->size();
                }),
                HasSubstr(path + ": no images; get the file again"));
  }
}

// Records of bytes that compression cannot shrink, so that their places in the file are known.
Bytes noisy_records(int count) {
  Bytes bytes = records(std::vector<int>(static_cast<std::size_t>(count), 1));
  std::uint32_t state = 1;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    state = state * 1664525 + 1013904223;
    if (i % kRecord != 0) bytes[i] = static_cast<std::byte>(state >> 24);
  }
  return bytes;
}

// No later record can be found, so none can be left out.
TEST(Cifar10, EndsAtADamagedFile) {
  const Bytes whole = gzip(noisy_records(6));
  Bytes cut = whole, longer = whole, corrupt = whole, plain = records({1, 2});
  cut.resize(cut.size() * 7 / 12);
  longer.resize(longer.size() + 5);
  corrupt[corrupt.size() - 8] ^= std::byte{1};  // in the checksum
  plain.pop_back();
  const std::pair<Bytes, std::string> damages[] = {
      {cut, cat("truncated at byte ", cut.size(), ": expected more gzip data, found the end")},
      {longer, cat("trailing bytes from byte ", whole.size(),
                   ": expected the end of the file, or more gzip data, found 5 more")},
      {corrupt, cat("corrupt at byte ", whole.size() - 4,
                    ": expected gzip data, found: incorrect data check")},
      {plain, cat("record at byte ", kRecord, ": expected 3073 bytes, found 3072 to the end")}};
  for (const auto& [bytes, reason] : damages) {
    const TemporaryFolder folder;
    const std::string path = folder.write("data_batch_1.bin.gz", bytes);
    EXPECT_THAT(message_of<IoError>([&] {
                  data::cifar10({folder.path(), {.most = 9}}, true)->size();
                }),
                AllOf(HasSubstr(cat(path, ": ", reason, "; no later record")),
                      HasSubstr("get the file again")));
  }
}

// A file of a terabyte, or a few packed bytes that become one.
TEST(Cifar10, StopsReadingAFileThatHasFarTooManyRecords) {
  for (const bool packed : {false, true}) {
    const Bytes plain(60 * kRecord), bytes = packed ? gzip(plain) : plain;
    BytesFile file(bytes);
    BadRecords one({.most = 1});
    data::CifarImages images;
    EXPECT_THAT(
        message_of<IoError>([&] { data::read_cifar(file, "f", one, images, 50); }),
        HasSubstr(cat("f: record at byte ", 50 * kRecord, ": the file has more than 50 images")));
  }
}

TEST(Cifar10, NamesTheFilesThatAFolderLacksAndWhatIsCorrupt) {
  const TemporaryFolder folder;
  EXPECT_THAT(message_of<NotFoundError>([&] { data::cifar10({folder.path()}, true)->size(); }),
              HasSubstr(folder.path() + " has no file data_batch_*.bin or data_batch_*.bin.gz"));
  Bytes packed = gzip(records({1, 2}));
  packed[packed.size() / 2] ^= std::byte{0xFF};
  const std::string path = folder.write("data_batch_1.bin.gz", packed);
  EXPECT_THAT(message_of<IoError>([&] { data::cifar10({folder.path()}, true)->size(); }),
              HasSubstr(path));
  folder.write("test_batch.bin", {});
  EXPECT_THAT(message_of<IoError>([&] { data::cifar10({folder.path()}, false)->size(); }),
              AllOf(HasSubstr("test_batch.bin: no images; get the file again"),
                    HasSubstr("(the option data_dir)")));
  EXPECT_THAT(message_of<IoError>([&] { data::cifar10({"/no/such/folder"}, true)->size(); }),
              HasSubstr("/no/such/folder: cannot list: No such file or directory; name the folder "
                        "with the data files (the option data_dir)"));
}

TEST(Cifar10, GeneratesImagesWithoutAFolder) {
  const auto train = data::cifar10({}, true), other = data::cifar10({}, false);
  EXPECT_EQ(train->size(), 10000);
  EXPECT_EQ(other->size(), 2000);
  const std::vector<std::int64_t> rows{0, 1};
  EXPECT_NE(gather_tensors(*train, rows)[0], gather_tensors(*other, rows)[0]);
  EXPECT_EQ(gather_tensors(*train, rows)[0].shape(), (Shape{2, 32, 32, 3}));
}

}  // namespace cifar10_test
}  // namespace belfry
