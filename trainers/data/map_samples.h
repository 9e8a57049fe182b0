// Data made of other data, sample by sample: to augment them, to make other fields of them, or to
// leave bad ones out.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "belfry/trainers/data/dataset.h"
#include "belfry/trainers/util/counter_random.h"

namespace belfry {

// The fields of one sample.
class SampleFields {
 public:
  SampleFields(std::span<const Dataset::Field> fields, std::span<std::byte* const> rows)
      : fields_(fields), rows_(rows) {}

  std::size_t size() const { return fields_.size(); }
  const Shape& shape(std::size_t field) const { return fields_[field].shape; }
  std::span<std::byte> bytes(std::size_t field) const {
    const Dataset::Field& of = fields_[field];
    return {rows_[field], static_cast<std::size_t>(of.shape.elements()) * size_of(of.dtype)};
  }
  // The elements of a field. Throws InvalidArgument, naming the field, if T is not its type.
  template <class T>
  std::span<T> get(std::size_t field) const {
    const Dataset::Field& of = checked(field, dtype_of<T>());
    return {reinterpret_cast<T*>(rows_[field]), static_cast<std::size_t>(of.shape.elements())};
  }

 private:
  const Dataset::Field& checked(std::size_t field, DType dtype) const;

  std::span<const Dataset::Field> fields_;
  std::span<std::byte* const> rows_;
};

// A sample while it is made.
struct MappedSample {
  SampleFields from;  // of the data below
  SampleFields to;  // of the new data, zeros at first; the same as `from` if it is changed in place
  const Dataset& data;  // the data below; gather_tensors() gives other samples of them
  std::int64_t index;   // of the sample in the data
  bool training;        // false in evaluations
  // Numbers of this sample: in training they differ from epoch to epoch, in evaluations they do
  // not.
  CounterRandom random;
};

// May be called from several threads at once, in any order.
using SampleFunction = std::function<void(MappedSample&)>;

// `data`, whose samples `change` changes in place:
//   map_samples(data::cifar10(dirs, train), [](MappedSample& sample) {
//     if (sample.training && sample.random.below(2) == 0) mirror(sample.to.get<float>(0));
//   });
// All else, such as size and files, is that of `data`.
std::unique_ptr<Dataset> map_samples(std::unique_ptr<Dataset> data, SampleFunction change);
// Samples with these fields, which `make` makes of those of `data`.
std::unique_ptr<Dataset> map_samples(std::unique_ptr<Dataset> data,
                                     std::vector<Dataset::Field> fields, SampleFunction make);

// `data`, whose gather() may throw BadRecord: `bad` notes the record, and the next sample takes its
// place. A reader of your own leaves out as many as the user allows:
//   return without_bad_records(std::make_unique<MyData>(dirs.data_dir),
//                              std::make_shared<BadRecords>(dirs.bad_records));
std::unique_ptr<Dataset> without_bad_records(std::unique_ptr<Dataset> data,
                                             std::shared_ptr<BadRecords> bad);

}  // namespace belfry
