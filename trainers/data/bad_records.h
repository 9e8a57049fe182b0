// Records of data files that cannot be used: they are named, and left out where that is allowed.
#pragma once
#include <cstdint>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "belfry/framework/base/error.h"

namespace belfry {

// What becomes of bad records; --bad_records.
struct BadRecordPolicy {
  std::int64_t most = 0;  // of one data set that may be left out; one more is an error
  bool operator==(const BadRecordPolicy&) const = default;
};

// Of "stop", or "skip:N" with N from 1 to 10^9. Throws InvalidArgument saying so.
BadRecordPolicy parse_bad_records(std::string_view text);

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

// Those of one data set. Any thread may note one.
class BadRecords {
 public:
  explicit BadRecords(BadRecordPolicy policy = {}) : policy_(policy) {}

  // Returns if the record may be left out, and warns of it the first time: each counts once. Throws
  // IoError, with what the record says and what to do, if none or no more may be left out.
  void note(const BadRecord& record);
  std::int64_t count() const;

 private:
  const BadRecordPolicy policy_;
  mutable std::mutex mutex_;
  std::set<std::pair<std::string, std::uint64_t>> noted_;  // at most policy_.most
};

}  // namespace belfry
