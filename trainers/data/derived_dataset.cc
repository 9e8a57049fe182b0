#include "belfry/trainers/data/derived_dataset.h"

namespace belfry {

void DerivedDataset::copy_source(const Sample& sample) const {
  const auto fields = sample.fields.first(source_->signature().size());
  const std::span index(&sample.index, 1);
  if (sample.pass) {
    source_->gather_training(*sample.pass, index, fields);
  } else {
    source_->gather(index, fields);
  }
}

void DerivedDataset::make_all(const std::optional<DataPass>& pass,
                              std::span<const std::int64_t> indices,
                              std::span<std::byte* const> out) const {
  const std::vector<Field> fields = signature();
  std::vector<std::byte*> row(out.begin(), out.end());
  const std::uint64_t key =
      pass ? combine_key(pass->seed, static_cast<std::uint64_t>(pass->epoch) + 1) : 0;
  for (const std::int64_t index : indices) {
    Sample sample{.index = index,
                  .pass = pass,
                  .fields = row,
                  .random = CounterRandom(combine_key(key, static_cast<std::uint64_t>(index)))};
    make(sample);
    for (std::size_t i = 0; i < fields.size(); ++i)
      row[i] += static_cast<std::size_t>(fields[i].shape.elements()) * size_of(fields[i].dtype);
  }
}

}  // namespace belfry
