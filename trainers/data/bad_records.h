// Records of data files that cannot be used: errors and warnings name them, and data sets may leave
// them out.
#pragma once
#include <cstdint>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "belfry/framework/base/error.h"

namespace belfry {

// The treatment of bad records; --bad_records.
struct BadRecordPolicy {
  std::int64_t most = 0;  // that one data set may leave out; one more is an error
  bool operator==(const BadRecordPolicy&) const = default;
};

// Takes "stop", or "skip:N" with N from 1 to 10^9; else throws InvalidArgument saying so.
BadRecordPolicy parse_bad_records(std::string_view text);

// Why damage after which the next record cannot be found ends the run even if records may be left
// out, and what to do.
std::string no_next_record();

// An error about damage after which the next record of a file cannot be found.
template <class... Parts>
IoError lost_rest(const Parts&... parts) {
  return IoError(ErrorFields{.why = detail::cat(parts..., no_next_record()), .option = "data_dir"});
}

// "FILE: bad record at byte OFFSET: REASON". The offset is in the unpacked data.
class BadRecord : public IoError {
 public:
  BadRecord(std::string file, std::uint64_t offset, std::string_view reason);
  const std::string& file() const { return file_; }
  std::uint64_t offset() const { return offset_; }

 private:
  std::string file_;
  std::uint64_t offset_;
};

// "1 bad record", or "3 bad records".
std::string bad_records_text(std::int64_t count);

// The bad records of one data set. Any thread may note one.
class BadRecords {
 public:
  explicit BadRecords(BadRecordPolicy policy = {}) : policy_(policy) {}

  // Returns if the record may be left out, and warns of it the first time: each record counts once.
  // Throws IoError, with the record's message and what to do, if no more may be left out.
  void note(const BadRecord& record);
  // Those that were left out.
  std::int64_t count() const;

 private:
  const BadRecordPolicy policy_;
  mutable std::mutex mutex_;
  std::set<std::pair<std::string, std::uint64_t>> noted_;  // at most policy_.most
};

}  // namespace belfry
