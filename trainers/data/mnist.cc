#include "belfry/trainers/data/mnist.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "belfry/framework/base/advised_error.h"
#include "belfry/framework/base/error.h"
#include "belfry/framework/base/file_system.h"
#include "belfry/framework/base/option_name.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/trainers/data/generated_digits.h"
#include "belfry/trainers/data/idx_reader.h"

namespace belfry::data {
namespace {

constexpr std::uint64_t kTrainSeed = 1, kTestSeed = 2;
constexpr std::int64_t kTrainCount = 60000, kTestCount = 10000;
constexpr int kMaxLabel = 9;
constexpr std::uint64_t kLabelHeader = 8;  // bytes before the first label in its file

struct IdxImages {
  Tensor images;  // u8 [count, kDigitSide, kDigitSide], white on black
  Tensor labels;  // u8 [count]
};

std::unique_ptr<Dataset> make_dataset(IdxImages digits, std::string description,
                                      std::int64_t left_out) {
  std::vector<TensorDataset::Source> sources;
  sources.push_back({.name = "image",
                     .rows = std::move(digits.images),
                     .dtype = DType::kF32,
                     .sample = {kDigitSide, kDigitSide, 1},
                     .scale = 1.0f / 255});
  sources.push_back(
      {.name = "label", .rows = std::move(digits.labels), .dtype = DType::kI32, .sample = {}});
  return std::make_unique<TensorDataset>(std::move(sources), std::move(description), left_out);
}

std::string find(FileSystem& files, const std::string& folder, const char* name) {
  try {
    return find_idx_file(files, cat(folder, "/", name));
  } catch (const NotFoundError& error) {
    throw NotFoundError(about_option("data_dir", error.what(),
                                     "; name the folder with the four files of MNIST (",
                                     the_option("data_dir"), ")"));
  }
}

struct Pair {
  std::string images, labels;
};

Pair find(FileSystem& files, const std::string& folder, bool train) {
  return {find(files, folder, train ? "train-images-idx3-ubyte" : "t10k-images-idx3-ubyte"),
          find(files, folder, train ? "train-labels-idx1-ubyte" : "t10k-labels-idx1-ubyte")};
}

// Loading reports files that are not found.
std::vector<std::string> files_of(FileSystem& files, const std::string& folder, bool train) {
  if (folder.empty()) return {};
  try {
    const Pair pair = find(files, folder, train);
    return {pair.images, pair.labels};
  } catch (const Error&) {
    return {};
  }
}

Tensor rows_of(const Tensor& values, std::span<const std::int64_t> which) {
  Shape shape = values.shape();
  const auto row = static_cast<std::int64_t>(values.bytes()) / std::max<std::int64_t>(1, shape[0]);
  shape[0] = std::ssize(which);
  Tensor rows(shape, values.dtype());
  std::byte* to = rows.mutable_raw();
  for (const std::int64_t i : which) to = std::copy_n(values.raw() + i * row, row, to);
  return rows;
}

// Keeps the images whose label is one of the ten digits.
IdxImages with_labels(IdxImages digits, const std::string& label_file, BadRecords& bad) {
  const std::int64_t images = digits.images.shape()[0];
  const auto labels = std::as_const(digits.labels).data<std::uint8_t>();
  std::vector<std::int64_t> good;
  for (std::int64_t i = 0; i < images; ++i) {
    const auto label = labels[static_cast<std::size_t>(i)];
    if (label <= kMaxLabel)
      good.push_back(i);
    else
      bad.note(BadRecord(label_file, kLabelHeader + static_cast<std::uint64_t>(i),
                         cat("expected a label from 0 to ", kMaxLabel, ", found ", int{label})));
  }
  if (std::ssize(good) == images) return digits;
  return {rows_of(digits.images, good), rows_of(digits.labels, good)};
}

IdxImages load(FileSystem& files, const std::string& folder, bool train, BadRecords& bad) {
  const auto [image_file, label_file] = find(files, folder, train);
  // Compares both counts before values are read, which may take long.
  const std::int64_t count = parse_idx_shape(*files.open(label_file), label_file, 1)[0];
  const auto check = [&, &image_file = image_file, &label_file = label_file](const Shape& images) {
    require<IoError>(images[1] == kDigitSide && images[2] == kDigitSide, image_file,
                     ": bytes 8 to 15 of the unpacked data: expected images of ", kDigitSide, "x",
                     kDigitSide, ", found ", images[1], "x", images[2]);
    require<IoError>(images[0] > 0, image_file, " has no images");
    require<IoError>(images[0] == count, image_file, " has ", images[0], " images, but ",
                     label_file, " has ", count,
                     " labels, by byte 4 of the unpacked data of each; nobody knows which label "
                     "is whose, so none can be left out (",
                     the_option("bad_records"), ")");
  };
  IdxImages digits;
  digits.images = parse_idx(*files.open(image_file), image_file, 3, check);
  digits.labels = parse_idx(*files.open(label_file), label_file, 1);
  digits = with_labels(std::move(digits), label_file, bad);
  require<IoError>(digits.images.shape()[0] > 0, image_file, " and ", label_file,
                   " have no image with a label");
  return digits;
}

std::unique_ptr<Dataset> load_mnist(const RunDirs& dirs, bool train) {
  const char* kind = train ? " training" : " test";
  if (dirs.data_dir.empty()) {
    const std::int64_t count = train ? kTrainCount : kTestCount;
    return std::make_unique<GeneratedDigits>(
        count, train ? kTrainSeed : kTestSeed,
        cat("generated digits: ", count, kind, " images (no data directory given)"));
  }
  BadRecords bad(dirs.bad_records);
  IdxImages digits;
  try {
    digits = load(local_file_system(), dirs.data_dir, train, bad);
  } catch (const DeniedError& error) {
    throw IoError(about_option("data_dir", error.what(),
                               "; let this process read it, or name another folder (",
                               the_option("data_dir"), ")"));
  } catch (const IoError& error) {
    throw IoError(about_option("data_dir", error.what(),
                               "; get the file again, or name another folder (",
                               the_option("data_dir"), ")"));
  }
  std::string description =
      cat("MNIST, ", digits.images.shape()[0], kind, " images from ", dirs.data_dir);
  if (bad.count() > 0) description += cat(", without ", bad_records_text(bad.count()));
  return make_dataset(std::move(digits), std::move(description), bad.count());
}

}  // namespace

std::unique_ptr<Dataset> mnist(const RunDirs& dirs, bool train) {
  return std::make_unique<LazyDataset>(
      std::vector<Dataset::Field>{{"image", DType::kF32, {kDigitSide, kDigitSide, 1}},
                                  {"label", DType::kI32, {}}},
      [dirs, train] { return load_mnist(dirs, train); },
      files_of(local_file_system(), dirs.data_dir, train));
}

std::unique_ptr<Dataset> generated_digits(std::int64_t count, std::uint64_t seed) {
  return std::make_unique<GeneratedDigits>(
      count, seed, cat("generated digits: ", count, " images from seed ", seed));
}

}  // namespace belfry::data
