#include "belfry/trainers/runs/event_file.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <utility>

#include "belfry/framework/base/text.h"
#include "belfry/trainers/util/crc32c.h"

namespace belfry {
namespace {

// Numbers of the fields, from event.proto and summary.proto of TensorFlow.
namespace event_field {
constexpr int kWallTime = 1, kStep = 2, kFileVersion = 3, kSummary = 5, kSessionLog = 7;
}
namespace value_field {
constexpr int kTag = 1, kSimpleValue = 2, kHistogram = 5;
}
namespace histogram_field {
constexpr int kMin = 1, kMax = 2, kCount = 3, kSum = 4, kSumSquares = 5, kEnds = 6, kCounts = 7;
}
constexpr int kSummaryValue = 1, kSessionStatus = 1;
constexpr std::int64_t kStart = 1;  // SessionLog.SessionStatus

constexpr std::string_view kNamePrefix = "events.out.tfevents.";
constexpr std::size_t kNameDigits = 8;

template <class T>
std::string_view raw(const T& number) {
  return {reinterpret_cast<const char*>(&number), sizeof number};
}

// The number in the name of an event file of ours; 0 for other names.
std::int64_t number_in(std::string_view name) {
  if (!name.starts_with(kNamePrefix)) return 0;
  const std::string_view digits = name.substr(kNamePrefix.size());
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  return error == std::errc() && end == digits.data() + digits.size() ? number : 0;
}

std::string next_name(FileSystem& files, const std::string& directory) {
  std::int64_t last = 0;
  for (const std::string& name : files.list(directory)) last = std::max(last, number_in(name));
  std::string digits = cat(last + 1);
  if (digits.size() < kNameDigits) digits.insert(0, kNameDigits - digits.size(), '0');
  return cat(kNamePrefix, digits);
}

}  // namespace

double unix_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

bool is_event_file(std::string_view name) { return number_in(name) > 0; }

EventFile::EventFile(FileSystem& files, const std::string& directory, std::int64_t first_step,
                     Clock clock)
    : clock_(std::move(clock)) {
  files.create_directory(directory);
  path_ = cat(directory, "/", next_name(files, directory));
  file_ = files.create(path_);
  // From version 2 on, TensorBoard goes by START records, not by steps that go back.
  new_event().add(event_field::kFileVersion, std::string_view("brain.Event:2"));
  append(event_);
  restart(first_step);
}

void EventFile::restart(std::int64_t step) {
  value_.clear();
  value_.add(kSessionStatus, kStart);
  new_event().add(event_field::kStep, step);
  event_.add(event_field::kSessionLog, value_);
  append(event_);
}

void EventFile::add(std::string_view tag, double value) {
  value_.clear();
  value_.add(value_field::kTag, tag);
  value_.add(value_field::kSimpleValue, static_cast<float>(value));
  summary_.add(kSummaryValue, value_);
}

void EventFile::add(std::string_view tag, const Histogram& histogram) {
  ProtoMessage message;
  message.add(histogram_field::kMin, histogram.min);
  message.add(histogram_field::kMax, histogram.max);
  message.add(histogram_field::kCount, histogram.count());
  message.add(histogram_field::kSum, histogram.sum);
  message.add(histogram_field::kSumSquares, histogram.sum_squares);
  message.add(histogram_field::kEnds, histogram.ends);
  message.add(histogram_field::kCounts, histogram.counts);
  value_.clear();
  value_.add(value_field::kTag, tag);
  value_.add(value_field::kHistogram, message);
  summary_.add(kSummaryValue, value_);
}

void EventFile::write(std::int64_t step) {
  if (summary_.empty()) return;
  new_event().add(event_field::kStep, step);
  event_.add(event_field::kSummary, summary_);
  summary_.clear();
  append(event_);
}

ProtoMessage& EventFile::new_event() {
  event_.clear();
  event_.add(event_field::kWallTime, clock_());
  return event_;
}

void EventFile::append(const ProtoMessage& event) {
  const std::uint64_t length = event.bytes().size();
  record_.assign(raw(length));
  record_ += raw(masked_crc32c(raw(length)));
  record_ += event.bytes();
  record_ += raw(masked_crc32c(event.bytes()));
  file_->append(std::as_bytes(std::span(record_)));
}

}  // namespace belfry
