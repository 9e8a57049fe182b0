#include "belfry/trainers/core/run_fingerprint.h"

#include <algorithm>
#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/framework/base/text.h"
#include "belfry/ops/accuracy.h"
#include "belfry/ops/convolution/max_pool.h"
#include "belfry/ops/reduce.h"
#include "belfry/ops/relu.h"
#include "belfry/ops/reshape.h"
#include "belfry/ops/sparse_softmax_cross_entropy.h"
#include "belfry/ops/square.h"
#include "belfry/tests/framework/base/memory_file_system.h"
#include "belfry/tests/trainers/core/small_problem.h"
#include "belfry/towers/layers.h"
#include "belfry/trainers/core/data_identity.h"
#include "belfry/trainers/core/trainer.h"
#include "belfry/trainers/core/trainer_kinds.h"
#include "belfry/trainers/data/synthetic_data.h"

namespace belfry {
namespace run_fingerprint_test {

using testing::HasSubstr;
using testing::Not;

constexpr std::size_t kMiB = std::size_t{1} << 20;

void write(MemoryFileSystem& disk, std::span<const std::byte> bytes) {
  disk.create("/disk/data")->append(bytes);
}

TEST(ChecksumOfFile, ReadsBlocksFromAllOverALargeFile) {
  MemoryFileSystem disk("/disk");
  std::vector<std::byte> bytes(127 * kMiB);  // a block begins at every second MiB
  const auto sum = [&] {
    write(disk, bytes);
    disk.fail_at(129);  // calls: open, and a seek and a read for each of 64 blocks
    const std::string result = checksum_of_file(disk, "/disk/data");
    EXPECT_TRUE(disk.waits());
    disk = disk.again();
    return result;
  };
  const std::string before = sum();
  EXPECT_THAT(before, testing::EndsWith(cat(" of ", 127 * kMiB, " bytes")));
  for (const std::size_t at :
       {std::size_t{0}, 2 * kMiB, 63 * kMiB - 1, 64 * kMiB, 100 * kMiB + 7, bytes.size() - 1}) {
    bytes[at] = std::byte{1};
    EXPECT_NE(sum(), before) << at;
    bytes[at] = std::byte{0};
  }
  bytes[63 * kMiB] = std::byte{1};
  EXPECT_EQ(sum(), before) << "this MiB is not looked at";
  bytes.push_back(std::byte{0});
  EXPECT_NE(sum(), before) << "the size";
}

TEST(ChecksumOfFile, ReadsAllOfAFileUpTo64MiB) {
  MemoryFileSystem disk("/disk");
  std::vector<std::byte> bytes(3 * kMiB + 5);
  write(disk, bytes);
  const std::string before = checksum_of_file(disk, "/disk/data");
  bytes[kMiB + kMiB / 2] = std::byte{1};
  write(disk, bytes);
  EXPECT_NE(checksum_of_file(disk, "/disk/data"), before);
}

// The model of the program mnist. Its runs from before convolutions had dilation and groups must go
// on.
TEST(RunFingerprint, OfPlainConvolutionsIsWhatItWas) {
  const auto model_of = [](ConvLayer first) {
    const auto data =
        synthetic_data({{"image", DType::kF32, {28, 28, 1}}, {"label", DType::kI32, {}}}, 10, 8, 1);
    TrainerOptions options{.model =
                               [&](Tower& tower, Output image, Output label) {
                                 Output x = max_pool(relu(conv2d(tower, "conv0", image, first)),
                                                     {.window = 2});
                                 x = relu(conv2d(tower, "conv1", x, {.filters = 64, .kernel = 3}));
                                 x = flatten(max_pool(x, {.window = 2}));
                                 x = relu(dense(tower, "fc0", x, {.units = 128}));
                                 const Output logits = dense(tower, "fc1", x, {.units = 10});
                                 tower.output("logits", logits);
                                 tower.metric("accuracy", accuracy(logits, label));
                                 return cross_entropy(logits, label);
                               },
                           .optimizer = momentum(0.1),
                           .devices = cpus(1),
                           .batch_size = 8};
    options.session.dry_run = true;
    const Trainer trainer(find_trainer("simple"), std::move(options), *data);
    return run_fingerprint(trainer.built(), trainer.progress()).str();
  };
  constexpr const char* kBefore = "5e695aa74e3b43c5";
  EXPECT_THAT(model_of({.filters = 32}), HasSubstr(kBefore));
  EXPECT_THAT(model_of({.filters = 32, .dilation = 2}), Not(HasSubstr(kBefore)));
  EXPECT_THAT(model_of({.filters = 32, .padding = 1}), Not(HasSubstr(kBefore)));
}

// One sample, x, of a folder.
class OfAFolder final : public Dataset {
 public:
  OfAFolder(float x, std::string folder) : x_(x), folder_(std::move(folder)) {}
  std::vector<Field> signature() const override { return {{"x", DType::kF32, {}}}; }
  std::int64_t size() const override { return 1; }
  std::string describe() const override { return "one number"; }
  std::vector<std::string> files() const override { return {folder_}; }
  void gather(std::span<const std::int64_t> indices,
              std::span<std::byte* const> out) const override {
    std::fill_n(reinterpret_cast<float*>(out[0]), indices.size(), x_);
  }

 private:
  float x_;
  std::string folder_;
};

TEST(RunFingerprint, LooksAtSamplesWhereDataAreAFolder) {
  const auto fingerprint_of = [](float x) {
    const OfAFolder data(x, std::filesystem::temp_directory_path());
    EXPECT_THAT(stamp_of_files(data), Not(HasSubstr("cannot be read")));
    TrainerOptions options{
        .model =
            [](Tower& tower, Output rows) {
              const Output column = reshape(rows, {kUnknownSize, 1});
              return reduce_mean(square(dense(tower, "fc", column, {.units = 1})));
            },
        .optimizer = momentum(0.1),
        .devices = cpus(1),
        .batch_size = 1};
    options.session.dry_run = true;
    const Trainer trainer(find_trainer("simple"), std::move(options), data);
    return run_fingerprint(trainer.built(), trainer.progress()).str();
  };
  EXPECT_EQ(fingerprint_of(1), fingerprint_of(1));
  EXPECT_NE(fingerprint_of(1), fingerprint_of(2));
}

}  // namespace run_fingerprint_test
}  // namespace belfry
