#include "belfry/trainers/data/synthetic_data.h"

#include <algorithm>
#include <vector>

#include "belfry/framework/base/error.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/trainers/util/counter_random.h"

namespace belfry {
namespace {

// Draws classes: class c in proportion to 1 / (c + 1).
class ZipfClasses {
 public:
  explicit ZipfClasses(int classes) {
    double sum = 0;
    for (int c = 0; c < classes; ++c) until_.push_back(sum += 1.0 / (c + 1));
  }
  std::int32_t operator()(CounterRandom& random) const {
    const double at = static_cast<double>(random.bits() >> 11) * 0x1p-53 * until_.back();
    const auto last = until_.end() - 1;  // where rounding would pass the end
    return static_cast<std::int32_t>(std::upper_bound(until_.begin(), last, at) - until_.begin());
  }

 private:
  std::vector<double> until_;  // the sum of the proportions up to and with each class
};

Tensor random_rows(const Dataset::Field& field, int classes, std::int64_t samples,
                   std::uint64_t key, ClassLaw law) {
  std::vector<std::int64_t> dims = field.shape.dims();
  dims.insert(dims.begin(), samples);
  Tensor rows(Shape(std::move(dims)), field.dtype);
  CounterRandom random(key);
  if (field.dtype == DType::kF32)
    for (float& value : rows.mutable_data<float>()) value = random.uniform(-1, 1);
  else if (law == ClassLaw::kZipf)
    std::ranges::generate(rows.mutable_data<std::int32_t>(),
                          [&, draw = ZipfClasses(classes)] { return draw(random); });
  else
    for (std::int32_t& value : rows.mutable_data<std::int32_t>())
      value = static_cast<std::int32_t>(random.below(static_cast<std::uint64_t>(classes)));
  return rows;
}

}  // namespace

std::unique_ptr<Dataset> synthetic_data(std::vector<Dataset::Field> fields, int classes,
                                        std::int64_t samples, std::uint64_t seed, ClassLaw law) {
  require(samples >= 1 && classes >= 1, "synthetic data need samples and classes, not ", samples,
          " and ", classes);
  for (const Dataset::Field& field : fields)
    require(field.dtype == DType::kF32 || field.dtype == DType::kI32, "field '", field.name,
            "': synthetic data are f32 or i32, not ", name_of(field.dtype));
  return std::make_unique<LazyDataset>(fields, [=]() -> std::unique_ptr<Dataset> {
    std::vector<TensorDataset::Source> sources;
    for (std::size_t f = 0; f < fields.size(); ++f)
      sources.push_back({fields[f].name,
                         random_rows(fields[f], classes, samples, combine_key(seed, f), law),
                         fields[f].dtype, fields[f].shape});
    return std::make_unique<TensorDataset>(std::move(sources),
                                           cat(samples, " synthetic samples, seed ", seed));
  });
}

}  // namespace belfry
