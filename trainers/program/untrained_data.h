// Stands in for the training data of a program that trains nothing.
#pragma once
#include "belfry/trainers/data/dataset.h"

namespace belfry {

// Has `size` samples: those of `data`, over and over.
class UntrainedData final : public Dataset {
 public:
  UntrainedData(const Dataset& data, std::int64_t size) : data_(data), size_(size) {}

  std::vector<Field> signature() const override { return data_.signature(); }
  std::int64_t size() const override { return size_; }
  void gather(std::span<const std::int64_t> indices,
              std::span<std::byte* const> out) const override {
    std::vector<std::int64_t> rows;
    for (const std::int64_t index : indices) rows.push_back(index % data_.size());
    data_.gather(rows, out);
  }
  std::string describe() const override { return "none, as nothing is trained"; }
  const Vocabulary* vocabulary() const override { return data_.vocabulary(); }

 private:
  const Dataset& data_;
  const std::int64_t size_;
};

}  // namespace belfry
