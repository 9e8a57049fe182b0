#include "belfry/trainers/runs/event_file.h"

#include <cmath>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/tests/framework/base/memory_file_system.h"
#include "belfry/tests/trainers/runs/event_reader.h"

namespace belfry {
namespace event_file_test {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;
using testing::StartsWith;

class EventFileTest : public testing::Test {
 protected:
  std::string content(const EventFile& file) { return text_of(files_, file.path()); }
  std::vector<std::int64_t> steps_of(const std::string& tag) {
    return shown_in(files_, kDirectory).steps[tag];
  }
  // Writes the steps from `first` to `last`.
  void write(std::int64_t first, std::int64_t last) {
    EventFile file(files_, kDirectory, first);
    for (std::int64_t step = first; step <= last; ++step) {
      file.add("loss", 1.0 / static_cast<double>(step));
      file.write(step);
    }
  }

  static constexpr char kDirectory[] = "/disk/train";
  MemoryFileSystem files_{"/disk"};
};

std::string from_hex(std::string_view digits) {
  std::string bytes;
  for (; !digits.empty(); digits.remove_prefix(2))
    bytes += static_cast<char>(std::stoi(std::string(digits.substr(0, 2)), nullptr, 16));
  return bytes;
}

// The bytes come from the Python packages tensorboard 2.21 and crc32c 2.9:
//   RecordWriter(file).write(Event(wall_time=1700000000.25, file_version="brain.Event:2")
//                                .SerializeToString())
//   ... step=21, session_log=SessionLog(status=SessionLog.START)
//   ... step=300, summary=Summary(value=[Value(tag="loss", simple_value=0.25),
//           Value(tag="accuracy", simple_value=nan), Value(tag="fc/W", histo=HistogramProto(
//               min=-1, max=3, num=4, sum=4.5, sum_squares=11.25, bucket_limit=[1, 3],
//               bucket=[1, 3]))])
TEST_F(EventFileTest, HasTheBytesThatTensorBoardWrites) {
  EventFile file(files_, kDirectory, 21, [] { return 1700000000.25; });
  file.add("loss", 0.25);
  file.add("accuracy", std::numeric_limits<double>::quiet_NaN());
  file.add(
      "fc/W",
      Histogram{
          .min = -1, .max = 3, .sum = 4.5, .sum_squares = 11.25, .ends = {1, 3}, .counts = {1, 3}});
  file.write(300);
  EXPECT_EQ(content(file),
            from_hex("1800000000000000a37f4b220900001040fc54d9411a0d627261696e2e4576656e743a32"
                     "338d2fe9"
                     "0f000000000000006d532b090900001040fc54d94110153a0208010e937c4c"
                     "8700000000000000b86f57e60900001040fc54d94110ac022a790a0b0a046c6f73731500"
                     "00803e0a"
                     "0f0a086163637572616379150000c07f0a590a0466632f572a5109000000000000f0bf11"
                     "00000000"
                     "000008401900000000000010402100000000000012402900000000008026403210000000"
                     "000000f0"
                     "3f00000000000008403a10000000000000f03f00000000000008404afaf30a"));
}

TEST_F(EventFileTest, BeginsWithItsVersionAndAStart) {
  write(7, 8);
  const std::vector<ReadEvent> events = events_in(files_, kDirectory);
  ASSERT_THAT(events, SizeIs(4));
  EXPECT_EQ(events[0].file_version, "brain.Event:2");
  EXPECT_FALSE(events[0].starts);
  EXPECT_TRUE(events[1].starts);
  EXPECT_EQ(events[1].step, 7);
  for (const ReadEvent& event : events) EXPECT_NEAR(event.wall_time, unix_seconds(), 600);
}

TEST_F(EventFileTest, ARunThatGoesOnShowsEachStepOnce) {
  write(1, 9);
  write(5, 6);  // killed again
  write(7, 12);
  EXPECT_THAT(steps_of("loss"), ElementsAre(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12));
  write(1, 2);
  EXPECT_THAT(steps_of("loss"), ElementsAre(1, 2));
}

TEST_F(EventFileTest, NamesSortInTheOrderOfStartsWithoutAClock) {
  files_.create_directory(kDirectory);
  for (const char* name : {"notes.txt", "events.out.tfevents.1700000000.host.1",
                           "events.out.tfevents.", "events.out.tfevents.00000009"})
    files_.create(std::string(kDirectory) + "/" + name);
  std::vector<std::string> paths;
  for (int i = 0; i < 3; ++i) paths.push_back(EventFile(files_, kDirectory, 1).path());
  EXPECT_THAT(paths, ElementsAre("/disk/train/events.out.tfevents.00000010",
                                 "/disk/train/events.out.tfevents.00000011",
                                 "/disk/train/events.out.tfevents.00000012"));
}

TEST_F(EventFileTest, CutAnywhereItLosesTheLastRecordAlone) {
  write(1, 3);
  const std::string path = std::string(kDirectory) + "/events.out.tfevents.00000001";
  const std::string whole = text_of(files_, path);
  const std::size_t last = 12 + records_of(whole).back().size() + 4;
  for (std::size_t cut = 1; cut <= last; ++cut) {
    files_.create(path)->append(std::as_bytes(std::span(whole).first(whole.size() - cut)));
    EXPECT_THAT(steps_of("loss"), ElementsAre(1, 2)) << cut;
  }
  write(3, 4);
  EXPECT_THAT(steps_of("loss"), ElementsAre(1, 2, 3, 4));
}

TEST_F(EventFileTest, HoldsNothingBackAndWritesEachRecordByOneCall) {
  for (int call = 0;; ++call) {
    MemoryFileSystem files("/disk");
    std::int64_t written = 0;
    files.crash_at(call);
    try {
      EventFile file(files, kDirectory, 1);
      for (std::int64_t step = 1; step <= 3; written = step++) {
        file.add("a", 1);
        file.add("b", 2);
        file.write(step);
      }
    } catch (const Crash&) {
    }
    if (!files.crashed()) break;
    MemoryFileSystem after = files.after_crash(files.unsynced(), /*all_data=*/true);
    if (!after.exists(kDirectory)) continue;
    EXPECT_THAT(shown_in(after, kDirectory).steps["b"], SizeIs(written)) << call;
  }
}

TEST_F(EventFileTest, KeepsNumbersThatAreNotFinite) {
  EventFile file(files_, kDirectory, 1);
  for (const double value : {std::nan(""), HUGE_VAL, -HUGE_VAL, 1e300}) file.add("loss", value);
  file.write(1);
  const std::vector<float> read = shown_in(files_, kDirectory).scalars["loss"];
  ASSERT_THAT(read, SizeIs(4));
  EXPECT_TRUE(std::isnan(read[0]));
  EXPECT_EQ(read[1], HUGE_VALF);
  EXPECT_EQ(read[2], -HUGE_VALF);
  EXPECT_EQ(read[3], HUGE_VALF) << "more than f32 has";
}

TEST_F(EventFileTest, WritesNoEmptyRecord) {
  EventFile file(files_, kDirectory, 1);
  const std::string before = content(file);
  file.write(1);
  EXPECT_EQ(content(file), before);
}

TEST_F(EventFileTest, AHistogramHasAllItsFields) {
  EventFile file(files_, kDirectory, 1);
  file.add("w", histogram_of(Tensor({4}, std::vector<double>{-1, 0, 1, 2})));
  file.write(1);
  const std::vector<ReadEvent> events = events_in(files_, kDirectory);
  ASSERT_THAT(events.back().values, SizeIs(1));
  const ReadValue& value = events.back().values[0];
  EXPECT_FALSE(value.scalar);
  EXPECT_EQ(number_at<double>(value.histogram.at(1)), -1);
  EXPECT_EQ(number_at<double>(value.histogram.at(2)), 2);
  EXPECT_EQ(number_at<double>(value.histogram.at(3)), 4);
  EXPECT_EQ(number_at<double>(value.histogram.at(4)), 2);
  EXPECT_EQ(number_at<double>(value.histogram.at(5)), 6);
  EXPECT_THAT(value.histogram.at(6), SizeIs(kHistogramBuckets * sizeof(double)));
  EXPECT_THAT(value.histogram.at(7), SizeIs(kHistogramBuckets * sizeof(double)));
}

}  // namespace event_file_test
}  // namespace belfry
