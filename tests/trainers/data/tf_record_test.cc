#include "belfry/trainers/data/tf_record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/tests/trainers/data/tf_files.h"
#include "belfry/trainers/data/byte_input.h"
#include "belfry/trainers/data/tf_example.h"

namespace belfry {
namespace tf_record_test {

using test::as_bytes;
using test::message_of;
using test::tf_record;
using ::testing::AllOf;
using ::testing::HasSubstr;

std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

TEST(TfRecords, AreFoundByTheirLengthsAndReadWithTheirCrc) {
  const test::Bytes bytes = as_bytes(tf_record("first") + tf_record("") + tf_record("third"));
  BytesFile file(bytes);
  BadRecords none;
  const auto places = find_tf_records(file, "f", none);
  ASSERT_EQ(places.size(), 3u);
  EXPECT_EQ(places[1].offset, 21u);
  EXPECT_EQ(text_of(read_tf_record(file, "f", places[2])), "third");
  EXPECT_EQ(text_of(read_tf_record(file, "f", places[1])), "");
  EXPECT_EQ(text_of(read_tf_record(file, "f", places[0])), "first");
}

TEST(TfRecords, NameTheRecordWhoseDataAreCorrupt) {
  test::Bytes bytes = as_bytes(tf_record("first") + tf_record("second"));
  bytes[21 + 12] ^= std::byte{1};
  BytesFile file(bytes);
  BadRecords none;
  const auto places = find_tf_records(file, "f", none);
  EXPECT_EQ(text_of(read_tf_record(file, "f", places[0])), "first");
  EXPECT_THAT(message_of<BadRecord>([&] { read_tf_record(file, "f", places[1]); }),
              HasSubstr("f: bad record at byte 21: expected the CRC 0x"));
}

// A sparse file: some bytes, then zeros, then more bytes at the end.
class SparseFile final : public ReadableFile {
 public:
  SparseFile(test::Bytes begin, std::uint64_t size, test::Bytes end)
      : begin_(std::move(begin)), end_(std::move(end)), size_(size) {}
  std::uint64_t size() const override { return size_; }
  void seek(std::uint64_t offset) override { at_ = offset; }
  std::size_t read(std::span<std::byte> out) override {
    const auto count =
        static_cast<std::size_t>(std::min<std::uint64_t>(out.size(), size_ - std::min(size_, at_)));
    for (std::size_t i = 0; i < count; ++i, ++at_) {
      const std::uint64_t to_end = size_ - at_;
      out[i] = at_ < begin_.size()     ? begin_[at_]
               : to_end <= end_.size() ? end_[end_.size() - to_end]
                                       : std::byte{};
    }
    return count;
  }

 private:
  const test::Bytes begin_, end_;
  const std::uint64_t size_;
  std::uint64_t at_ = 0;
};

// The CRC of its length is right, so the next record is known.
TEST(TfRecords, OfFarTooManyBytesAreBad) {
  const std::uint64_t length = std::uint64_t{1} << 40;
  const std::string first = tf_record("first"), last = tf_record("last"),
                    size(reinterpret_cast<const char*>(&length), sizeof length),
                    head = size + test::masked_crc_bytes(size);
  SparseFile file(as_bytes(first + head), first.size() + head.size() + length + 4 + last.size(),
                  as_bytes(last));
  BadRecords none, one({.most = 1});
  EXPECT_THAT(message_of<IoError>([&] { find_tf_records(file, "f", none); }),
              AllOf(HasSubstr("f: bad record at byte 21: its data take 1099511627776 bytes"),
                    HasSubstr("the option bad_records")));
  const auto places = find_tf_records(file, "f", one);
  ASSERT_EQ(places.size(), 2u);
  EXPECT_EQ(text_of(read_tf_record(file, "f", places[1])), "last");
  EXPECT_EQ(one.count(), 1);
}

TEST(TfRecords, EndAtALengthThatCannotBe) {
  const std::string whole = tf_record("first");
  const std::pair<std::string, std::string> wrong[] = {
      {whole.substr(0, 20), "its 5 bytes and their CRC exceed the 8 that the file has left"},
      {whole.substr(0, 7), "expected 12 bytes of length and CRC, found 7"},
      {std::string(8, '\1') + whole.substr(8), "expected the CRC 0x"}};
  for (const auto& [rest, reason] : wrong) {
    const test::Bytes bytes = as_bytes(whole + rest);
    BytesFile file(bytes);
    BadRecords one({.most = 1});
    EXPECT_THAT(message_of<IoError>([&] { find_tf_records(file, "f", one); }),
                AllOf(HasSubstr("f: record at byte 21: " + reason),
                      HasSubstr("no later record of the file can be found")));
  }
}

TEST(TfExample, GivesTheFirstValueOfAFeature) {
  const test::Bytes message = as_bytes(test::image_example("pixels", -3));
  const TfExample example(message);
  EXPECT_EQ(text_of(*example.bytes("image/encoded")), "pixels");
  EXPECT_EQ(example.integer("image/class/label"), -3);
  EXPECT_EQ(example.integer("image/height"), 3);
  EXPECT_FALSE(example.bytes("image/format").has_value());
  EXPECT_THAT(message_of<InvalidArgument>([&] { example.bytes("image/height"); }),
              HasSubstr("the feature image/height is no list of bytes"));
  EXPECT_THAT(message_of<InvalidArgument>([&] { example.integer("image/encoded"); }),
              HasSubstr("the feature image/encoded is no list of integers"));
}

TEST(TfExample, TakesIntegersThatAreNotPacked) {
  using test::message_field;
  const std::string list = message_field(3, "\x08\x07\x08\x09");
  const test::Bytes message =
      as_bytes(test::example(message_field(1, message_field(1, "label") + message_field(2, list))));
  EXPECT_EQ(TfExample(message).integer("label"), 7);
}

TEST(TfExample, RefusesWhatIsNoMessage) {
  const std::string whole = test::image_example("pixels", 3);
  const test::Bytes cut = as_bytes(whole.substr(0, whole.size() - 4));
  EXPECT_THAT(message_of<InvalidArgument>([&] { TfExample(cut).integer("x"); }),
              HasSubstr("no message of protobuf: a field of"));
  const test::Bytes wild = as_bytes("\x0b" + whole);
  EXPECT_THAT(message_of<InvalidArgument>([&] { TfExample(wild).integer("x"); }),
              HasSubstr("a field of type 3"));
  const test::Bytes endless = as_bytes(std::string(12, '\xFF'));
  EXPECT_THAT(message_of<InvalidArgument>([&] { TfExample(endless).integer("x"); }),
              HasSubstr("a number of more than 64 bits"));
}

}  // namespace tf_record_test
}  // namespace belfry
