#include "belfry/trainers/data/bad_records.h"

#include <charconv>

#include "belfry/framework/base/log.h"
#include "belfry/framework/base/option_name.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"

namespace belfry {

BadRecordPolicy parse_bad_records(std::string_view text) {
  constexpr std::string_view kSkip = "skip:";
  constexpr std::int64_t kMost = 1'000'000'000;
  if (text == "stop") return {};
  std::int64_t most = 0;
  const bool skips = text.starts_with(kSkip);
  const std::string_view digits = skips ? text.substr(kSkip.size()) : "";
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), most);
  const bool whole = error == std::errc() && end == digits.data() + digits.size();
  require(skips && whole && most >= 1 && most <= kMost, "'", shown(text),
          "' is neither stop nor skip:N with N from 1 to ", kMost);
  return {.most = most};
}

std::string no_next_record() {
  return cat("; no later record of the file can be found, so none can be left out (",
             the_option("bad_records"), "): get the file again, or name another folder (",
             the_option("data_dir"), ")");
}

BadRecord::BadRecord(std::string file, std::uint64_t offset, std::string_view reason)
    : IoError(cat(file, ": bad record at byte ", offset, ": ", reason)),
      file_(std::move(file)),
      offset_(offset) {}

std::string bad_records_text(std::int64_t count) {
  return cat(count, count == 1 ? " bad record" : " bad records");
}

void BadRecords::note(const BadRecord& record) {
  const std::lock_guard lock(mutex_);
  const std::pair place(record.file(), record.offset());
  if (noted_.contains(place)) return;
  const std::int64_t before = std::ssize(noted_);
  if (before >= policy_.most)
    throw IoError(about_option(
        "bad_records", record.what(),
        before == 0 ? "; fix the file, or let such records be left out ("
                    : cat("; ", before, before == 1 ? " was" : " were",
                          " left out before it; fix the file, or let more be left out ("),
        the_option("bad_records"), ", skip:N)"));
  noted_.insert(place);
  log_warning(record.what(), "; left out, ", before + 1, " of at most ", policy_.most);
}

std::int64_t BadRecords::count() const {
  const std::lock_guard lock(mutex_);
  return std::ssize(noted_);
}

}  // namespace belfry
