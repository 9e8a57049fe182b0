#include "belfry/trainers/data/array_data.h"

#include <concepts>
#include <cstring>
#include <limits>
#include <utility>

#include "belfry/framework/base/option_name.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/trainers/data/map_samples.h"
#include "belfry/trainers/data/npy_array.h"
#include "belfry/trainers/data/synthetic_data.h"

namespace belfry::data {
namespace {

bool becomes(DType from, DType to) {
  const auto is_floating = [](DType dtype) { return dtype == DType::kF32 || dtype == DType::kF64; };
  const auto is_whole = [](DType dtype) { return dtype == DType::kI32 || dtype == DType::kI64; };
  if (from == to) return true;
  if (from == DType::kU8) return is_floating(to) || is_whole(to);
  return (is_floating(from) && is_floating(to)) || (is_whole(from) && is_whole(to));
}

// Calls f with a value of the C++ type of a dtype that arrays may have.
template <class F>
void visit_array_type(DType dtype, const F& f) {
  switch (dtype) {
    case DType::kU8: return f(std::uint8_t());
    case DType::kI32: return f(std::int32_t());
    case DType::kI64: return f(std::int64_t());
    case DType::kF32: return f(float());
    default: return f(double());
  }
}

// Throws InvalidArgument for a number that does not fit.
void convert_row(DType from, std::span<const std::byte> row, DType to, std::byte* out) {
  if (from == to) {
    std::memcpy(out, row.data(), row.size());
    return;
  }
  visit_array_type(from, [&]<class From>(From) {
    visit_array_type(to, [&]<class To>(To) {
      for (std::size_t i = 0; i < row.size() / sizeof(From); ++i) {
        From value;
        std::memcpy(&value, row.data() + i * sizeof value, sizeof value);
        if constexpr (std::integral<From> && std::integral<To>)
          require(std::in_range<To>(value), "its number ", value, " at element ", i,
                  " does not fit into ", name_of(dtype_of<To>()));
        reinterpret_cast<To*>(out)[i] = static_cast<To>(value);
      }
    });
  });
}

class ArrayData final : public Dataset {
 public:
  ArrayData(std::vector<Field> fields, std::vector<NpyArray> arrays)
      : fields_(std::move(fields)), arrays_(std::move(arrays)) {
    for (std::size_t f = 0; f < fields_.size(); ++f) check_array(fields_[f], arrays_[f]);
  }

  std::vector<Field> signature() const override { return fields_; }
  std::int64_t size() const override { return arrays_[0].rows(); }
  std::string describe() const override { return cat(size(), " samples of ", arrays_[0].path()); }

  void gather(std::span<const std::int64_t> indices,
              std::span<std::byte* const> out) const override {
    for (const std::int64_t index : indices)
      require(index >= 0 && index < size(), "sample ", index, " of a dataset of ", size());
    for (std::size_t f = 0; f < arrays_.size(); ++f) {
      const NpyArray& array = arrays_[f];
      const std::size_t bytes =
          static_cast<std::size_t>(fields_[f].shape.elements()) * size_of(fields_[f].dtype);
      std::vector<std::byte> row(array.row_bytes());
      for (std::size_t i = 0; i < indices.size(); ++i) {
        array.read(indices[i], row);
        try {
          convert_row(array.dtype(), row, fields_[f].dtype, out[f] + i * bytes);
        } catch (const InvalidArgument& error) {
          throw BadRecord(array.name(), array.offset(indices[i]), error.what());
        }
      }
    }
  }

 private:
  void check_array(const Field& field, const NpyArray& array) const {
    const auto refuse = [&](const auto&... parts) {
      throw IoError(about_option(
          "data_dir", array.name(), " has ", name_of(array.dtype()), " ", array.shape(), parts...,
          "; save it anew, or name another folder (", the_option("data_dir"), ")"));
    };
    std::vector<std::int64_t> dims = field.shape.dims();
    dims.insert(dims.begin(), array.rows());
    if (!becomes(array.dtype(), field.dtype) || array.shape() != Shape(dims))
      refuse(", where the model takes ", name_of(field.dtype), " ", field.shape, " per sample");
    if (array.rows() != arrays_[0].rows())
      refuse(", where ", arrays_[0].name(), " has ", arrays_[0].rows(), " samples");
  }

  const std::vector<Field> fields_;
  const std::vector<NpyArray> arrays_;
};

}  // namespace

DatasetFactory arrays(ArrayOptions options) {
  require(!options.fields.empty(), "data::arrays was given no fields");
  return [options](const RunDirs& dirs, bool train) -> std::unique_ptr<Dataset> {
    constexpr std::int64_t kTrainSamples = 1280, kTestSamples = 256;
    const auto load = [options, dirs, train]() -> std::unique_ptr<Dataset> {
      if (dirs.data_dir.empty())
        return synthetic_data(options.fields, options.classes, train ? kTrainSamples : kTestSamples,
                              train ? 1u : 2u);
      std::vector<NpyArray> arrays;
      for (const Dataset::Field& field : options.fields)
        arrays.push_back(open_array(local_file_system(), dirs.data_dir,
                                    train ? options.train_files : options.test_files, field.name));
      return without_bad_records(std::make_unique<ArrayData>(options.fields, std::move(arrays)),
                                 std::make_shared<BadRecords>(dirs.bad_records));
    };
    std::vector<std::string> read;
    const std::string& stem = train ? options.train_files : options.test_files;
    for (const Dataset::Field& field : options.fields)
      for (const std::string& name : {cat(stem, ".npz"), cat(stem, "_", field.name, ".npy")})
        if (!dirs.data_dir.empty()) read.push_back(cat(dirs.data_dir, "/", name));
    return std::make_unique<LazyDataset>(options.fields, load, std::move(read));
  };
}

}  // namespace belfry::data
