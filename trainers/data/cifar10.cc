#include "belfry/trainers/data/cifar10.h"

#include <algorithm>
#include <array>
#include <new>

#include "belfry/framework/base/option_name.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/trainers/data/byte_input.h"
#include "belfry/trainers/data/generated_images.h"
#include "belfry/trainers/util/counter_random.h"

namespace belfry::data {
namespace {

constexpr std::size_t kPlane = kCifarSide * kCifarSide;
constexpr std::size_t kImageBytes = kPlane * kCifarChannels;
constexpr std::int64_t kMostShift = 4;  // pixels

using Record = std::array<std::byte, 1 + kImageBytes>;

// The part of an image that is taken.
struct View {
  std::int64_t y = 0, x = 0;  // of its first pixel; outside the image are zeros
  bool mirrored = false;
};

View random_view(const DataPass& pass, std::int64_t sample) {
  CounterRandom random(combine_key(combine_key(pass.seed, static_cast<std::uint64_t>(pass.epoch)),
                                   static_cast<std::uint64_t>(sample)));
  constexpr std::uint64_t kShifts = 2 * kMostShift + 1;
  View view;
  view.y = static_cast<std::int64_t>(random.below(kShifts)) - kMostShift;
  view.x = static_cast<std::int64_t>(random.below(kShifts)) - kMostShift;
  view.mirrored = random.below(2) == 1;
  return view;
}

// The value for each byte, per channel, by mean and deviation of the 50,000 images for training.
using ByteValues = std::array<std::array<float, 256>, kCifarChannels>;

ByteValues byte_values() {
  constexpr std::array<float, kCifarChannels> kMean{0.4914f, 0.4822f, 0.4465f};
  constexpr std::array<float, kCifarChannels> kDeviation{0.2470f, 0.2435f, 0.2616f};
  ByteValues values{};
  for (std::size_t c = 0; c < values.size(); ++c)
    for (std::size_t byte = 0; byte < values[c].size(); ++byte)
      values[c][byte] = (static_cast<float>(byte) / 255 - kMean[c]) / kDeviation[c];
  return values;
}

class Cifar10 final : public Dataset {
 public:
  Cifar10(CifarImages images, std::string description, std::int64_t left_out)
      : images_(std::move(images)), description_(std::move(description)), left_out_(left_out) {}

  static std::vector<Field> fields() {
    return {{"image", DType::kF32, {kCifarSide, kCifarSide, kCifarChannels}},
            {"label", DType::kI32, {}}};
  }
  std::vector<Field> signature() const override { return fields(); }
  std::int64_t size() const override { return std::ssize(images_.labels); }
  std::string describe() const override { return description_; }
  std::int64_t left_out() const override { return left_out_; }

  void gather(std::span<const std::int64_t> indices,
              std::span<std::byte* const> out) const override {
    copy(indices, out, [](std::int64_t) { return View(); });
  }
  void gather_training(const DataPass& pass, std::span<const std::int64_t> indices,
                       std::span<std::byte* const> out) const override {
    copy(indices, out, [&](std::int64_t sample) { return random_view(pass, sample); });
  }

 private:
  template <class F>
  void copy(std::span<const std::int64_t> indices, std::span<std::byte* const> out,
            const F& view_of) const {
    auto* pixels = reinterpret_cast<float*>(out[0]);
    auto* labels = reinterpret_cast<std::int32_t*>(out[1]);
    for (const std::int64_t sample : indices) {
      require(sample >= 0 && sample < size(), "sample ", sample, " of a dataset of ", size());
      copy_image(static_cast<std::size_t>(sample), view_of(sample), pixels);
      pixels += kImageBytes;
      *labels++ = images_.labels[static_cast<std::size_t>(sample)];
    }
  }

  void copy_image(std::size_t sample, const View& view, float* to) const {
    const std::uint8_t* const image = images_.pixels.data() + sample * kImageBytes;
    for (std::int64_t y = 0; y < kCifarSide; ++y)
      for (std::int64_t x = 0; x < kCifarSide; ++x, to += kCifarChannels) {
        const std::int64_t from_y = y + view.y;
        const std::int64_t from_x = (view.mirrored ? kCifarSide - 1 - x : x) + view.x;
        const bool inside =
            from_y >= 0 && from_y < kCifarSide && from_x >= 0 && from_x < kCifarSide;
        const std::uint8_t* const pixel =
            image + (inside ? (from_y * kCifarSide + from_x) * kCifarChannels : 0);
        for (std::size_t c = 0; c < kCifarChannels; ++c) to[c] = inside ? values_[c][pixel[c]] : 0;
      }
  }

  const CifarImages images_;
  const std::string description_;
  const std::int64_t left_out_;
  const ByteValues values_ = byte_values();
};

// Makes room for one more image, and leaves all as it is if there is none.
bool make_room(CifarImages& to) try {
  const auto grow = [](auto& values, std::size_t count) {
    if (values.size() + count > values.capacity())
      values.reserve(std::max(values.size() + count, 2 * values.capacity()));
  };
  grow(to.pixels, kImageBytes);
  grow(to.labels, 1);
  return true;
} catch (const std::bad_alloc&) {
  return false;
}

void append(const Record& record, CifarImages& to) {
  const std::size_t begin = to.pixels.size();
  to.pixels.resize(begin + kImageBytes);
  for (std::size_t i = 0; i < kPlane; ++i)
    for (std::size_t c = 0; c < kCifarChannels; ++c)
      to.pixels[begin + i * kCifarChannels + c] =
          std::to_integer<std::uint8_t>(record[1 + c * kPlane + i]);
  to.labels.push_back(std::to_integer<std::uint8_t>(record[0]));
}

std::size_t read_record(ByteInput& input, Record& record) try {
  return input.read(record);
} catch (const IoError& error) {
  throw lost_rest(error.what());
}

// If a file is there packed and unpacked, takes the unpacked one.
std::vector<std::string> cifar_files(FileSystem& files, const std::string& folder, bool train) {
  const std::string begin = train ? "data_batch_" : "test_batch";
  std::vector<std::string> found;
  for (const std::string& name : names_in_data_dir(files, folder)) {
    const bool packed = name.ends_with(".bin.gz");
    if (!name.starts_with(begin) || !(packed || name.ends_with(".bin"))) continue;
    const std::string path = cat(folder, "/", name);
    if (packed && files.exists(path.substr(0, path.size() - 3))) continue;
    found.push_back(path);
  }
  if (found.empty())
    throw NotFoundError(about_option(
        "data_dir", folder, " has no file ", begin, train ? "*" : "", ".bin or ", begin,
        train ? "*" : "", ".bin.gz; name the folder with the files of CIFAR-10's binary version (",
        the_option("data_dir"), ")"));
  return found;
}

// Loading reports files that are not found.
std::vector<std::string> known_cifar_files(const std::string& folder, bool train) {
  try {
    return folder.empty() ? std::vector<std::string>()
                          : cifar_files(local_file_system(), folder, train);
  } catch (const Error&) {
    return {};
  }
}

std::unique_ptr<Dataset> load_cifar(const RunDirs& dirs, bool train) {
  constexpr std::int64_t kTrainImages = 10000, kTestImages = 2000;
  if (dirs.data_dir.empty())
    return generated_images({.side = kCifarSide,
                             .classes = kCifarClasses,
                             .count = train ? kTrainImages : kTestImages,
                             .seed = train ? 1u : 2u});
  FileSystem& files = local_file_system();
  const std::vector<std::string> paths = cifar_files(files, dirs.data_dir, train);
  BadRecords bad(dirs.bad_records);
  CifarImages images;
  for (const std::string& path : paths) {
    const auto seen = [&] { return std::ssize(images.labels) + bad.count(); };
    const std::int64_t before = seen();
    read_cifar(*files.open(path), path, bad, images);
    if (seen() == before)
      throw IoError(about_option("data_dir", path,
                                 ": no images; get the file again, or name another folder (",
                                 the_option("data_dir"), ")"));
  }
  if (images.labels.empty())
    throw IoError(
        about_option("data_dir", join(paths),
                     ": all images are bad; get the files again, or name another folder (",
                     the_option("data_dir"), ")"));
  std::string description = cat("CIFAR-10, ", images.labels.size(), train ? " training" : " test",
                                " images from ", join(paths));
  if (bad.count() > 0) description += cat(", without ", bad_records_text(bad.count()));
  return std::make_unique<Cifar10>(std::move(images), std::move(description), bad.count());
}

}  // namespace

void read_cifar(ReadableFile& file, const std::string& name, BadRecords& bad, CifarImages& to,
                std::size_t most) {
  FileBlocks blocks(file);
  const std::unique_ptr<ByteInput> input = open_input(blocks, name);
  const std::size_t before = to.labels.size();
  Record record;
  for (std::uint64_t offset = 0;; offset += sizeof record) {
    const auto fail = [&](const auto&... why) {
      throw lost_rest(name, ": record at byte ", offset, ": ", why...);
    };
    const std::size_t got = read_record(*input, record);
    if (got == 0) return;
    if (got < sizeof record) fail("expected ", sizeof record, " bytes, found ", got, " to the end");
    const auto label = std::to_integer<int>(record[0]);
    if (label >= kCifarClasses) {
      bad.note(BadRecord(name, offset, cat("expected a label from 0 to 9, found ", label)));
      continue;
    }
    const std::size_t images = to.labels.size() - before;
    if (images == most)
      fail("the file has more than ", images, " images, where those of CIFAR-10 have 10000");
    if (!make_room(to)) fail("there is no memory left after ", images, " images");
    append(record, to);
  }
}

std::unique_ptr<Dataset> cifar10(const RunDirs& dirs, bool train) {
  return std::make_unique<LazyDataset>(
      Cifar10::fields(), [dirs, train] { return load_cifar(dirs, train); },
      known_cifar_files(dirs.data_dir, train));
}

}  // namespace belfry::data
