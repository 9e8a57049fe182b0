// The sources of training samples.
#pragma once
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "belfry/framework/base/error.h"
#include "belfry/framework/base/file_system.h"
#include "belfry/framework/base/tensor.h"
#include "belfry/trainers/data/bad_records.h"

namespace belfry {

class Vocabulary;

// One pass over training data; random changes of samples are drawn from it.
struct DataPass {
  std::uint64_t seed = 1;
  std::int64_t epoch = 0;
};

// Samples of unequal length, which are batched with others of about the same length
// (length_buckets.h).
struct LengthBuckets {
  // The lengths of batches, ascending; the last is that of the longest samples.
  std::vector<std::int64_t> lengths;
  std::vector<std::uint8_t> of_samples;  // which of these each sample has
};

// A fixed number of samples, each with one value per field. Immutable: gather() may be called from
// several threads at once.
struct Dataset {
  // `shape` is one sample's, without a batch dimension.
  struct Field {
    std::string name;
    DType dtype;
    Shape shape;
    bool operator==(const Field&) const = default;
  };

  virtual ~Dataset() = default;
  // The tokens of a sample: the elements of its first field, if that is a row of integers; else 0.
  std::int64_t tokens() const;
  // Reads no data, so that dry runs may call it.
  virtual std::vector<Field> signature() const = 0;
  // At least 0, and always the same.
  virtual std::int64_t size() const = 0;

  // Copies the samples `indices` into `out`, one dense array of indices.size() rows per field of
  // the signature. Allocates nothing if the samples are in memory. Throws InvalidArgument if an
  // index is not in [0, size()).
  virtual void gather(std::span<const std::int64_t> indices,
                      std::span<std::byte* const> out) const = 0;

  // gather() for a step of training. It may change or choose samples at random, as a function of
  // only the pass and the sample's index. By default samples stay as they are.
  virtual void gather_training(const DataPass& /*pass*/, std::span<const std::int64_t> indices,
                               std::span<std::byte* const> out) const {
    gather(indices, out);
  }

  // Throws for data that even a dry run must refuse. It may read the files if they exist, but
  // returns no samples.
  virtual void check() const {}

  // One line for people: the kind, the number and the origin of the samples.
  virtual std::string describe() const = 0;

  // The meaning of its tokens; null if it has none, or it is unknown.
  virtual const Vocabulary* vocabulary() const { return nullptr; }

  // The files that it reads, so that the program does not write to them. Reads no data.
  virtual std::vector<std::string> files() const { return {}; }

  // Then a batch of training has samples of one bucket, and fields whose first dimension is the
  // longest length have the bucket's instead. Null: all batches have the shapes of the signature.
  // It may read the data.
  virtual const LengthBuckets* buckets() const { return nullptr; }

  // Whether samples come from a stream (sample_stream.h): size() is that of an epoch, and
  // gather_training() takes epochs in their order, until it throws EndOfStream.
  virtual bool is_stream() const { return false; }

  // How many bad records it has left out so far.
  virtual std::int64_t left_out() const { return 0; }
};

// A stream has no more samples to train with.
class EndOfStream : public Error {
 public:
  using Error::Error;
};

// The fields of samples in a batch of a bucket.
std::vector<Dataset::Field> fields_in_bucket(std::vector<Dataset::Field> fields,
                                             const LengthBuckets& buckets, std::size_t bucket);

// A dataset that is loaded at the first call of something other than its signature.
class LazyDataset final : public Dataset {
 public:
  using Load = std::function<std::unique_ptr<Dataset>()>;
  // The call that needs the data throws what `load` throws. It throws InvalidArgument if `load` is
  // an empty function, or returns no dataset, one of another signature, or a stream.
  // Dataset::check() calls `check`; null: it does nothing.
  LazyDataset(std::vector<Field> signature, Load load, std::vector<std::string> files = {},
              std::function<void()> check = nullptr)
      : signature_(std::move(signature)),
        load_(std::move(load)),
        files_(std::move(files)),
        check_(std::move(check)) {}

  std::vector<Field> signature() const override { return signature_; }
  std::int64_t size() const override { return loaded().size(); }
  void gather(std::span<const std::int64_t> indices,
              std::span<std::byte* const> out) const override {
    loaded().gather(indices, out);
  }
  void gather_training(const DataPass& pass, std::span<const std::int64_t> indices,
                       std::span<std::byte* const> out) const override {
    loaded().gather_training(pass, indices, out);
  }
  std::string describe() const override { return loaded().describe(); }
  const Vocabulary* vocabulary() const override { return loaded().vocabulary(); }
  std::vector<std::string> files() const override { return files_; }
  const LengthBuckets* buckets() const override { return loaded().buckets(); }
  void check() const override {
    if (check_) check_();
  }
  std::int64_t left_out() const override;

 private:
  const Dataset& loaded() const;

  std::vector<Field> signature_;
  Load load_;
  std::vector<std::string> files_;
  std::function<void()> check_;
  // Not std::call_once: its exceptions confuse ThreadSanitizer.
  mutable std::mutex mutex_;
  mutable std::unique_ptr<Dataset> loaded_;
};

// The command line's options for the data.
struct RunDirs {
  std::string data_dir;              // the folder with the data files; empty if none was given
  BadRecordPolicy bad_records = {};  // of each data set
};

// The names in data_dir, sorted. Throws IoError naming the option if they cannot be listed.
std::vector<std::string> names_in_data_dir(FileSystem& files, const std::string& folder);

using DatasetFactory = std::function<std::unique_ptr<Dataset>(const RunDirs&, bool train)>;

// One tensor per field, with leading dimension `batch`, zero-filled.
std::vector<Tensor> batch_tensors(std::span<const Dataset::Field> fields, std::int64_t batch);
std::vector<Tensor> batch_tensors(const Dataset& dataset, std::int64_t batch);

// The samples `indices` in fresh tensors.
std::vector<Tensor> gather_tensors(const Dataset& dataset, std::span<const std::int64_t> indices);

// Samples held in memory.
class TensorDataset final : public Dataset {
 public:
  // `rows` has one sample per element of its first dimension, each with the elements of `sample`.
  // Gathered samples have type `dtype`: that of `rows`, or f32 (value * scale) or i32 (value) made
  // from u8, so that bytes stay bytes in memory.
  struct Source {
    std::string name;
    Tensor rows;
    DType dtype;
    Shape sample;
    float scale = 1;
  };

  // Throws InvalidArgument unless there is a source, all have equally many rows, and each can be
  // converted as it asks.
  TensorDataset(std::vector<Source> sources, std::string description, std::int64_t left_out = 0);

  std::vector<Field> signature() const override;
  std::int64_t size() const override { return size_; }
  void gather(std::span<const std::int64_t> indices,
              std::span<std::byte* const> out) const override;
  std::string describe() const override { return description_; }
  std::int64_t left_out() const override { return left_out_; }

 private:
  std::vector<Source> sources_;
  std::string description_;
  std::int64_t left_out_, size_;
};

}  // namespace belfry
