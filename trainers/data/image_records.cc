#include "belfry/trainers/data/image_records.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "belfry/framework/base/file_system.h"
#include "belfry/framework/base/option_name.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/trainers/data/decode_image.h"
#include "belfry/trainers/data/generated_images.h"
#include "belfry/trainers/data/tf_example.h"
#include "belfry/trainers/data/tf_record.h"
#include "belfry/trainers/util/counter_random.h"

namespace belfry {
namespace {

constexpr std::size_t kChannels = 3;

std::vector<Dataset::Field> image_fields(std::int64_t side) {
  return {{"image", DType::kF32, {side, side, static_cast<std::int64_t>(kChannels)}},
          {"label", DType::kI32, {}}};
}

// The part of an image that is gathered.
struct Crop {
  ImagePart part;
  bool mirrored = false;
};

Crop middle_crop(const DecodedImage& image) {
  constexpr double kShare = 7.0 / 8;
  const double size = kShare * static_cast<double>(std::min(image.height, image.width));
  return {.part = {.top = (static_cast<double>(image.height) - size) / 2,
                   .left = (static_cast<double>(image.width) - size) / 2,
                   .height = size,
                   .width = size}};
}

// Draws up to ten parts (Szegedy et al. 2014); if none fits, takes the middle.
Crop random_crop(const DecodedImage& image, CounterRandom random) {
  constexpr int kTries = 10;
  constexpr float kLeastArea = 0.08f, kLeastRatio = 0.75f;
  const auto height = static_cast<double>(image.height), width = static_cast<double>(image.width);
  Crop crop = middle_crop(image);
  crop.mirrored = random.below(2) == 1;
  for (int i = 0; i < kTries; ++i) {
    const double area = static_cast<double>(random.uniform(kLeastArea, 1)) * height * width;
    const double ratio = static_cast<double>(random.uniform(kLeastRatio, 1));
    ImagePart part{.height = std::sqrt(area * ratio), .width = std::sqrt(area / ratio)};
    if (random.below(2) == 1) std::swap(part.height, part.width);
    part.top = static_cast<double>(random.uniform(0, 1)) * (height - part.height);
    part.left = static_cast<double>(random.uniform(0, 1)) * (width - part.width);
    if (part.height > height || part.width > width) continue;
    crop.part = part;
    break;
  }
  return crop;
}

// Scales values from 0 to 255 for models.
void normalise_channels(std::span<float> pixels) {
  constexpr std::array<float, kChannels> kMean{0.485f, 0.456f, 0.406f};
  constexpr std::array<float, kChannels> kDeviation{0.229f, 0.224f, 0.225f};
  for (std::size_t i = 0; i < pixels.size(); i += kChannels)
    for (std::size_t c = 0; c < kChannels; ++c)
      pixels[i + c] = (pixels[i + c] / 255 - kMean[c]) / kDeviation[c];
}

class RecordImages final : public Dataset {
 public:
  explicit RecordImages(ImageRecords wanted)
      : wanted_(std::move(wanted)), bad_(wanted_.bad_records) {
    for (std::size_t f = 0; f < wanted_.paths.size(); ++f)
      for (const TfRecordPlace& place :
           find_tf_records(*local_file_system().open(wanted_.paths[f]), wanted_.paths[f], bad_))
        records_.push_back({f, place});
    if (records_.empty())
      throw IoError(about_option("data_dir", join(wanted_.paths),
                                 ": no records; get the files again, or name another folder (",
                                 the_option("data_dir"), ")"));
  }

  std::vector<Field> signature() const override { return image_fields(wanted_.side); }
  std::int64_t size() const override { return std::ssize(records_); }
  std::int64_t left_out() const override { return bad_.count(); }
  std::string describe() const override {
    return cat(
        records_.size(), " images of ", wanted_.paths[0],
        wanted_.paths.size() > 1 ? cat(" and ", wanted_.paths.size() - 1, " files more") : "");
  }

  void gather(std::span<const std::int64_t> indices,
              std::span<std::byte* const> out) const override {
    copy(indices, out, [](std::int64_t, const DecodedImage& image) { return middle_crop(image); });
  }
  void gather_training(const DataPass& pass, std::span<const std::int64_t> indices,
                       std::span<std::byte* const> out) const override {
    const std::uint64_t key = combine_key(pass.seed, static_cast<std::uint64_t>(pass.epoch));
    copy(indices, out, [&](std::int64_t sample, const DecodedImage& image) {
      return random_crop(image,
                         CounterRandom(combine_key(key, static_cast<std::uint64_t>(sample))));
    });
  }

 private:
  struct Record {
    std::size_t file;
    TfRecordPlace place;
  };
  struct Sample {
    DecodedImage image;
    std::int32_t label = 0;
  };

  template <class F>
  void copy(std::span<const std::int64_t> indices, std::span<std::byte* const> out,
            const F& crop_of) const {
    const auto elements = static_cast<std::size_t>(wanted_.side * wanted_.side) * kChannels;
    auto* pixels = reinterpret_cast<float*>(out[0]);
    auto* labels = reinterpret_cast<std::int32_t*>(out[1]);
    for (const std::int64_t index : indices) {
      require(index >= 0 && index < size(), "sample ", index, " of a dataset of ", size());
      const Sample sample = read_good(index);
      const Crop crop = crop_of(index, sample.image);
      const std::span<float> to(pixels, elements);
      resize_image(sample.image, crop.part, wanted_.side, crop.mirrored, to);
      normalise_channels(to);
      pixels += elements;
      *labels++ = sample.label;
    }
  }

  // Record `index`, or the next one that is not bad.
  Sample read_good(std::int64_t index) const {
    for (std::int64_t tried = 0; tried < size(); ++tried) {
      try {
        return read(records_[static_cast<std::size_t>((index + tried) % size())]);
      } catch (const BadRecord& record) {
        bad_.note(record);
      }
    }
    throw IoError(cat(describe(), ": all records are bad"));
  }

  Sample read(const Record& record) const {
    const std::string& path = wanted_.paths[record.file];
    const std::vector<std::byte> data =
        read_tf_record(*local_file_system().open(path), path, record.place);
    try {
      const TfExample example(data);
      const auto encoded = example.bytes("image/encoded");
      require(encoded.has_value(), "no feature image/encoded");
      const auto label = example.integer("image/class/label");
      require(label.has_value(), "no feature image/class/label");
      require(*label >= wanted_.label_offset && *label - wanted_.label_offset < wanted_.classes,
              "the label ", *label, " less the offset ", wanted_.label_offset,
              " is no class from 0 to ", wanted_.classes - 1);
      return {decode_image(*encoded), static_cast<std::int32_t>(*label - wanted_.label_offset)};
    } catch (const InvalidArgument& error) {
      throw BadRecord(path, record.place.offset, error.what());
    }
  }

  const ImageRecords wanted_;
  mutable BadRecords bad_;
  std::vector<Record> records_;
};

}  // namespace

std::unique_ptr<Dataset> image_records(ImageRecords wanted) {
  return std::make_unique<RecordImages>(std::move(wanted));
}

namespace data {
namespace {

std::vector<std::string> record_files(const std::string& folder, bool train) {
  const char* const begin = train ? "train-" : "validation-";
  std::vector<std::string> found;
  for (const std::string& name : names_in_data_dir(local_file_system(), folder))
    if (name.starts_with(begin)) found.push_back(cat(folder, "/", name));
  if (found.empty())
    throw NotFoundError(about_option("data_dir", folder, " has no file ", begin,
                                     "*; name the folder with the TFRecord files (",
                                     the_option("data_dir"), ")"));
  return found;
}

// Loading reports files that are not found.
std::vector<std::string> known_record_files(const std::string& folder, bool train) {
  try {
    return folder.empty() ? std::vector<std::string>() : record_files(folder, train);
  } catch (const Error&) {
    return {};
  }
}

}  // namespace

DatasetFactory imagenet(ImagenetOptions options) {
  return [options](const RunDirs& dirs, bool train) -> std::unique_ptr<Dataset> {
    constexpr std::int64_t kTrainImages = 1280, kTestImages = 256;
    const auto load = [options, dirs, train]() -> std::unique_ptr<Dataset> {
      if (dirs.data_dir.empty())
        return generated_images({.side = options.side,
                                 .classes = options.classes,
                                 .count = train ? kTrainImages : kTestImages,
                                 .seed = train ? 1u : 2u});
      return image_records({.paths = record_files(dirs.data_dir, train),
                            .side = options.side,
                            .classes = options.classes,
                            .label_offset = options.label_offset,
                            .bad_records = dirs.bad_records});
    };
    return std::make_unique<LazyDataset>(image_fields(options.side), load,
                                         known_record_files(dirs.data_dir, train));
  };
}

}  // namespace data
}  // namespace belfry
