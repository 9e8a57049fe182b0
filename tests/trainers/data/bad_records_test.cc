#include "belfry/trainers/data/bad_records.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/tests/trainers/data/idx_files.h"

namespace belfry {
namespace bad_records_test {

using test::message_of;
using ::testing::HasSubstr;

TEST(BadRecords, AreStoppedAtOrLeftOutAsTheFlagSays) {
  EXPECT_EQ(parse_bad_records("stop"), BadRecordPolicy{});
  EXPECT_EQ(parse_bad_records("skip:12"), BadRecordPolicy{.most = 12});
  for (const char* const text :
       {"", "skip", "skip:", "skip:0", "skip:-1", "skip:x", "skip:1x", "go", "skip:2000000000"})
    EXPECT_THAT(message_of<InvalidArgument>([&] { parse_bad_records(text); }),
                HasSubstr("neither stop nor skip:N"))
        << text;
}

TEST(BadRecords, CountOnceEach) {
  BadRecords records({.most = 2});
  for (int i = 0; i < 3; ++i) records.note(BadRecord("a", 5, "too short"));
  records.note(BadRecord("b", 5, "too long"));
  EXPECT_EQ(records.count(), 2);
  EXPECT_THAT(message_of<IoError>([&] { records.note(BadRecord("b", 6, "too long")); }),
              HasSubstr("b: bad record at byte 6: too long; 2 were left out before it"));
  records.note(BadRecord("a", 5, "too short"));
}

TEST(BadRecords, EndWithAnErrorByDefault) {
  BadRecords records;
  EXPECT_THAT(message_of<IoError>([&] { records.note(BadRecord("a", 5, "too short")); }),
              HasSubstr("a: bad record at byte 5: too short; fix the file"));
  EXPECT_EQ(records.count(), 0);
}

}  // namespace bad_records_test
}  // namespace belfry
