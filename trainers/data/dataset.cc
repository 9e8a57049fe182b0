#include "belfry/trainers/data/dataset.h"

#include <cstring>

#include "belfry/framework/base/error.h"
#include "belfry/framework/base/option_name.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/trainers/data/gatherer.h"

namespace belfry {
namespace {

using Source = TensorDataset::Source;

bool converts(DType from, DType to) {
  return from == to || (from == DType::kU8 && (to == DType::kF32 || to == DType::kI32));
}

void check_source(const Source& source, std::int64_t size) {
  const Shape& rows = source.rows.shape();
  require(rows.rank() > 0, "field '", source.name,
          "': its tensor needs a leading sample dimension");
  require(rows[0] == size, "field '", source.name, "' has ", rows[0],
          " samples, the first field has ", size);
  require(
      source.sample.is_fully_known() && rows.product(1, rows.rank()) == source.sample.elements(),
      "field '", source.name, "': rows of ", rows, " are not samples of shape ", source.sample);
  require(converts(source.rows.dtype(), source.dtype), "field '", source.name, "': cannot make ",
          name_of(source.dtype), " samples from ", name_of(source.rows.dtype()));
  const bool scaled = source.rows.dtype() == DType::kU8 && source.dtype == DType::kF32;
  require(source.scale == 1 || scaled, "field '", source.name,
          "': a scale needs u8 rows gathered as f32");
}

// Blocks of constant size: compilers vectorise them at -O2, and the tail computes the same values.
template <class To, class F>
void convert(const std::uint8_t* __restrict from, To* __restrict to, std::size_t count, F&& f) {
  constexpr std::size_t kBlock = 16;
  std::size_t i = 0;
  for (; i + kBlock <= count; i += kBlock)
    for (std::size_t j = 0; j < kBlock; ++j) to[i + j] = f(from[i + j]);
  for (; i < count; ++i) to[i] = f(from[i]);
}

void gather_source(const Source& source, std::span<const std::int64_t> indices, std::byte* out) {
  const auto count = static_cast<std::size_t>(source.sample.elements());
  const std::size_t row_bytes = count * size_of(source.rows.dtype());
  const std::byte* rows = source.rows.raw();
  const bool plain = source.dtype == source.rows.dtype();
  for (const std::int64_t index : indices) {
    const std::byte* row = rows + static_cast<std::size_t>(index) * row_bytes;
    const auto* bytes = reinterpret_cast<const std::uint8_t*>(row);
    if (plain) {
      std::memcpy(out, row, row_bytes);
    } else if (source.dtype == DType::kF32) {
      convert(bytes, reinterpret_cast<float*>(out), count,
              [scale = source.scale](std::uint8_t x) { return static_cast<float>(x) * scale; });
    } else {
      convert(bytes, reinterpret_cast<std::int32_t*>(out), count,
              [](std::uint8_t x) { return static_cast<std::int32_t>(x); });
    }
    out += count * size_of(source.dtype);
  }
}

}  // namespace

std::int64_t Dataset::tokens() const {
  const std::vector<Field> fields = signature();
  const bool integers =
      !fields.empty() && (fields[0].dtype == DType::kI32 || fields[0].dtype == DType::kI64);
  return integers && fields[0].shape.rank() == 1 ? fields[0].shape[0] : 0;
}

const Dataset& LazyDataset::loaded() const {
  const std::lock_guard lock(mutex_);
  if (!loaded_) {
    require(static_cast<bool>(load_),
            "a LazyDataset was made with an empty function, which loads nothing");
    std::unique_ptr<Dataset> dataset = load_();
    require(dataset != nullptr, "the function of a LazyDataset gave no dataset");
    require(dataset->signature() == signature_, "the function of a LazyDataset gave ",
            dataset->describe(), ", which has other fields than were announced");
    require(!dataset->is_stream(), "the function of a LazyDataset gave ", dataset->describe(),
            "; a stream reads nothing before its samples are needed, so pass it as it is");
    loaded_ = std::move(dataset);
  }
  return *loaded_;
}

std::int64_t LazyDataset::left_out() const {
  const std::lock_guard lock(mutex_);
  return loaded_ ? loaded_->left_out() : 0;
}

TensorDataset::TensorDataset(std::vector<Source> sources, std::string description,
                             std::int64_t left_out)
    : sources_(std::move(sources)), description_(std::move(description)), left_out_(left_out) {
  require(!sources_.empty(), "a dataset needs at least one field");
  const Shape& first = sources_[0].rows.shape();
  size_ = first.rank() > 0 ? first[0] : 0;
  for (const Source& source : sources_) check_source(source, size_);
}

std::vector<Dataset::Field> TensorDataset::signature() const {
  std::vector<Field> fields;
  for (const Source& source : sources_)
    fields.push_back({source.name, source.dtype, source.sample});
  return fields;
}

void TensorDataset::gather(std::span<const std::int64_t> indices,
                           std::span<std::byte* const> out) const {
  require(out.size() == sources_.size(), "gather was given ", out.size(), " arrays for ",
          sources_.size(), " fields");
  for (const std::int64_t index : indices)
    require(index >= 0 && index < size_, "sample ", index, " of a dataset of ", size_);
  for (std::size_t f = 0; f < sources_.size(); ++f) gather_source(sources_[f], indices, out[f]);
}

std::vector<std::string> names_in_data_dir(FileSystem& files, const std::string& folder) try {
  return files.list(folder);
} catch (const IoError& error) {
  throw IoError(about_option("data_dir", error.what(), "; name the folder with the data files (",
                             the_option("data_dir"), ")"));
}

std::vector<Dataset::Field> fields_in_bucket(std::vector<Dataset::Field> fields,
                                             const LengthBuckets& buckets, std::size_t bucket) {
  for (Dataset::Field& field : fields) {
    std::vector<std::int64_t> dims = field.shape.dims();
    if (dims.empty() || dims[0] != buckets.lengths.back()) continue;
    dims[0] = buckets.lengths[bucket];
    field.shape = Shape(dims);
  }
  return fields;
}

std::vector<Tensor> batch_tensors(const Dataset& dataset, std::int64_t batch) {
  return batch_tensors(dataset.signature(), batch);
}

std::vector<Tensor> batch_tensors(std::span<const Dataset::Field> fields, std::int64_t batch) {
  std::vector<Tensor> tensors;
  for (const Dataset::Field& field : fields) {
    std::vector<std::int64_t> dims = field.shape.dims();
    dims.insert(dims.begin(), batch);
    tensors.emplace_back(Shape(std::move(dims)), field.dtype);
  }
  return tensors;
}

std::vector<Tensor> gather_tensors(const Dataset& dataset, std::span<const std::int64_t> indices) {
  std::vector<Tensor> tensors = batch_tensors(dataset, std::ssize(indices));
  std::vector<std::byte*> out;
  for (Tensor& tensor : tensors) out.push_back(tensor.mutable_raw());
  Gatherer(dataset, 1, "a few samples").gather({}, indices, out);
  return tensors;
}

}  // namespace belfry
