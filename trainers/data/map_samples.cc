#include "belfry/trainers/data/map_samples.h"

#include <cstring>
#include <utility>

#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"

namespace belfry {
namespace {

std::size_t bytes_of(const Dataset::Field& field) {
  return static_cast<std::size_t>(field.shape.elements()) * size_of(field.dtype);
}

// The rows of sample `i` of arrays.
std::vector<std::byte*> rows_of(std::span<const Dataset::Field> fields,
                                std::span<std::byte* const> arrays, std::size_t i) {
  std::vector<std::byte*> rows;
  for (std::size_t f = 0; f < fields.size(); ++f)
    rows.push_back(arrays[f] + i * bytes_of(fields[f]));
  return rows;
}

class MappedData final : public Dataset {
 public:
  MappedData(std::unique_ptr<Dataset> data, std::vector<Field> fields, SampleFunction function,
             bool in_place)
      : data_(std::move(data)),
        from_(data_->signature()),
        to_(std::move(fields)),
        function_(std::move(function)),
        in_place_(in_place) {
    const auto* const inner = dynamic_cast<const MappedData*>(data_.get());
    depth_ = inner ? inner->depth_ + 1 : 1;
  }

  std::vector<Field> signature() const override { return to_; }
  std::int64_t size() const override { return data_->size(); }
  void gather(std::span<const std::int64_t> indices,
              std::span<std::byte* const> out) const override {
    map(nullptr, indices, out);
  }
  void gather_training(const DataPass& pass, std::span<const std::int64_t> indices,
                       std::span<std::byte* const> out) const override {
    map(&pass, indices, out);
  }
  void check() const override { data_->check(); }
  std::string describe() const override { return data_->describe() + ", mapped"; }
  const Vocabulary* vocabulary() const override {
    return in_place_ ? data_->vocabulary() : nullptr;
  }
  std::vector<std::string> files() const override { return data_->files(); }
  const LengthBuckets* buckets() const override { return data_->buckets(); }
  bool is_stream() const override { return data_->is_stream(); }
  std::int64_t left_out() const override { return data_->left_out(); }

 private:
  // `pass`: null outside of training.
  void map(const DataPass* pass, std::span<const std::int64_t> indices,
           std::span<std::byte* const> out) const {
    require(out.size() == to_.size(), "gather was given ", out.size(), " arrays for ", to_.size(),
            " fields");
    std::vector<std::vector<std::byte>> memory;
    std::vector<std::byte*> below(out.begin(), out.end());
    if (!in_place_) {
      below.clear();
      for (const Field& field : from_)
        below.push_back(memory.emplace_back(bytes_of(field) * indices.size()).data());
      for (std::size_t f = 0; f < to_.size(); ++f)
        std::memset(out[f], 0, bytes_of(to_[f]) * indices.size());
    }
    if (pass)
      data_->gather_training(*pass, indices, below);
    else
      data_->gather(indices, below);
    // Other numbers than those of the data below, which may draw some, too.
    const std::uint64_t key = combine_key(
        pass ? combine_key(pass->seed, static_cast<std::uint64_t>(pass->epoch)) : 0, depth_);
    for (std::size_t i = 0; i < indices.size(); ++i) {
      const std::vector<std::byte*> from = rows_of(from_, below, i), to = rows_of(to_, out, i);
      MappedSample sample{
          .from = {from_, from},
          .to = {to_, to},
          .data = *data_,
          .index = indices[i],
          .training = pass != nullptr,
          .random = CounterRandom(combine_key(key, static_cast<std::uint64_t>(indices[i])))};
      function_(sample);
    }
  }

  std::unique_ptr<Dataset> data_;
  std::vector<Field> from_, to_;
  SampleFunction function_;
  bool in_place_;
  std::uint64_t depth_;  // of maps over maps
};

class WithoutBadRecords final : public Dataset {
 public:
  WithoutBadRecords(std::unique_ptr<Dataset> data, std::shared_ptr<BadRecords> bad)
      : data_(std::move(data)), bad_(std::move(bad)) {}

  std::vector<Field> signature() const override { return data_->signature(); }
  std::int64_t size() const override { return data_->size(); }
  void gather(std::span<const std::int64_t> indices,
              std::span<std::byte* const> out) const override {
    each(indices, out, [&](std::int64_t index, std::span<std::byte* const> rows) {
      data_->gather({&index, 1}, rows);
    });
  }
  void gather_training(const DataPass& pass, std::span<const std::int64_t> indices,
                       std::span<std::byte* const> out) const override {
    each(indices, out, [&](std::int64_t index, std::span<std::byte* const> rows) {
      data_->gather_training(pass, {&index, 1}, rows);
    });
  }
  void check() const override { data_->check(); }
  std::string describe() const override { return data_->describe(); }
  const Vocabulary* vocabulary() const override { return data_->vocabulary(); }
  std::vector<std::string> files() const override { return data_->files(); }
  std::int64_t left_out() const override { return bad_->count(); }
  const LengthBuckets* buckets() const override { return data_->buckets(); }
  bool is_stream() const override { return data_->is_stream(); }

 private:
  template <class F>
  void each(std::span<const std::int64_t> indices, std::span<std::byte* const> out,
            const F& gather_one) const {
    const std::vector<Field> fields = data_->signature();
    for (std::size_t i = 0; i < indices.size(); ++i)
      gather_good(indices[i], rows_of(fields, out, i), gather_one);
  }

  // Sample `index`, or the next one that is not bad.
  template <class F>
  void gather_good(std::int64_t index, const std::vector<std::byte*>& rows,
                   const F& gather_one) const {
    for (std::int64_t tried = 0; tried == 0 || tried < size(); ++tried) {
      try {
        return gather_one(tried == 0 ? index : (index + tried) % size(), rows);
      } catch (const BadRecord& record) {
        bad_->note(record);
      }
    }
    throw IoError(cat(describe(), ": all records are bad"));
  }

  std::unique_ptr<Dataset> data_;
  std::shared_ptr<BadRecords> bad_;
};

void require_parts(const std::unique_ptr<Dataset>& data, const SampleFunction& function) {
  require(data != nullptr, "map_samples was given no data");
  require(static_cast<bool>(function), "map_samples was given an empty function");
}

}  // namespace

const Dataset::Field& SampleFields::checked(std::size_t field, DType dtype) const {
  require(field < fields_.size(), "a sample has ", fields_.size(), " fields, and none of number ",
          field, "; they are counted from 0");
  const Dataset::Field& of = fields_[field];
  require(of.dtype == dtype, "field '", of.name, "' of a sample is ", name_of(of.dtype),
          ", and was asked for as ", name_of(dtype));
  return of;
}

std::unique_ptr<Dataset> map_samples(std::unique_ptr<Dataset> data, SampleFunction change) {
  require_parts(data, change);
  std::vector<Dataset::Field> fields = data->signature();
  return std::make_unique<MappedData>(std::move(data), std::move(fields), std::move(change), true);
}

std::unique_ptr<Dataset> map_samples(std::unique_ptr<Dataset> data,
                                     std::vector<Dataset::Field> fields, SampleFunction make) {
  require_parts(data, make);
  require(!fields.empty(), "map_samples was given no fields of the new samples");
  for (const Dataset::Field& field : fields)
    require(field.shape.is_fully_known(), "field '", field.name, "' of the new samples has shape ",
            field.shape, ", which must be known");
  return std::make_unique<MappedData>(std::move(data), std::move(fields), std::move(make), false);
}

std::unique_ptr<Dataset> without_bad_records(std::unique_ptr<Dataset> data,
                                             std::shared_ptr<BadRecords> bad) {
  require(data != nullptr && bad != nullptr, "without_bad_records was given no data or no records");
  return std::make_unique<WithoutBadRecords>(std::move(data), std::move(bad));
}

}  // namespace belfry
