// Tar files of images, their members and their indexes.
#include <filesystem>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/tests/trainers/data/tar_files.h"
#include "belfry/tests/trainers/data/tf_files.h"
#include "belfry/tests/trainers/data/training_samples.h"
#include "belfry/trainers/data/byte_input.h"
#include "belfry/trainers/data/images.h"
#include "belfry/trainers/data/record_index.h"
#include "belfry/trainers/data/tar_members.h"

namespace belfry {
namespace tar_images_test {

using test::as_bytes;
using test::end_of_tar;
using test::jpeg_of;
using test::message_of;
using test::png_of;
using test::ramp;
using test::tar_header;
using test::tar_member;
using test::tar_sample;
using test::TemporaryFolder;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class TextBytes final : public ForwardBytes {
 public:
  explicit TextBytes(std::string_view text) : text_(text) {}
  std::size_t read(std::span<std::byte> out) override {
    const std::string_view part = text_.substr(0, out.size());
    std::ranges::copy(std::as_bytes(std::span(part)), out.begin());
    text_.remove_prefix(part.size());
    return part.size();
  }
  bool skip(std::uint64_t count) override {
    if (count > text_.size()) return false;
    text_.remove_prefix(count);
    return true;
  }

 private:
  std::string_view text_;
};

struct NameAndContent {
  std::string name, content;
  bool operator==(const NameAndContent&) const = default;
};

std::vector<NameAndContent> members_of(const std::string& file) {
  TextBytes bytes(file);
  TarMembers members(bytes, "x.tar");
  std::vector<NameAndContent> found;
  while (const auto member = members.next()) {
    found.push_back({member->name, members.content(1 << 20)});
    EXPECT_EQ(file.substr(member->offset + member->head, member->length), found.back().content);
  }
  return found;
}

TEST(TarMembers, HaveNamesAndContentsOfEachKindOfHeader) {
  const std::string far(150, 'f'), farther(300, 'p');
  const std::string file =
      tar_member("a", "one") + tar_member("folder/", "", '5') +
      tar_member("././@LongLink", far + '\0', 'L') + tar_member(far.substr(0, 99), "two") +
      test::pax_header("path", farther) + tar_member("short", std::string(512, 'x')) +
      tar_member("global", "11 a=bcdef\n", 'g') + tar_member("z", "") + end_of_tar();
  const std::vector<NameAndContent> found = members_of(file);
  ASSERT_EQ(found.size(), 5u);
  EXPECT_EQ(found[0], (NameAndContent{"a", "one"}));
  EXPECT_EQ(found[1], (NameAndContent{"folder/", ""}));
  EXPECT_EQ(found[2], (NameAndContent{far, "two"}));
  EXPECT_EQ(found[3], (NameAndContent{farther, std::string(512, 'x')}));
  EXPECT_EQ(found[4], (NameAndContent{"z", ""}));
  EXPECT_EQ(members_of(end_of_tar()).size(), 0u);
}

TEST(TarMembers, MayHaveMoreThanEightGibibytes) {
  for (const bool in_pax : {false, true}) {
    std::string header = tar_header("big", 0);
    if (!in_pax) {
      header.replace(124, 12, std::string("\x80\0\0\0\0\0\0\3\0\0\0\0", 12));
      header.replace(148, 8, 8, ' ');
      unsigned sum = 0;
      for (const char c : header) sum += static_cast<unsigned char>(c);
      char digits[32];
      std::snprintf(digits, sizeof digits, "%06o", sum);
      header.replace(148, 7, std::string(digits) + '\0');
    }
    const std::string file =
        (in_pax ? test::pax_header("size", cat(std::uint64_t{3} << 32)) : "") + header;
    TextBytes bytes(file);
    TarMembers members(bytes, "x.tar");
    const auto member = members.next();
    ASSERT_TRUE(member);
    EXPECT_EQ(member->length, std::uint64_t{3} << 32);
    EXPECT_THAT(message_of<IoError>([&] { members.next(); }),
                HasSubstr("x.tar: tar header at byte"));
  }
}

TEST(TarMembers, SayWhereAFileIsDamaged) {
  const std::string whole = tar_member("a", "one") + tar_member("b", std::string(600, 'b'));
  const auto message = [](const std::string& file) {
    return message_of<IoError>([&] { members_of(file); });
  };
  EXPECT_THAT(message(whole.substr(0, 1300)),
              HasSubstr("x.tar: tar header at byte 1024: expected 512 bytes, found 276"));
  EXPECT_THAT(message(whole.substr(0, 1700)),
              HasSubstr("x.tar: tar header at byte 1024: the file ends before its content"));
  EXPECT_THAT(message(whole.substr(0, 1024)),
              HasSubstr("x.tar: tar header at byte 1024: the file ends without the two blocks"));
  EXPECT_THAT(message(whole + end_of_tar() + whole + end_of_tar()),
              HasSubstr("more follows the zeros that end a tar file"));
  EXPECT_EQ(members_of(whole + end_of_tar() + std::string(9216, '\0')).size(), 2u);
  std::string other = whole;
  other[1030] = 'x';
  EXPECT_THAT(message(other), HasSubstr("byte 1024: its sum is wrong"));
  EXPECT_THAT(message(tar_member("s", "", 'S')), HasSubstr("sparse members"));
  EXPECT_THAT(message(tar_member("p", "9 path=x", 'x') + whole),
              HasSubstr("byte 0: its pax records are damaged"));
  EXPECT_THAT(message(tar_header("l", 2 << 20, 'L')), HasSubstr("at most 1048576"));
}

class TarImagesTest : public testing::Test {
 protected:
  void write(const std::string& name, const std::string& members) {
    folder_.write(name, as_bytes(members + end_of_tar()));
  }
  std::unique_ptr<Dataset> open(std::int64_t skipped = 0, std::string train_files = {}) const {
    return data::images(
        {.format = "webdataset", .side = 8, .classes = 10, .train_files = std::move(train_files)})(
        {folder_.path(), {.most = skipped}}, true);
  }
  std::string path(const std::string& name) const { return cat(folder_.path(), "/", name); }

  TemporaryFolder folder_;
};

std::vector<std::int32_t> labels_of(const Dataset& data) {
  std::vector<std::int64_t> all(static_cast<std::size_t>(data.size()));
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::int64_t>(i);
  const Tensor labels = gather_tensors(data, all)[1];
  return {labels.data<std::int32_t>().begin(), labels.data<std::int32_t>().end()};
}

TEST_F(TarImagesTest, GroupMembersByTheNamesUpToTheFirstDot) {
  const std::string image = png_of(ramp(8, 8));
  write("train-0.tar", tar_member("d/", "", '5') + tar_sample("d/a.b/1", image, "3", "png") +
                           tar_member("d/a.b/1.json", "{}") + tar_member("2.cls", " 4\n") +
                           tar_member("2.seg.png", "no image") + tar_member("2.PNG", image));
  write("train-1.tar", tar_sample("1", jpeg_of(ramp(9, 9)), "5"));
  write("train-0.tar.md5", "no shard");
  write("other.tar", tar_sample("1", jpeg_of(ramp(9, 9)), "6"));
  EXPECT_THAT(labels_of(*open()), ElementsAre(3, 4, 5));
  EXPECT_THAT(labels_of(*open(0, "o*.tar")), ElementsAre(6));
  EXPECT_EQ(open()->files().size(), 2u);
  EXPECT_EQ(open()->describe(), cat("3 images of ", path("train-0.tar"), " and 1 file more"));
}

TEST_F(TarImagesTest, NameFileAndSampleOfABadOne) {
  const std::string image = png_of(ramp(8, 8));
  const std::pair<std::string, std::string> kinds[] = {
      {tar_sample("k", "no image", "1"), "k.jpg: neither JPEG nor PNG"},
      {tar_sample("k", image, "12"), "the label 12 is no class from 0 to 9"},
      {tar_sample("k", image, "cat"), "k.cls holds no whole number"},
      {tar_member("k.png", image), "k: has no .cls"},
      {tar_sample("k", "", "1"), "k: has no .jpg, .jpeg or .png, or an empty one"},
      {tar_member("k.cls", "1"), "k: has no .jpg"}};
  for (const auto& [bad, reason] : kinds) {
    write("train.tar", tar_sample("a", image, "7") + bad + tar_sample("z", image, "8"));
    const std::size_t at = tar_sample("a", image, "7").size();
    EXPECT_THAT(
        message_of<IoError>([&] { labels_of(*open()); }),
        AllOf(HasSubstr(cat("train.tar: bad record at byte ", at, ": ")), HasSubstr(reason)));
    const auto data = open(1);
    EXPECT_THAT(labels_of(*data), ElementsAre(7, 8, 8));
    EXPECT_EQ(data->left_out(), 1);
  }
}

// Noise, so that gzip cannot pack it, of `samples` samples.
std::string large_tar(int samples) {
  std::string file;
  std::uint32_t random = 1;
  for (int i = 0; i < samples; ++i) {
    test::PlainImage noise = ramp(40, 40);
    for (auto& value : noise.pixels) {
      random = random * 1664525 + 1013904223;
      value = static_cast<std::uint8_t>(random >> 24);
    }
    file += tar_sample(cat("s", i), png_of(noise), cat(i % 10), "png");
  }
  return file + end_of_tar();
}

TEST_F(TarImagesTest, GiveTheSamePackedInOneMemberOrSeveral) {
  const std::string file = large_tar(600);  // 3.4 MB
  folder_.write("train.tar", as_bytes(file));
  std::vector<std::int64_t> some{599, 0, 17, 300, 301, 598};
  const std::vector<Tensor> plain = test::training_samples(*open(), {}, some);
  for (const bool in_two : {false, true}) {
    auto packed = test::gzip(as_bytes(file.substr(0, in_two ? 1'500'001 : file.size())));
    const auto second = test::gzip(as_bytes(file.substr(1'500'001)));
    if (in_two) packed.insert(packed.end(), second.begin(), second.end());
    folder_.write("packed.tar.gz", packed);
    std::filesystem::last_write_time(
        path("packed.tar.gz"),
        std::filesystem::file_time_type::clock::now() - std::chrono::hours(1));
    std::filesystem::remove(index_path(path("packed.tar.gz")));
    for (int run = 0; run < 2; ++run) {  // the second one finds the index
      const auto data = open(0, "packed*");
      EXPECT_EQ(data->size(), 600);
      EXPECT_EQ(test::training_samples(*data, {}, some), plain);
      EXPECT_TRUE(std::filesystem::exists(index_path(path("packed.tar.gz"))));
    }
  }
  folder_.write("cut.tar.gz", [&] {
    auto cut = test::gzip(as_bytes(file));
    cut.resize(cut.size() - 100);
    return cut;
  }());
  EXPECT_THAT(message_of<IoError>([&] { open(0, "cut*")->size(); }),
              AllOf(HasSubstr("cut.tar.gz"), HasSubstr("truncated at byte")));
}

TEST_F(TarImagesTest, AreFoundByAnIndexUntilTheyChange) {
  const std::string image = png_of(ramp(8, 8));
  std::string file;
  for (int i = 0; i < 300; ++i) file += tar_sample(cat("s", i), image, "1", "png");
  write("train.tar", file);
  const std::vector<std::int64_t> last{299};
  const auto time = std::filesystem::last_write_time(path("train.tar")) - std::chrono::hours(1);
  std::filesystem::last_write_time(path("train.tar"), time);
  EXPECT_EQ(gather_tensors(*open(), last)[1], (Tensor({1}, std::vector<std::int32_t>{1})));
  const std::string index = index_path(path("train.tar"));
  EXPECT_THAT(index, testing::EndsWith("/.train.tar.index"));
  ASSERT_TRUE(std::filesystem::exists(index));
  // The labels are in the index, so other content of the same size and time is not noticed.
  std::string changed;
  for (int i = 0; i < 300; ++i) changed += tar_sample(cat("s", i), image, "2", "png");
  write("train.tar", changed);
  std::filesystem::last_write_time(path("train.tar"), time);
  EXPECT_EQ(gather_tensors(*open(), last)[1], (Tensor({1}, std::vector<std::int32_t>{1})));
  std::filesystem::last_write_time(path("train.tar"), time + std::chrono::seconds(2));
  EXPECT_EQ(gather_tensors(*open(), last)[1], (Tensor({1}, std::vector<std::int32_t>{2})));
  // A damaged one is made anew.
  auto bytes = local_file_system().read(index);
  bytes[100] ^= std::byte{1};
  write_text_file(local_file_system(), index,
                  {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  EXPECT_EQ(gather_tensors(*open(), last)[1], (Tensor({1}, std::vector<std::int32_t>{2})));
  EXPECT_NE(local_file_system().read(index), bytes);
}

TEST_F(TarImagesTest, AreNotFoundByAnIndexOfTheSameSecond) {
  const std::string image = png_of(ramp(8, 8));
  const std::vector<std::int64_t> last{299};
  std::filesystem::file_time_type time;
  for (const std::int32_t label : {1, 2}) {
    std::string file;
    for (int i = 0; i < 300; ++i) file += tar_sample(cat("s", i), image, cat(label), "png");
    write("train.tar", file);
    if (label == 1) time = std::filesystem::last_write_time(path("train.tar"));
    std::filesystem::last_write_time(path("train.tar"), time);
    EXPECT_EQ(gather_tensors(*open(), last)[1], (Tensor({1}, std::vector<std::int32_t>{label})));
  }
}

TEST(RecordIndexes, HaveNoRecordBeyondTheFile) {
  constexpr std::uint64_t kSize = 1000, kTop = std::numeric_limits<std::uint64_t>::max();
  const auto read = [&](const IndexedRecord& record, bool packed) {
    RecordIndex index{.records = {record}};
    if (packed) index.points.places.push_back({.packed = 10});
    const auto bytes = as_bytes(index_bytes(index, IndexedKind::kTfRecords, kSize, 7));
    BytesFile file(bytes);
    return read_index(file, IndexedKind::kTfRecords, kSize, 7).records;
  };
  const IndexedRecord last{.offset = 500, .head = 100, .length = 400};
  EXPECT_THAT(read(last, false), ElementsAre(last));
  const IndexedRecord unpacked{.offset = 1031 * kSize, .length = kSize};
  EXPECT_THAT(read(unpacked, true), ElementsAre(unpacked));
  for (const IndexedRecord& forged :
       {IndexedRecord{.length = kTop - 15}, IndexedRecord{.offset = kTop},
        IndexedRecord{.offset = 500, .head = kTop - 400},
        IndexedRecord{.offset = 501, .length = 500}, unpacked})
    EXPECT_THAT(message_of<IoError>([&] { read(forged, false); }),
                HasSubstr("the index is damaged"));
}

TEST_F(TarImagesTest, OfAFewSamplesHaveNoIndex) {
  write("train.tar", tar_sample("s", png_of(ramp(8, 8)), "1", "png"));
  EXPECT_EQ(open()->size(), 1);
  EXPECT_FALSE(std::filesystem::exists(index_path(path("train.tar"))));
}

}  // namespace tar_images_test
}  // namespace belfry
