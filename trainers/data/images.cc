#include "belfry/trainers/data/images.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include <fnmatch.h>

#include "belfry/framework/base/file_system.h"
#include "belfry/framework/base/option_name.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/core_ops/constant.h"
#include "belfry/framework/kernels/simd.h"
#include "belfry/ops/cast.h"
#include "belfry/ops/operand.h"
#include "belfry/trainers/data/augment.h"
#include "belfry/trainers/data/decode_image.h"
#include "belfry/trainers/data/generated_images.h"
#include "belfry/trainers/data/image_source.h"
#include "belfry/trainers/data/map_samples.h"
#include "belfry/trainers/util/counter_random.h"
#include "belfry/trainers/util/option_error.h"

namespace belfry::data {
namespace {

constexpr std::size_t kChannels = 3;

std::vector<Dataset::Field> image_fields(const ImageOptions& options) {
  return {{"image",
           options.as_bytes ? DType::kU8 : DType::kF32,
           {options.side, options.side, static_cast<std::int64_t>(kChannels)}},
          {"label", DType::kI32, {}}};
}

// The part of an image that is gathered.
struct Crop {
  ImagePart part;
  bool mirrored = false;
};

Crop middle_crop(std::int64_t height, std::int64_t width) {
  constexpr double kShare = 7.0 / 8;
  const double size = kShare * static_cast<double>(std::min(height, width));
  return {.part = {.top = (static_cast<double>(height) - size) / 2,
                   .left = (static_cast<double>(width) - size) / 2,
                   .height = size,
                   .width = size}};
}

Crop random_crop(std::int64_t height, std::int64_t width, CounterRandom random) {
  const bool mirrored = random.below(2) == 1;
  return {random_part(height, width, random, middle_crop(height, width).part), mirrored};
}

// What makes values from 0 to 255 fit for models.
struct ChannelScale {
  std::array<float, kChannels> factor, shift;
};

ChannelScale channel_scale() {
  constexpr std::array<float, kChannels> kMean{0.485f, 0.456f, 0.406f};
  constexpr std::array<float, kChannels> kDeviation{0.229f, 0.224f, 0.225f};
  ChannelScale scale{};
  for (std::size_t c = 0; c < kChannels; ++c) {
    scale.factor[c] = 1 / (255 * kDeviation[c]);
    scale.shift[c] = -kMean[c] / kDeviation[c];
  }
  return scale;
}

// Blocks of constant size are vectorised at -O2.
void normalise_channels(std::span<float> pixels) {
  constexpr std::size_t kBlock = 4 * kChannels;
  const ChannelScale scale = channel_scale();
  float factor[kBlock], shift[kBlock];
  for (std::size_t i = 0; i < kBlock; ++i) {
    factor[i] = scale.factor[i % kChannels];
    shift[i] = scale.shift[i % kChannels];
  }
  std::size_t i = 0;
  for (; i + kBlock <= pixels.size(); i += kBlock) {
    float* const block = pixels.data() + i;
    for (std::size_t j = 0; j < kBlock; ++j) block[j] = block[j] * factor[j] + shift[j];
  }
  for (std::size_t j = 0; i + j < pixels.size(); ++j)
    pixels[i + j] = pixels[i + j] * factor[j] + shift[j];
}

// To the nearest byte. Loops of constant length, each for one type, are vectorised at -O2.
BELFRY_KERNEL void round_to_bytes(const float* pixels, std::size_t count, std::uint8_t* to) {
  constexpr std::size_t kBlock = 32;
  std::size_t i = 0;
  for (; i + kBlock <= count; i += kBlock) {
    int block[kBlock];
    for (std::size_t j = 0; j < kBlock; ++j) block[j] = static_cast<int>(pixels[i + j] + 0.5f);
    for (int& x : block) x = x < 0 ? 0 : x > 255 ? 255 : x;
    for (std::size_t j = 0; j < kBlock; ++j) to[i + j] = static_cast<std::uint8_t>(block[j]);
  }
  for (; i < count; ++i) {
    const int x = static_cast<int>(pixels[i] + 0.5f);
    to[i] = static_cast<std::uint8_t>(x < 0 ? 0 : x > 255 ? 255 : x);
  }
}

class LabelledImages final : public Dataset {
 public:
  LabelledImages(std::unique_ptr<ImageSource> source, ImageOptions options, std::string description)
      : source_(std::move(source)),
        options_(std::move(options)),
        description_(std::move(description)) {}

  std::vector<Field> signature() const override { return image_fields(options_); }
  std::int64_t size() const override { return source_->size(); }
  std::string describe() const override { return description_; }

  void gather(std::span<const std::int64_t> indices,
              std::span<std::byte* const> out) const override {
    copy(indices, out, [](std::int64_t, std::int64_t height, std::int64_t width) {
      return middle_crop(height, width);
    });
  }
  void gather_training(const DataPass& pass, std::span<const std::int64_t> indices,
                       std::span<std::byte* const> out) const override {
    const std::uint64_t key = combine_key(pass.seed, static_cast<std::uint64_t>(pass.epoch));
    copy(indices, out, [&](std::int64_t sample, std::int64_t height, std::int64_t width) {
      return random_crop(height, width,
                         CounterRandom(combine_key(key, static_cast<std::uint64_t>(sample))));
    });
  }

 private:
  template <class F>
  void copy(std::span<const std::int64_t> indices, std::span<std::byte* const> out,
            const F& crop_of) const {
    const auto elements = static_cast<std::size_t>(options_.side * options_.side) * kChannels;
    std::vector<float> rounded(options_.as_bytes ? elements : 0);
    std::byte* pixels = out[0];
    auto* labels = reinterpret_cast<std::int32_t*>(out[1]);
    for (const std::int64_t index : indices) {
      require(index >= 0 && index < size(), "sample ", index, " of a dataset of ", size());
      const auto [image, label] = read(index, [&](std::int64_t height, std::int64_t width) {
        return box_of(crop_of(index, height, width).part, options_.side, height, width);
      });
      const Crop crop = crop_of(index, image.height, image.width);
      const std::span<float> to =
          options_.as_bytes ? rounded : std::span(reinterpret_cast<float*>(pixels), elements);
      resize_image(image, crop.part, options_.side, crop.mirrored, to);
      if (options_.as_bytes)
        round_to_bytes(to.data(), to.size(), reinterpret_cast<std::uint8_t*>(pixels));
      else
        normalise_channels(to);
      pixels += elements * (options_.as_bytes ? sizeof(std::byte) : sizeof(float));
      *labels++ = static_cast<std::int32_t>(label);
    }
  }

  // With the label less the offset.
  ImageSource::LabelledImage read(std::int64_t index, const ChooseBox& choose) const try {
    ImageSource::LabelledImage found = source_->read(index, choose);
    const std::int64_t offset = options_.label_offset;
    require(found.label >= offset && found.label - offset < options_.classes, "the label ",
            found.label, offset == 0 ? "" : cat(" less the offset ", offset),
            " is no class from 0 to ", options_.classes - 1);
    found.label -= offset;
    return found;
  } catch (const InvalidArgument& error) {
    throw source_->bad(index, error.what());
  }

  const std::unique_ptr<ImageSource> source_;
  const ImageOptions options_;
  const std::string description_;
};

// A format of files with images: the names of what it reads, for training and for tests. Those of
// tar files end as kTarEndings say.
struct ImageFormat {
  const char* name;
  const char* train_files;
  const char* test_files;
  const char* what;
};
constexpr ImageFormat kFormats[] = {
    {"tfrecord", "train-*", "validation-*", "TFRecord files"},
    {"folder", "train", "val*", "folders train and val, each with a folder per class"},
    {"webdataset", "train*", "val*", "tar files"},
    {"npy", "train", "test", "arrays x and y"}};

constexpr const char* kTarEndings[] = {".tar", ".tar.gz", ".tgz"};

const ImageFormat& find_format(const std::string& name) {
  std::vector<std::string> names;
  for (const ImageFormat& format : kFormats) {
    if (format.name == name) return format;
    names.emplace_back(format.name);
  }
  refuse_option<OptionMistake>("data_format", "=", shown(name), " is none of ", join(names),
                               did_you_mean(name, names));
}

const std::string& option_of_files(const ImageOptions& options, bool train) {
  return train ? options.train_files : options.test_files;
}

std::string asked_files(const ImageOptions& options, bool train) {
  const ImageFormat& format = find_format(options.format);
  const std::string& asked = option_of_files(options, train);
  return !asked.empty() ? asked : train ? format.train_files : format.test_files;
}

std::vector<std::string> patterns_of(const ImageOptions& options, bool train) {
  const std::string asked = asked_files(options, train);
  if (options.format == "npy") return {asked + "[._]*np[yz]"};
  if (options.format != "webdataset" || !option_of_files(options, train).empty()) return {asked};
  std::vector<std::string> patterns;
  for (const char* const ending : kTarEndings) patterns.push_back(asked + ending);
  return patterns;
}

// What a run reads: the paths of files, or for this format of folders, that fit a pattern, sorted.
// Names with a dot in front fit only patterns with one, as in a shell.
std::vector<std::string> image_paths(const std::string& folder, const ImageOptions& options,
                                     bool train) {
  const std::vector<std::string> patterns = patterns_of(options, train);
  const FileKind kind = options.format == "folder" ? FileKind::kDirectory : FileKind::kFile;
  FileSystem& files = local_file_system();
  std::vector<std::string> found;
  for (const std::string& name : names_in_data_dir(files, folder)) {
    const bool fits = std::ranges::any_of(patterns, [&](const std::string& pattern) {
      return fnmatch(pattern.c_str(), name.c_str(), FNM_PERIOD) == 0;
    });
    std::string path = cat(folder, "/", name);
    if (fits && files.target_kind(path) == kind) found.push_back(std::move(path));
  }
  if (found.empty())
    throw NotFoundError(about_option(
        "data_dir", folder,
        kind == FileKind::kFile ? " has no file named " : " has no folder named ", join(patterns),
        "; name the folder with the ", find_format(options.format).what, " (",
        the_option("data_dir"), "), or how they are named (",
        the_option(train ? "train_files" : "test_files"), ")"));
  return found;
}

// Loading reports files that are not found.
std::vector<std::string> known_paths(const std::string& folder, const ImageOptions& options,
                                     bool train) {
  try {
    return folder.empty() ? std::vector<std::string>() : image_paths(folder, options, train);
  } catch (const Error&) {
    return {};
  }
}

// The only folder of those found.
std::string one_folder(const std::vector<std::string>& paths, bool train) {
  if (paths.size() == 1) return paths[0];
  throw IoError(about_option("data_dir", "images are in one folder with a folder per class, found ",
                             join(paths), "; say which to take (",
                             the_option(train ? "train_files" : "test_files"), ")"));
}

std::unique_ptr<ImageSource> open_folder(const RunDirs& dirs, const ImageOptions& options,
                                         const std::vector<std::string>& paths, bool train) {
  // Those for tests have the same numbers, even if some have no image there.
  const std::string numbered =
      train ? one_folder(paths, true) : one_folder(image_paths(dirs.data_dir, options, true), true);
  std::vector<std::string> classes = folder_classes(numbered);
  require_option<OptionMistake>(
      options.label_offset == 0, "label_offset", "=", options.label_offset,
      ": folders have names and not numbers, and count from 0; leave it out");
  require_option<OptionMistake>(std::ssize(classes) == options.classes, "classes", "=",
                                options.classes, ", but ", numbered, " has ", classes.size(),
                                " folders, one per class; give their number, or name another "
                                "folder (",
                                the_option("data_dir"), ")");
  return folder_images(one_folder(paths, train), std::move(classes));
}

std::unique_ptr<ImageSource> open_source(const RunDirs& dirs, const ImageOptions& options,
                                         const std::vector<std::string>& paths, bool train,
                                         BadRecords& bad) {
  if (options.format == "folder") return open_folder(dirs, options, paths, train);
  if (options.format == "webdataset") return tar_images(paths);
  if (options.format == "npy") return array_images(dirs.data_dir, asked_files(options, train));
  return tf_record_images(paths, bad);
}

std::unique_ptr<Dataset> open_images(const RunDirs& dirs, const ImageOptions& options, bool train) {
  const std::vector<std::string> paths = image_paths(dirs.data_dir, options, train);
  const auto bad = std::make_shared<BadRecords>(dirs.bad_records);
  std::unique_ptr<ImageSource> source = open_source(dirs, options, paths, train, *bad);
  if (source->size() == 0)
    throw IoError(about_option("data_dir", join(paths),
                               ": no images; get the files again, or name another folder (",
                               the_option("data_dir"), ")"));
  const std::size_t more = options.format == "npy" ? 0 : paths.size() - 1;  // x and y are one
  std::string description =
      cat(source->size(), " images of ", paths[0],
          more == 0 ? "" : cat(" and ", more, more == 1 ? " file more" : " files more"));
  return without_bad_records(
      std::make_unique<LabelledImages>(std::move(source), options, std::move(description)), bad);
}

// Made-up images, which are about as large as normalised ones.
std::unique_ptr<Dataset> made_up_images(const ImageOptions& options, bool train) {
  constexpr std::int64_t kTrainImages = 1280, kTestImages = 256;
  auto made = generated_images({.side = options.side,
                                .classes = static_cast<int>(options.classes),
                                .count = train ? kTrainImages : kTestImages,
                                .seed = train ? 1u : 2u});
  if (!options.as_bytes) return made;
  return map_samples(std::move(made), image_fields(options), [](MappedSample& sample) {
    constexpr float kMiddle = 127.5f, kSpread = 57;
    std::vector<float> values;
    for (const float value : sample.from.get<float>(0)) values.push_back(kMiddle + kSpread * value);
    round_to_bytes(values.data(), values.size(), sample.to.get<std::uint8_t>(0).data());
    sample.to.get<std::int32_t>(1)[0] = sample.from.get<std::int32_t>(1)[0];
  });
}

}  // namespace

Output normalise_images(Tower& tower, Output images) {
  if (images.dtype() == DType::kF32) return images;
  const ChannelScale scale = channel_scale();
  const auto channels = [&](const std::array<float, kChannels>& values) {
    return constant(tower.graph(), Tensor({static_cast<std::int64_t>(kChannels)},
                                          std::vector<float>(values.begin(), values.end())));
  };
  return cast(images, DType::kF32) * channels(scale.factor) + channels(scale.shift);
}

DatasetFactory images(ImageOptions options) {
  find_format(options.format);
  return [options](const RunDirs& dirs, bool train) -> std::unique_ptr<Dataset> {
    const auto load = [options, dirs, train]() -> std::unique_ptr<Dataset> {
      return dirs.data_dir.empty() ? made_up_images(options, train)
                                   : open_images(dirs, options, train);
    };
    return std::make_unique<LazyDataset>(image_fields(options), load,
                                         known_paths(dirs.data_dir, options, train));
  };
}

std::vector<OwnOption> image_flags(ImageOptions& options) {
  return {
      {.name = "data_format",
       .variable = &options.format,
       .text = "files with the images: TFRecord files, a folder per class, tar files, or arrays",
       .unit = "NAME",
       .choices = {"tfrecord", "folder", "webdataset", "npy"}},
      {.name = "train_files",
       .variable = &options.train_files,
       .text = "names of the files or the folder for training, with * for any characters; by "
               "default train-*, train*.tar, .tar.gz and .tgz, or train; for npy the NAME of the "
               "arrays, by default train",
       .unit = "PATTERN"},
      {.name = "test_files",
       .variable = &options.test_files,
       .text = "the same for evaluations; by default validation-*, val*.tar, .tar.gz and .tgz, or "
               "val*; for npy test",
       .unit = "PATTERN"},
      {.name = "image_size",
       .variable = &options.side,
       .text = "height and width of the images that the model takes, pixels",
       .range = {"a number from 32 to 4096", [](double x) { return x >= 32 && x <= 4096; }}},
      {.name = "classes",
       .variable = &options.classes,
       .text = "kinds of images that the model tells apart",
       .range = {"a number from 2 to 10^6", [](double x) { return x >= 2 && x <= 1e6; }}},
      {.name = "image_bytes",
       .variable = &options.as_bytes,
       .text = "feed images as bytes, a quarter of the traffic, and normalise them on the devices; "
               "they are rounded"},
      {.name = "label_offset",
       .variable = &options.label_offset,
       .text = "subtracted from labels: 1 where classes count from 1",
       .range = {"a number >= 0", [](double x) { return x >= 0; }}}};
}

}  // namespace belfry::data
