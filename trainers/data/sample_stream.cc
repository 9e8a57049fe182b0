#include "belfry/trainers/data/sample_stream.h"

#include <cstring>
#include <exception>
#include <utility>

#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"

namespace belfry {
namespace {

class StreamData final : public Dataset {
 public:
  explicit StreamData(SampleStreamOptions options)
      : options_(std::move(options)), bad_(options_.bad_records) {
    for (const Field& field : options_.fields)
      bytes_.push_back(static_cast<std::size_t>(field.shape.elements()) * size_of(field.dtype));
  }

  std::vector<Field> signature() const override { return options_.fields; }
  std::int64_t size() const override { return options_.buffer; }
  bool is_stream() const override { return true; }
  std::int64_t left_out() const override { return bad_.count(); }
  std::string describe() const override {
    return cat(options_.description, ", ", options_.buffer, " records at a time");
  }

  void gather(std::span<const std::int64_t>, std::span<std::byte* const>) const override {
    throw InvalidArgument(cat(describe(), ": a stream has samples of training alone"));
  }
  void gather_training(const DataPass& pass, std::span<const std::int64_t> indices,
                       std::span<std::byte* const> out) const override {
    const std::shared_ptr<const Records> records = records_of(pass.epoch);
    for (std::size_t f = 0; f < bytes_.size(); ++f)
      for (std::size_t i = 0; i < indices.size(); ++i)
        std::memcpy(out[f] + i * bytes_[f],
                    (*records)[f].raw() + static_cast<std::size_t>(indices[i]) * bytes_[f],
                    bytes_[f]);
  }

 private:
  using Records = std::vector<Tensor>;  // by field, [buffer, sample...]

  // Those of epoch e are number e * buffer and the following.
  std::shared_ptr<const Records> records_of(std::int64_t epoch) const {
    const std::lock_guard lock(mutex_);
    if (records_ && epoch == epoch_) return records_;
    if (failure_ && epoch >= failed_at_) std::rethrow_exception(failure_);
    records_ = nullptr;
    try {
      go_to(epoch * options_.buffer);
      auto records = std::make_shared<Records>(batch_tensors(options_.fields, options_.buffer));
      read(*records);
      records_ = std::move(records);
    } catch (...) {
      stream_ = nullptr;                    // it is somewhere in the buffer
      failure_ = std::current_exception();  // the other parts of a batch do not try again
      failed_at_ = epoch;
      throw;
    }
    epoch_ = epoch;
    return records_;
  }

  void go_to(std::int64_t record) const {
    if (!stream_ || record < done_) {
      stream_ = options_.open();
      require(stream_ != nullptr, options_.description, " could not be opened: its function gave ",
              "no SampleStream");
      done_ = 0;
    }
    if (done_ == record) return;
    done_ += stream_->skip(record - done_);
    require(done_ <= record, options_.description, " has skipped more records than it was to");
    Records left_out = batch_tensors(options_.fields, 1);
    for (const std::vector<std::byte*> row = row_of(left_out, 0); done_ < record;)
      read_record(row, record);
  }

  void read(Records& records) const {
    const std::int64_t end = done_ + options_.buffer;
    for (std::int64_t i = 0; i < options_.buffer; ++i) read_record(row_of(records, i), end);
  }

  std::vector<std::byte*> row_of(Records& records, std::int64_t i) const {
    std::vector<std::byte*> row;
    for (std::size_t f = 0; f < bytes_.size(); ++f)
      row.push_back(records[f].mutable_raw() + static_cast<std::size_t>(i) * bytes_[f]);
    return row;
  }

  // `end`: the first record after those that are wanted.
  void read_record(const std::vector<std::byte*>& row, std::int64_t end) const {
    for (;;) {
      for (std::size_t f = 0; f < bytes_.size(); ++f) std::memset(row[f], 0, bytes_[f]);
      try {
        if (!stream_->next(SampleFields(options_.fields, row)))
          throw EndOfStream(cat(options_.description, " has ended after ", done_, " records, ",
                                end - done_, " too few for a buffer of ", options_.buffer));
        ++done_;
        return;
      } catch (const BadRecord& record) {
        bad_.note(record);
      }
    }
  }

  const SampleStreamOptions options_;
  std::vector<std::size_t> bytes_;  // of a record, per field
  mutable BadRecords bad_;
  mutable std::mutex mutex_;
  mutable std::unique_ptr<SampleStream> stream_;
  mutable std::int64_t done_ = 0;   // records that it has given or left out
  mutable std::int64_t epoch_ = 0;  // of the records in memory
  mutable std::shared_ptr<const Records> records_;
  mutable std::exception_ptr failure_;  // why epochs from failed_at_ on have no records
  mutable std::int64_t failed_at_ = 0;
};

}  // namespace

std::unique_ptr<Dataset> stream_samples(SampleStreamOptions options) {
  require(!options.fields.empty(), "stream_samples was given no fields of the samples");
  require(static_cast<bool>(options.open), "stream_samples was given an empty function");
  require(options.buffer >= 1, "stream_samples with a buffer of ", options.buffer, " records");
  return std::make_unique<StreamData>(std::move(options));
}

}  // namespace belfry
