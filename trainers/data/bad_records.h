// Records of data files that cannot be used: they are named, and left out where that is allowed.
#pragma once
#include <cstdint>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "belfry/framework/base/error.h"

namespace belfry {

// What becomes of bad records; --bad_records.
struct BadRecordPolicy {
  std::int64_t most = 0;  // of one data set that may be left out; one more is an error
  bool operator==(const BadRecordPolicy&) const = default;
};

// Of "stop", or "skip:N" with N from 1 to 10^9. Throws InvalidArgument saying so.
BadRecordPolicy parse_bad_records(std::string_view text);

// What is lost with a bad record. Where nobody knows where the next one begins, that is the rest of
// its file, however many records it has; where those before it may be wrong, too, the whole file.
enum class LostWithRecord { kNothing, kRestOfFile, kWholeFile };

// "FILE: bad record at byte OFFSET: REASON", and that the file, or its rest, is lost, if it is. The
// offset is in the unpacked data.
class BadRecord : public IoError {
 public:
  BadRecord(std::string file, std::uint64_t offset, std::string_view reason,
            LostWithRecord lost = LostWithRecord::kNothing);
  const std::string& file() const { return file_; }
  std::uint64_t offset() const { return offset_; }
  LostWithRecord lost() const { return lost_; }

 private:
  std::string file_;
  std::uint64_t offset_;
  LostWithRecord lost_;
};

// What was left out.
struct BadRecordCount {
  std::int64_t records = 0;        // bad ones
  std::vector<std::string> rests;  // of files that were lost with some of these: "FILE from byte 5"

  // "3 bad records", or "1 bad record and the rest of FILE from byte 5"; "" for none.
  std::string str() const;
};

// Those of one data set. Any thread may note one.
class BadRecords {
 public:
  explicit BadRecords(BadRecordPolicy policy = {}) : policy_(policy) {}

  // Returns if the record may be left out, and warns of it the first time: each counts once. Throws
  // IoError, with what the record says and what to do, if none or no more may be left out.
  void note(const BadRecord& record);
  std::int64_t count() const;
  BadRecordCount left_out() const;

 private:
  const BadRecordPolicy policy_;
  mutable std::mutex mutex_;
  std::set<std::pair<std::string, std::uint64_t>> noted_;  // at most policy_.most
  std::vector<std::string> rests_;
};

}  // namespace belfry
