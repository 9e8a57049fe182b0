#include "belfry/trainers/data/dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/framework/base/error.h"
#include "belfry/framework/base/text.h"
#include "belfry/tests/trainers/data/idx_files.h"

namespace belfry {
namespace dataset_test {

using test::message_of;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Three samples of two bytes, with a label each.
TensorDataset small() {
  return TensorDataset({{.name = "image",
                         .rows = Tensor({3, 2}, std::vector<std::uint8_t>{0, 255, 51, 102, 1, 2}),
                         .dtype = DType::kF32,
                         .sample = {1, 2},
                         .scale = 1.0f / 255},
                        {.name = "label",
                         .rows = Tensor({3}, std::vector<std::uint8_t>{7, 8, 9}),
                         .dtype = DType::kI32,
                         .sample = {}}},
                       "three samples");
}

TEST(Dataset, HasASignatureOfSamplesWithoutABatchDimension) {
  const TensorDataset dataset = small();
  const auto fields = dataset.signature();
  ASSERT_EQ(fields.size(), 2u);
  EXPECT_EQ(fields[0].name, "image");
  EXPECT_EQ(fields[0].dtype, DType::kF32);
  EXPECT_EQ(fields[0].shape, (Shape{1, 2}));
  EXPECT_EQ(fields[1].name, "label");
  EXPECT_EQ(fields[1].dtype, DType::kI32);
  EXPECT_EQ(fields[1].shape, Shape{});
  EXPECT_EQ(dataset.size(), 3);
  EXPECT_EQ(dataset.describe(), "three samples");
}

TEST(Dataset, GathersBytesAsScaledFloatsAndIntegersInTheOrderAsked) {
  const std::vector<std::int64_t> indices = {2, 0, 0};
  const auto tensors = gather_tensors(small(), indices);
  EXPECT_EQ(tensors[0].shape(), (Shape{3, 1, 2}));
  EXPECT_EQ(tensors[1].shape(), (Shape{3}));
  EXPECT_THAT(tensors[0].data<float>(), ElementsAre(1 / 255.f, 2 / 255.f, 0, 1, 0, 1));
  EXPECT_THAT(tensors[1].data<std::int32_t>(), ElementsAre(9, 7, 7));
}

TEST(Dataset, ScalesEveryByteAlikeWhereverItStandsInARow) {
  std::vector<std::uint8_t> values(2 * 77);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<std::uint8_t>(i * 5);
  const TensorDataset dataset({{.name = "x",
                                .rows = Tensor({2, 77}, values),
                                .dtype = DType::kF32,
                                .sample = {77},
                                .scale = 1.0f / 255}},
                              "x");
  const std::vector<std::int64_t> indices = {1, 0};
  const Tensor x = gather_tensors(dataset, indices)[0];
  for (std::size_t i = 0; i < values.size(); ++i)
    EXPECT_EQ(x.data<float>()[i],
              static_cast<float>(values[(i + 77) % values.size()]) * (1.0f / 255));
}

TEST(Dataset, CopiesRowsOfTheTypeAskedForAsTheyAre) {
  const TensorDataset dataset({{.name = "x",
                                .rows = Tensor({2, 2}, std::vector<double>{1, 2, 3, 4}),
                                .dtype = DType::kF64,
                                .sample = {2}}},
                              "x");
  const std::vector<std::int64_t> indices = {1};
  EXPECT_THAT(gather_tensors(dataset, indices)[0].data<double>(), ElementsAre(3, 4));
}

TEST(Dataset, RefusesSamplesThatDoNotExist) {
  for (const std::int64_t index : {-1, 3}) {
    const std::vector<std::int64_t> indices = {0, index};
    EXPECT_EQ(message_of<InvalidArgument>([&] { gather_tensors(small(), indices); }),
              cat("sample ", index, " of a dataset of 3"));
  }
}

TEST(Dataset, RefusesFieldsThatDoNotFit) {
  const auto error = [](std::vector<TensorDataset::Source> sources) {
    return message_of<InvalidArgument>([&] { TensorDataset(std::move(sources), ""); });
  };
  const Tensor three({3}, DType::kU8), two({2}, DType::kU8), floats({3}, DType::kF32);
  EXPECT_THAT(error({}), HasSubstr("at least one field"));
  EXPECT_THAT(error({{"a", three, DType::kI32, {}}, {"b", two, DType::kI32, {}}}),
              HasSubstr("field 'b' has 2 samples, the first field has 3"));
  EXPECT_THAT(error({{"a", Tensor(1.0f), DType::kF32, {}}}), HasSubstr("leading sample dimension"));
  EXPECT_THAT(error({{"a", three, DType::kI32, {4}}}), HasSubstr("are not samples of shape [4]"));
  EXPECT_THAT(error({{"a", floats, DType::kI32, {}}}),
              HasSubstr("cannot make i32 samples from f32"));
  EXPECT_THAT(error({{"a", floats, DType::kF32, {}, 2}}), HasSubstr("a scale needs u8 rows"));
  EXPECT_THAT(error({{"a", three, DType::kI32, {}, 2}}), HasSubstr("a scale needs u8 rows"));
}

TEST(LazyDataset, LoadsOnceWhenSamplesAreNeededAndAgainAfterAFailure) {
  int loads = 0;
  const std::vector<Dataset::Field> fields{{"x", DType::kF32, {}}};
  const LazyDataset lazy(fields, [&]() -> std::unique_ptr<Dataset> {
    if (++loads == 1) throw IoError("the disk is away");
    return std::make_unique<TensorDataset>(
        std::vector<TensorDataset::Source>{
            {"x", Tensor({3}, std::vector{1.f, 2.f, 3.f}), DType::kF32, {}}},
        "three numbers");
  });
  EXPECT_EQ(lazy.signature(), fields);
  EXPECT_EQ(loads, 0);
  EXPECT_THROW(lazy.size(), IoError);
  EXPECT_EQ(lazy.size(), 3);
  EXPECT_EQ(lazy.describe(), "three numbers");
  EXPECT_EQ(loads, 2);
}

TEST(LazyDataset, RefusesOtherFieldsThanItAnnouncedAndNone) {
  const auto error = [](LazyDataset::Load load) -> std::string {
    try {
      LazyDataset({{"y", DType::kF32, {}}}, std::move(load)).size();
    } catch (const InvalidArgument& e) {
      return e.what();
    }
    return "(loaded)";
  };
  EXPECT_THAT(error([] { return std::unique_ptr<Dataset>(); }), HasSubstr("gave no dataset"));
  EXPECT_THAT(error({}), HasSubstr("an empty function"));
  EXPECT_THAT(error([] {
                return std::make_unique<TensorDataset>(
                    std::vector<TensorDataset::Source>{
                        {"x", Tensor({1}, std::vector{1.f}), DType::kF32, {}}},
                    "one number");
              }),
              HasSubstr("gave one number, which has other fields"));
}

}  // namespace dataset_test
}  // namespace belfry
