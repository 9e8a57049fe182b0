#include "belfry/trainers/data/augment.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"

namespace belfry {
namespace {

// The first field of a sample.
struct ImageView {
  std::span<float> values;
  std::size_t height, width, channels;

  explicit ImageView(MappedSample& sample) : ImageView(sample.to) {}
  explicit ImageView(const SampleFields& fields) : values(fields.get<float>(0)) {
    const Shape& shape = fields.shape(0);
    require(shape.rank() == 3 && shape.elements() > 0, "field 0 of a sample has shape ", shape,
            ", where images have [height,width,channels]");
    height = static_cast<std::size_t>(shape[0]);
    width = static_cast<std::size_t>(shape[1]);
    channels = static_cast<std::size_t>(shape[2]);
  }
  std::span<float> row(std::size_t y) const {
    return values.subspan(y * width * channels, width * channels);
  }
};

// A part of an image in the size of another one, first line by line, then column by column.
void resize_part(const ImageView& from, const ImagePart& part, const ImageView& to) {
  const auto signed_size = [](std::size_t size) { return static_cast<std::int64_t>(size); };
  const std::size_t c = from.channels;
  const PixelTaps rows(part.top, part.height, signed_size(to.height), signed_size(from.height));
  const PixelTaps columns(part.left, part.width, signed_size(to.width), signed_size(from.width));
  std::vector<float> line(from.width * c), result(to.values.size());
  for (std::size_t y = 0; y < to.height; ++y) {
    std::ranges::fill(line, 0.0f);
    auto row = static_cast<std::size_t>(rows.first(y));
    for (const float weight : rows.weights(y)) {
      const std::span<const float> values = from.row(row++);
      for (std::size_t i = 0; i < line.size(); ++i) line[i] += weight * values[i];
    }
    for (std::size_t x = 0; x < to.width; ++x) {
      const float* pixel = line.data() + static_cast<std::size_t>(columns.first(x)) * c;
      float* const sums = result.data() + (y * to.width + x) * c;
      for (const float weight : columns.weights(x)) {
        for (std::size_t i = 0; i < c; ++i) sums[i] += weight * pixel[i];
        pixel += c;
      }
    }
  }
  std::ranges::copy(result, to.values.begin());
}

// Copies all fields but the image, which must be alike.
void copy_other_fields(const MappedSample& sample) {
  const SampleFields &from = sample.from, &to = sample.to;
  if (from.bytes(0).data() == to.bytes(0).data()) return;  // changed in place
  for (std::size_t f = 1; f < to.size(); ++f) {
    require(f < from.size() && from.bytes(f).size() == to.bytes(f).size(), "field ", f,
            " of the new samples is no field of the old ones");
    std::ranges::copy(from.bytes(f), to.bytes(f).begin());
  }
}

// Moves what `values` hold by `by` places, and fills the gap with zeros.
void shift_values(std::span<float> values, std::int64_t by) {
  const auto away =
      static_cast<std::ptrdiff_t>(std::min<std::int64_t>(by < 0 ? -by : by, std::ssize(values)));
  if (by > 0) {
    std::shift_right(values.begin(), values.end(), away);
    std::fill_n(values.begin(), away, 0.0f);
  } else {
    std::shift_left(values.begin(), values.end(), away);
    std::fill_n(values.end() - away, away, 0.0f);
  }
}

// `values` at `factor` times their distance from `middle`.
void spread_values(std::span<float> values, float middle, float factor) {
  for (float& value : values) value = middle + factor * (value - middle);
}

float mean_of_values(std::span<const float> values) {
  double sum = 0;
  for (const float value : values) sum += static_cast<double>(value);
  return static_cast<float>(sum / static_cast<double>(values.size()));
}

// A share of the beta distribution, by Joehnk's rejection.
double beta_share(CounterRandom& random, double alpha) {
  for (;;) {
    const double a = std::pow(static_cast<double>(random.uniform(0, 1)), 1 / alpha);
    const double b = std::pow(static_cast<double>(random.uniform(0, 1)), 1 / alpha);
    if (a + b > 0 && a + b <= 1) return a / (a + b);
  }
}

class MixedUp final : public Dataset {
 public:
  MixedUp(std::unique_ptr<Dataset> data, std::int64_t classes, double alpha)
      : data_(std::move(data)), classes_(classes), alpha_(alpha) {
    from_ = data_->signature();
    require(from_.size() == 2 && from_[0].dtype == DType::kF32 && from_[1].dtype == DType::kI32 &&
                from_[1].shape.rank() == 0,
            "mix_up takes data with an image f32 and a label i32, and not ", data_->describe());
  }

  std::vector<Field> signature() const override {
    return {from_[0], {from_[1].name, DType::kF32, {classes_}}};
  }
  std::int64_t size() const override { return data_->size(); }
  void check() const override { data_->check(); }
  std::string describe() const override { return data_->describe() + ", mixed up"; }
  std::vector<std::string> files() const override { return data_->files(); }
  bool is_stream() const override { return data_->is_stream(); }
  std::int64_t left_out() const override { return data_->left_out(); }

  void gather(std::span<const std::int64_t> indices,
              std::span<std::byte* const> out) const override {
    std::vector<std::int32_t> labels(indices.size());
    std::byte* const below[] = {out[0], reinterpret_cast<std::byte*>(labels.data())};
    data_->gather(indices, below);
    auto* const shares = reinterpret_cast<float*>(out[1]);
    std::fill_n(shares, indices.size() * class_count(), 0.0f);
    for (std::size_t i = 0; i < indices.size(); ++i)
      add_label(shares + i * class_count(), labels[i], indices[i], 1);
  }

  void gather_training(const DataPass& pass, std::span<const std::int64_t> indices,
                       std::span<std::byte* const> out) const override {
    const auto elements = static_cast<std::size_t>(from_[0].shape.elements());
    std::vector<std::int64_t> others;
    std::vector<float> own;  // shares
    for (const std::int64_t index : indices) {
      const std::uint64_t key =
          combine_key(combine_key(pass.seed, static_cast<std::uint64_t>(pass.epoch)), kMixUp);
      CounterRandom random(combine_key(key, static_cast<std::uint64_t>(index)));
      others.push_back(static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(size()))));
      own.push_back(static_cast<float>(beta_share(random, alpha_)));
    }
    std::vector<float> images(elements * indices.size());
    std::vector<std::int32_t> labels(indices.size()), other_labels(indices.size());
    std::byte* const below[] = {out[0], reinterpret_cast<std::byte*>(labels.data())};
    std::byte* const beside[] = {reinterpret_cast<std::byte*>(images.data()),
                                 reinterpret_cast<std::byte*>(other_labels.data())};
    data_->gather_training(pass, indices, below);
    data_->gather_training(pass, others, beside);
    auto* const values = reinterpret_cast<float*>(out[0]);
    auto* const shares = reinterpret_cast<float*>(out[1]);
    std::fill_n(shares, indices.size() * class_count(), 0.0f);
    for (std::size_t i = 0; i < indices.size(); ++i) {
      for (std::size_t e = i * elements; e < (i + 1) * elements; ++e)
        values[e] = own[i] * values[e] + (1 - own[i]) * images[e];
      add_label(shares + i * class_count(), labels[i], indices[i], own[i]);
      add_label(shares + i * class_count(), other_labels[i], others[i], 1 - own[i]);
    }
  }

 private:
  static constexpr std::uint64_t kMixUp = 0x6d69787570;  // other numbers than those of the data

  std::size_t class_count() const { return static_cast<std::size_t>(classes_); }
  void add_label(float* shares, std::int32_t label, std::int64_t index, float share) const {
    require(label >= 0 && label < classes_, "sample ", index, " has the label ", label,
            ", where classes are 0 to ", classes_ - 1);
    shares[label] += share;
  }

  std::unique_ptr<Dataset> data_;
  std::vector<Field> from_;
  std::int64_t classes_;
  double alpha_;
};

}  // namespace

SampleFunction random_shift(std::int64_t most) {
  require(most >= 0, "random_shift by up to ", most, " pixels");
  return [most](MappedSample& sample) {
    if (!sample.training) return;
    const ImageView image(sample);
    const auto draw = [&] {
      return static_cast<std::int64_t>(
                 sample.random.below(2 * static_cast<std::uint64_t>(most) + 1)) -
             most;
    };
    const std::int64_t down = draw(), right = draw();
    shift_values(image.values, down * static_cast<std::int64_t>(image.width * image.channels));
    for (std::size_t y = 0; y < image.height; ++y)
      shift_values(image.row(y), right * static_cast<std::int64_t>(image.channels));
  };
}

ImagePart random_part(std::int64_t rows, std::int64_t columns, CounterRandom& random,
                      const ImagePart& otherwise, const CropChoice& choice) {
  constexpr int kTries = 10;
  const auto height = static_cast<double>(rows), width = static_cast<double>(columns);
  for (int i = 0; i < kTries; ++i) {
    const double area =
        static_cast<double>(random.uniform(choice.least_area, choice.most_area)) * height * width;
    const double ratio = static_cast<double>(random.uniform(choice.least_ratio, 1));
    ImagePart part{.height = std::sqrt(area * ratio), .width = std::sqrt(area / ratio)};
    if (random.below(2) == 1) std::swap(part.height, part.width);
    part.top = static_cast<double>(random.uniform(0, 1)) * (height - part.height);
    part.left = static_cast<double>(random.uniform(0, 1)) * (width - part.width);
    if (part.height <= height && part.width <= width) return part;
  }
  return otherwise;
}

SampleFunction random_resized_crop(const CropChoice& choice) {
  require(choice.least_area > 0 && choice.least_area <= choice.most_area && choice.most_area <= 1 &&
              choice.least_ratio > 0 && choice.least_ratio <= 1,
          "random_resized_crop takes shares of the area and a ratio above 0, up to 1");
  return [choice](MappedSample& sample) {
    const ImageView from(sample.from), to(sample.to);
    require(from.channels == to.channels, "random_resized_crop makes ", to.channels,
            " channels of ", from.channels);
    const auto height = static_cast<std::int64_t>(from.height),
               width = static_cast<std::int64_t>(from.width);
    const ImagePart all{.height = static_cast<double>(height), .width = static_cast<double>(width)};
    resize_part(from,
                sample.training ? random_part(height, width, sample.random, all, choice) : all, to);
    copy_other_fields(sample);
  };
}

SampleFunction random_mirror() {
  return [](MappedSample& sample) {
    if (!sample.training || sample.random.below(2) == 0) return;
    const ImageView image(sample);
    for (std::size_t y = 0; y < image.height; ++y) {
      const std::span<float> row = image.row(y);
      for (std::size_t x = 0; x < image.width / 2; ++x)
        std::swap_ranges(row.begin() + static_cast<std::ptrdiff_t>(x * image.channels),
                         row.begin() + static_cast<std::ptrdiff_t>((x + 1) * image.channels),
                         row.end() - static_cast<std::ptrdiff_t>((x + 1) * image.channels));
    }
  };
}

SampleFunction random_colours(ColourChange most) {
  require(most.brightness >= 0 && most.contrast >= 0 && most.saturation >= 0,
          "random_colours takes changes from 0");
  return [most](MappedSample& sample) {
    if (!sample.training) return;
    const ImageView image(sample);
    const auto draw = [&](float limit) { return limit * sample.random.uniform(-1, 1); };
    const float brightness = draw(most.brightness), contrast = 1 + draw(most.contrast),
                saturation = 1 + draw(most.saturation);
    spread_values(image.values, mean_of_values(image.values), contrast);
    for (std::size_t p = 0; p < image.values.size(); p += image.channels) {
      const std::span<float> pixel = image.values.subspan(p, image.channels);
      spread_values(pixel, mean_of_values(pixel), saturation);
    }
    for (float& value : image.values) value += brightness;
  };
}

std::unique_ptr<Dataset> mix_up(std::unique_ptr<Dataset> data, std::int64_t classes, double alpha) {
  require(data != nullptr, "mix_up was given no data");
  require(classes >= 1, "mix_up of ", classes, " classes");
  require(alpha > 0 && alpha <= 1, "mix_up with alpha ", alpha, ", which must be above 0, up to 1");
  return std::make_unique<MixedUp>(std::move(data), classes, alpha);
}

}  // namespace belfry
