// Records of data files that cannot be used: errors and warnings name them, and data sets may leave
// them out.
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

// The treatment of bad records; --bad_records.
struct BadRecordPolicy {
  std::int64_t most = 0;  // that one data set may leave out; one more is an error
  bool operator==(const BadRecordPolicy&) const = default;
};

// Takes "stop", or "skip:N" with N from 1 to 10^9; else throws InvalidArgument saying so.
BadRecordPolicy parse_bad_records(std::string_view text);

// What is lost with a bad record. If the start of the next record is unknown, the rest of the file
// is lost, however many records it has. If earlier records may be wrong, too, the whole file is
// lost.
enum class LostWithRecord { kNothing, kRestOfFile, kWholeFile };

// "FILE: bad record at byte OFFSET: REASON"; the message also says if the file, or its rest, is
// lost. The offset is in the unpacked data.
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

// The bad records that a data set left out.
struct BadRecordCount {
  std::int64_t records = 0;        // the bad ones
  std::vector<std::string> rests;  // lost rests of files: "FILE from byte 5"

  // "3 bad records", or "1 bad record and the rest of FILE from byte 5"; "" for none.
  std::string str() const;
};

// The bad records of one data set. Any thread may note one.
class BadRecords {
 public:
  explicit BadRecords(BadRecordPolicy policy = {}) : policy_(policy) {}

  // Returns if the record may be left out, and warns of it the first time: each record counts once.
  // Throws IoError, with the record's message and what to do, if no more may be left out.
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
