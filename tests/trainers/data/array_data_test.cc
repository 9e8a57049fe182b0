// NumPy's files, and data of them.
#include "belfry/trainers/data/array_data.h"

#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/tests/trainers/data/npy_files.h"
#include "belfry/tests/trainers/data/tf_files.h"
#include "belfry/trainers/data/images.h"
#include "belfry/trainers/data/npy_array.h"

namespace belfry {
namespace array_data_test {

using test::as_bytes;
using test::message_of;
using test::npy;
using test::npy_of;
using test::zip;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class ArrayDataTest : public testing::Test {
 protected:
  void write(const std::string& name, const std::string& content) {
    folder_.write(name, as_bytes(content));
  }
  std::unique_ptr<Dataset> open(bool train = true, std::int64_t skipped = 0) const {
    return data::arrays({.fields = {{"x", DType::kF32, {2}}, {"y", DType::kI32, {}}}})(
        {folder_.path(), {.most = skipped}}, train);
  }
  std::string refusal() const {
    return message_of<IoError>([&] { open()->size(); });
  }
  const std::string x_ = npy_of<float>("<f4", "(3, 2)", {1, 2, 3, 4, 5, 6});
  const std::string y_ = npy_of<std::int64_t>("<i8", "(3,)", {7, 8, 9});
  const std::vector<std::int64_t> rows_{2, 0};
  test::TemporaryFolder folder_;
};

TEST_F(ArrayDataTest, AreEqualFromEachKindOfFile) {
  const auto expect_rows = [&] {
    const auto data = open();
    EXPECT_EQ(data->size(), 3);
    const std::vector<Tensor> found = gather_tensors(*data, rows_);
    EXPECT_EQ(found[0], (Tensor({2, 2}, std::vector<float>{5, 6, 1, 2})));
    EXPECT_EQ(found[1], (Tensor({2}, std::vector<std::int32_t>{9, 7})));
  };
  write("train_x.npy", x_);
  write("train_y.npy", y_);
  expect_rows();
  write("train_x.npy", npy_of<double>("<f8", "(3, 2)", {1, 2, 3, 4, 5, 6}));
  write("train_y.npy", npy_of<std::uint8_t>("|u1", "(3,)", {7, 8, 9}));
  expect_rows();
  write("train_x.npy", npy("|u1", "(3, 2)", "\1\2\3\4\5\6", "False", 2));
  expect_rows();
  const std::vector<std::pair<std::string, std::string>> both{{"x.npy", x_}, {"y.npy", y_}};
  for (const auto& [packed, in_64_bits] :
       {std::pair(false, false), {true, false}, {false, true}, {true, true}}) {
    write("train.npz", zip(both, packed, in_64_bits));  // is taken first
    write("train_x.npy", "");
    expect_rows();
  }
}

TEST_F(ArrayDataTest, SayWhatIsWrong) {
  EXPECT_THAT(message_of<NotFoundError>([&] { open()->size(); }),
              HasSubstr("train_x.npy is there"));
  write("train_y.npy", y_);
  const std::pair<std::string, std::string> kinds[] = {
      {"no array", "train_x.npy: no array of NumPy"},
      {npy("<f4", "(3, 2)", "", "True"), "is in Fortran's order"},
      {npy(">f4", "(3, 2)", ""), "has the type '>f4', where"},
      {npy("<f4", "(3, 2)", std::string(20, 'x')), "truncated at byte"},
      {npy("<f4", "(3, 4611686018427387904)", ""), "truncated at byte"},
      {npy("<f4", "(-3, 2)", ""), "has no shape that is read"},
      {npy("<f4", "(0, 2)", ""), "which has no samples"},
      {npy_of<float>("<f4", "(1, 4)", {1, 2, 3, 4}), "where the model takes f32 [2] per sample"},
      {npy_of<std::int32_t>("<i4", "(1, 2)", {1, 2}), "has i32 [1,2], where the model takes f32"},
      {npy_of<float>("<f4", "(2, 2)", {1, 2, 3, 4}), "has 2 samples"}};
  for (const auto& [x, reason] : kinds) {
    write("train_x.npy", x);
    EXPECT_THAT(refusal(), HasSubstr(reason));
  }
  const std::string archive = zip({{"x.npy", x_}}, true);
  write("train.npz", archive);
  EXPECT_THAT(message_of<NotFoundError>([&] { open()->size(); }), HasSubstr("has no array y"));
  write("train.npz", archive.substr(0, archive.size() - 10));
  EXPECT_THAT(refusal(), HasSubstr("no zip archive, or one that is cut off"));
  // Stored blocks, so that each byte of the data unpacks.
  std::string wrong = zip({{"x.npy", x_}, {"y.npy", y_}}, true, false, 0);
  wrong[wrong.find(std::string("\0\0\x80\x3f", 4))] ^= '\1';
  write("train.npz", wrong);
  EXPECT_THAT(refusal(), AllOf(HasSubstr("train.npz, array x: its packed data are damaged"),
                               HasSubstr("expected the CRC 0x")));
  std::string damaged = archive;
  damaged[40] ^= '\x55';
  damaged[41] ^= '\x55';
  write("train.npz", damaged);
  EXPECT_THAT(refusal(), HasSubstr("train.npz"));
}

TEST_F(ArrayDataTest, LeaveOutRowsWhoseNumbersDoNotFit) {
  write("test_x.npy", x_);
  write("test_y.npy", npy_of<std::int64_t>("<i8", "(3,)", {7, 8, std::int64_t{1} << 40}));
  EXPECT_THAT(message_of<IoError>([&] { gather_tensors(*open(false), rows_); }),
              HasSubstr("test_y.npy: bad record at byte"));
  const auto data = open(false, 1);
  EXPECT_EQ(gather_tensors(*data, rows_)[1], (Tensor({2}, std::vector<std::int32_t>{7, 7})));
  EXPECT_EQ(data->left_out(), 1);
}

TEST_F(ArrayDataTest, GiveImagesToo) {
  std::vector<std::uint8_t> pixels(2 * 16 * 16 * 3);
  std::iota(pixels.begin(), pixels.end(), std::uint8_t{0});
  write("train.npz", zip({{"x.npy", npy_of("|u1", "(2, 16, 16, 3)", pixels)},
                          {"y.npy", npy_of<std::int32_t>("<i4", "(2,)", {4, 11})}}));
  const auto open_images = [&] {
    return data::images({.format = "npy", .side = 14, .classes = 10})({folder_.path(), {}}, true);
  };
  const std::vector<Tensor> found = gather_tensors(*open_images(), std::vector<std::int64_t>{0});
  EXPECT_EQ(found[1], (Tensor({1}, std::vector<std::int32_t>{4})));
  // Of 16 pixels the middle 14 are taken, so the first one is pixel (1, 1) of the image.
  EXPECT_NEAR(found[0].data<float>()[0], (51 / 255.0 - 0.485) / 0.229, 1e-3);
  EXPECT_THAT(
      message_of<IoError>([&] { gather_tensors(*open_images(), std::vector<std::int64_t>{1}); }),
      AllOf(HasSubstr("train.npz, array x: bad record at byte"),
            HasSubstr(": row 1: the label 11")));
  write("train.npz", zip({{"x.npy", x_}, {"y.npy", y_}}));
  EXPECT_THAT(message_of<IoError>([&] { open_images()->size(); }),
              HasSubstr("where images are u8 [n,height,width,3]"));
}

}  // namespace array_data_test
}  // namespace belfry
