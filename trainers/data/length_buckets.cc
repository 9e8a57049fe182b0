#include "belfry/trainers/data/length_buckets.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"

namespace belfry {
namespace {

class BucketedData final : public Dataset {
 public:
  BucketedData(std::unique_ptr<Dataset> data, std::string length, std::vector<std::int64_t> lengths)
      : data_(std::move(data)), length_(std::move(length)) {
    buckets_.lengths = std::move(lengths);
  }

  std::vector<Field> signature() const override { return data_->signature(); }
  std::int64_t size() const override { return data_->size(); }
  void gather(std::span<const std::int64_t> indices,
              std::span<std::byte* const> out) const override {
    data_->gather(indices, out);
  }
  void gather_training(const DataPass& pass, std::span<const std::int64_t> indices,
                       std::span<std::byte* const> out) const override {
    data_->gather_training(pass, indices, out);
    const auto* const found = reinterpret_cast<const std::int32_t*>(out[field_of_length()]);
    const LengthBuckets& known = *buckets();
    for (std::size_t i = 0; i < indices.size(); ++i) {
      const std::int64_t most =
          known.lengths[known.of_samples[static_cast<std::size_t>(indices[i])]];
      require(found[i] >= 0 && found[i] <= most, "sample ", indices[i], " has ", found[i],
              " in its field '", length_, "' in training, and goes in batches of ", most,
              ": let nothing that training changes make samples longer");
    }
  }
  void check() const override { data_->check(); }
  std::string describe() const override {
    return cat(data_->describe(), ", in batches of lengths ", join(buckets_.lengths));
  }
  const Vocabulary* vocabulary() const override { return data_->vocabulary(); }
  std::vector<std::string> files() const override { return data_->files(); }
  std::int64_t left_out() const override { return data_->left_out(); }

  const LengthBuckets* buckets() const override {
    const std::lock_guard lock(mutex_);
    if (buckets_.of_samples.empty()) read_lengths();
    return &buckets_;
  }

 private:
  void read_lengths() const {
    constexpr std::int64_t kAtOnce = 256;
    const std::size_t field = field_of_length();
    std::vector<std::uint8_t> of_samples;
    std::vector<std::int64_t> indices;
    for (std::int64_t first = 0; first < size(); first += kAtOnce) {
      indices.resize(static_cast<std::size_t>(std::min(kAtOnce, size() - first)));
      std::iota(indices.begin(), indices.end(), first);
      const Tensor found = gather_tensors(*data_, indices)[field];
      for (std::size_t i = 0; i < indices.size(); ++i)
        of_samples.push_back(bucket_of(found.data<std::int32_t>()[i], indices[i]));
    }
    buckets_.of_samples = std::move(of_samples);
  }

  std::size_t field_of_length() const {
    const std::vector<Field> fields = signature();
    return static_cast<std::size_t>(std::ranges::find(fields, length_, &Field::name) -
                                    fields.begin());
  }

  std::uint8_t bucket_of(std::int32_t length, std::int64_t sample) const {
    const auto& lengths = buckets_.lengths;
    require(length >= 0 && length <= lengths.back(), "sample ", sample, " has ", length,
            " in its field '", length_, "', where samples are at most ", lengths.back(), " long");
    return static_cast<std::uint8_t>(std::ranges::lower_bound(lengths, length) - lengths.begin());
  }

  std::unique_ptr<Dataset> data_;
  std::string length_;
  mutable std::mutex mutex_;
  mutable LengthBuckets buckets_;
};

}  // namespace

std::unique_ptr<Dataset> bucket_by_length(std::unique_ptr<Dataset> data, std::string length,
                                          std::vector<std::int64_t> lengths) {
  require(data != nullptr, "bucket_by_length was given no data");
  require(!lengths.empty() && lengths[0] > 0 && lengths.size() <= 255 &&
              std::ranges::is_sorted(lengths, std::ranges::less_equal()),
          "bucket_by_length takes up to 255 lengths from 1 on, ascending, not ", join(lengths));
  const std::vector<Dataset::Field> fields = data->signature();
  const auto is_long = [&](const Dataset::Field& field) {
    return field.shape.rank() > 0 && field.shape[0] == lengths.back();
  };
  // Errors do not describe the data: that would load them, also in a dry run.
  require(std::ranges::any_of(fields, is_long), "no field of the samples has ", lengths.back(),
          " as its first dimension, the last length of bucket_by_length");
  require(std::ranges::count(fields, Dataset::Field{length, DType::kI32, {}}) == 1,
          "the samples have no field '", length, "' i32 [], which would say how long each is");
  require(!data->is_stream(), "the data are a stream; bucket_by_length takes a known size");
  return std::make_unique<BucketedData>(std::move(data), std::move(length), std::move(lengths));
}

}  // namespace belfry
