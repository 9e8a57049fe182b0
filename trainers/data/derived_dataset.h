// A data set made of another.
#pragma once
#include <memory>
#include <optional>
#include <utility>

#include "belfry/trainers/data/dataset.h"
#include "belfry/trainers/util/counter_random.h"

namespace belfry {

// The base of data sets whose samples are made of those of `source`. It has as many samples, unless
// it says otherwise. A class derived from it has a signature(), and a make() that writes a sample.
class DerivedDataset : public Dataset {
 public:
  explicit DerivedDataset(std::unique_ptr<Dataset> source) : source_(std::move(source)) {}

  void gather(std::span<const std::int64_t> indices, std::span<std::byte* const> out) const final {
    make_all({}, indices, out);
  }
  void gather_training(const DataPass& pass, std::span<const std::int64_t> indices,
                       std::span<std::byte* const> out) const final {
    make_all(pass, indices, out);
  }
  std::int64_t size() const override { return source_->size(); }
  std::string describe() const override { return "samples made of " + source_->describe(); }
  void check() const override { source_->check(); }
  const Vocabulary* vocabulary() const override { return source_->vocabulary(); }
  std::vector<std::string> files() const override { return source_->files(); }
  std::int64_t left_out() const override { return source_->left_out(); }

 protected:
  // A sample that make() writes.
  struct Sample {
    std::int64_t index;
    std::optional<DataPass> pass;        // none outside training
    std::span<std::byte* const> fields;  // the places of its values, dense
    CounterRandom random;  // of this sample: others in each pass, the same without a pass

    template <class T>
    T* field(std::size_t i) const {
      return reinterpret_cast<T*>(fields[i]);
    }
  };

  virtual void make(Sample& sample) const = 0;

  const Dataset& source() const { return *source_; }
  // Copies the source's sample of the same index and pass, whose fields come first.
  void copy_source(const Sample& sample) const;

 private:
  void make_all(const std::optional<DataPass>& pass, std::span<const std::int64_t> indices,
                std::span<std::byte* const> out) const;

  std::unique_ptr<Dataset> source_;
};

}  // namespace belfry
