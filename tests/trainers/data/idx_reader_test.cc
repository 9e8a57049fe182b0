#include "belfry/trainers/data/idx_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/framework/base/text.h"
#include "belfry/tests/trainers/data/idx_files.h"
#include "belfry/trainers/util/counter_random.h"

namespace belfry {
namespace idx_reader_test {

using test::Bytes;
using test::gzip;
using test::idx_bytes;
using test::message_of;
using ::testing::AllOf;
using ::testing::HasSubstr;

std::string io_error(const Bytes& bytes, std::size_t rank = 3) {
  return message_of<IoError>([&] { parse_idx(bytes, "some.file", rank); });
}

Tensor read_idx_file(const std::string& path, std::size_t rank) {
  const std::string found = find_idx_file(local_file_system(), path);
  return parse_idx(*local_file_system().open(found), found, rank);
}

TEST(IdxReader, ReadsShapeAndValuesOfAPlainFile) {
  const Tensor images = parse_idx(idx_bytes({2, 3, 4}), "x", 3);
  EXPECT_EQ(images.shape(), (Shape{2, 3, 4}));
  EXPECT_EQ(images.dtype(), DType::kU8);
  for (std::size_t i = 0; i < 24; ++i) EXPECT_EQ(images.data<std::uint8_t>()[i], i);
}

TEST(IdxReader, ReadsTheSameFromAGzippedFile) {
  const Bytes plain = idx_bytes({7, 28, 28});
  EXPECT_EQ(parse_idx(gzip(plain), "x", 3), parse_idx(plain, "x", 3));
}

TEST(IdxReader, ReadsAFileWithoutSamples) {
  EXPECT_EQ(parse_idx(idx_bytes({0, 28, 28}), "x", 3).elements(), 0);
  EXPECT_EQ(parse_idx(gzip(idx_bytes({0})), "x", 1).elements(), 0);
}

TEST(IdxReader, NamesFileOffsetAndBothNumbersOfAWrongMagic) {
  const auto message = io_error(idx_bytes({5}));
  EXPECT_EQ(message,
            "some.file: wrong magic number at byte 0: expected 0x00000803 (IDX, unsigned bytes, "
            "rank 3), found 0x00000801");
  EXPECT_THAT(io_error(gzip(idx_bytes({5}))),
              HasSubstr("wrong magic number at byte 0 of the unpacked data"));
}

TEST(IdxReader, RefusesAnEmptyFile) {
  EXPECT_EQ(io_error({}),
            "some.file: truncated at byte 0: expected the magic number in bytes 0 to 3, found the "
            "end");
}

TEST(IdxReader, NamesTheOffsetWhereAHeaderIsTruncated) {
  Bytes bytes = idx_bytes({2, 3, 4});
  bytes.resize(10);
  EXPECT_EQ(io_error(bytes),
            "some.file: truncated at byte 10: expected dimension 1 in bytes 8 to 11, found the "
            "end");
}

TEST(IdxReader, RefusesTruncatedValues) {
  Bytes bytes = idx_bytes({2, 3, 4});
  bytes.pop_back();
  EXPECT_EQ(io_error(bytes),
            "some.file: truncated at byte 39: expected values of shape [2,3,4] from byte 16, found "
            "room for 23");
  EXPECT_THAT(io_error(gzip(bytes)),
              AllOf(HasSubstr("truncated at byte 39 of the unpacked data"),
                    HasSubstr("values of shape [2,3,4]"), HasSubstr("found room for 23")));
}

TEST(IdxReader, RefusesTrailingBytes) {
  Bytes bytes = idx_bytes({2, 3, 4});
  bytes.push_back(std::byte{0});
  EXPECT_THAT(io_error(bytes), HasSubstr("some.file: trailing bytes from byte 40"));
  EXPECT_THAT(io_error(gzip(bytes)), HasSubstr("trailing bytes from byte 40 of the unpacked data"));
  Bytes packed = gzip(idx_bytes({2, 3, 4}));
  const std::size_t end = packed.size();
  packed.resize(end + 5);
  EXPECT_THAT(io_error(packed), HasSubstr(cat("trailing bytes from byte ", end,
                                              ": expected the end of the file, or more gzip "
                                              "data, found 5 more")));
}

// Such files come from `cat a.gz b.gz`.
TEST(IdxReader, ReadsGzipFilesOfSeveralMembers) {
  const Bytes plain = idx_bytes({20, 28, 28});
  for (const std::size_t cut : {std::size_t{1}, std::size_t{9}, plain.size() / 2, plain.size()}) {
    const auto at = plain.begin() + static_cast<std::ptrdiff_t>(cut);
    Bytes packed = gzip({plain.begin(), at});
    for (const Bytes& member : {gzip({}), gzip({at, plain.end()})})
      packed.insert(packed.end(), member.begin(), member.end());
    EXPECT_EQ(parse_idx(packed, "x", 3), parse_idx(plain, "x", 3)) << cut;
    packed.push_back(std::byte{0x1F});
    EXPECT_THAT(io_error(packed),
                HasSubstr(cat("some.file: trailing bytes from byte ", packed.size() - 1)));
    packed.push_back(std::byte{0x8B});
    EXPECT_THAT(io_error(packed), HasSubstr("some.file: truncated at byte"));
  }
}

TEST(IdxReader, UnpacksNoMoreThanTheHeaderDeclares) {
  Bytes bytes = idx_bytes({2, 3, 4});
  bytes.resize(std::size_t{100} << 20);
  EXPECT_THAT(io_error(gzip(bytes)), HasSubstr("trailing bytes from byte 40 of the unpacked data"));
}

// The file is sparse, so it needs no disk space.
TEST(IdxReader, ReadsNoMoreOfAFileThanTheHeaderDeclares) {
  const test::TemporaryFolder folder;
  const auto refusal = [&](const Bytes& start) {
    const std::string path = folder.write("a-idx3-ubyte", start);
    std::filesystem::resize_file(path, std::uintmax_t{1} << 40);
    return test::message_of<IoError>([&] { read_idx_file(path, 3); });
  };
  EXPECT_THAT(refusal(idx_bytes({2, 3, 4})),
              HasSubstr("a-idx3-ubyte: trailing bytes from byte 40"));
  EXPECT_THAT(refusal({}), HasSubstr("a-idx3-ubyte: wrong magic number"));
  Bytes large = idx_bytes({1, 1, 1});
  for (const std::size_t i : {4, 8}) large[i] = std::byte{1};  // 2^24 + 1 by as many
  EXPECT_THAT(refusal(large), HasSubstr("a-idx3-ubyte: truncated at byte 1099511627776"));
  large[8] = std::byte{0};
  large[10] = std::byte{0xFF};  // by 65281
  EXPECT_THAT(refusal(large), HasSubstr("need more memory than is left"));
}

TEST(IdxReader, NamesWhatIsNoFile) {
  const test::TemporaryFolder folder;
  const std::string path = folder.path() + "/a-idx3-ubyte";
  std::filesystem::create_symlink("/dev/zero", path);
  EXPECT_EQ(test::message_of<IoError>([&] { read_idx_file(path, 3); }),
            path + ": is a device, not a file to read");
}

TEST(IdxReader, RefusesGzipDataThatEndsEarly) {
  Bytes packed = gzip(idx_bytes({20, 28, 28}));
  for (const std::size_t size : {packed.size() - 1, packed.size() / 2, std::size_t{2}}) {
    packed.resize(size);
    EXPECT_THAT(io_error(packed), HasSubstr(cat("some.file: truncated at byte ", size)));
  }
}

TEST(IdxReader, RefusesGzipDataThatIsCorrupt) {
  const Bytes packed = gzip(idx_bytes({20, 28, 28}));
  Bytes header = packed, checksum = packed;
  header[2] = std::byte{99};
  EXPECT_THAT(io_error(header), HasSubstr("some.file: corrupt at byte"));
  checksum[packed.size() - 8] ^= std::byte{1};
  EXPECT_THAT(io_error(checksum), AllOf(HasSubstr("corrupt"), HasSubstr("incorrect data check")));
}

TEST(IdxReader, RefusesDeclaredSizesThatTheFileCannotHoldBeforeAllocating) {
  std::size_t largest = 0;
  set_allocation_hook(
      [&](const std::string&, std::size_t bytes) { largest = std::max(largest, bytes); });
  Bytes bytes = idx_bytes({1, 1, 1});
  for (std::size_t i = 4; i < 16; ++i) bytes[i] = std::byte{0xFF};  // (2^32 - 1)^3 values
  const std::string plain = io_error(bytes), packed = io_error(gzip(bytes));
  set_allocation_hook({});
  EXPECT_THAT(plain, AllOf(HasSubstr("truncated at byte 17:"),
                           HasSubstr("[4294967295,4294967295,4294967295]")));
  EXPECT_THAT(packed, HasSubstr("truncated"));
  EXPECT_LT(largest, 64u << 10);
}

TEST(IdxReader, RefusesAGzipFileThatDeclaresMoreThanDeflateCanPack) {
  Bytes bytes = idx_bytes({1});
  bytes[4] = bytes[5] = std::byte{0};
  bytes[6] = bytes[7] = std::byte{0xFF};  // 65535 values, from about 30 bytes of gzip
  EXPECT_THAT(io_error(gzip(bytes), 1), HasSubstr("deflate packs at most 1032 to 1"));
}

TEST(IdxReader, FindsAFileByEitherSpellingGzippedOrNot) {
  const Bytes plain = idx_bytes({3, 2, 2}), packed = gzip(plain);
  for (const char* name : {"a-idx3-ubyte", "a-idx3-ubyte.gz", "a.idx3-ubyte", "a.idx3-ubyte.gz"}) {
    // The content of the file decides, not its name.
    for (const Bytes& content : {plain, packed}) {
      const test::TemporaryFolder folder;
      folder.write(name, content);
      for (const char* asked : {"a-idx3-ubyte", "a-idx3-ubyte.gz", "a.idx3-ubyte"})
        EXPECT_EQ(read_idx_file(folder.path() + "/" + asked, 3), parse_idx(plain, "x", 3))
            << name << " asked as " << asked;
    }
  }
}

TEST(IdxReader, TakesTheNameThatWasAskedForWhenThereAreSeveral) {
  const test::TemporaryFolder folder;
  folder.write("a-idx1-ubyte", idx_bytes({3}));
  folder.write("a-idx1-ubyte.gz", gzip(idx_bytes({4})));
  const auto rows = [&](const char* name) {
    return read_idx_file(folder.path() + "/" + name, 1).elements();
  };
  EXPECT_EQ(rows("a-idx1-ubyte"), 3);
  EXPECT_EQ(rows("a-idx1-ubyte.gz"), 4);
}

TEST(IdxReader, ListsTheNamesTriedForAMissingFile) {
  const auto message =
      message_of<NotFoundError>([] { read_idx_file("/nowhere/a-idx3-ubyte.gz", 3); });
  EXPECT_EQ(message,
            "no such file: /nowhere/a-idx3-ubyte.gz or /nowhere/a-idx3-ubyte or "
            "/nowhere/a.idx3-ubyte or /nowhere/a.idx3-ubyte.gz");
}

// Flips, overwrites, cuts and extends files. The parser must return or throw an Error, and may not
// ask for more memory than the file can hold.
TEST(IdxReader, SurvivesThousandsOfMutatedFiles) {
  const Bytes seeds[] = {idx_bytes({3, 5, 4}), gzip(idx_bytes({3, 5, 4})), idx_bytes({40}),
                         gzip(idx_bytes({40}))};
  std::size_t largest = 0;
  set_allocation_hook(
      [&](const std::string&, std::size_t bytes) { largest = std::max(largest, bytes); });
  CounterRandom random(2024);
  int read = 0, refused = 0;
  for (int i = 0; i < 8000; ++i) {
    Bytes bytes = seeds[i % 4];
    for (std::uint64_t edits = 1 + random.below(3); edits > 0 && !bytes.empty(); --edits) {
      const auto at = static_cast<std::size_t>(random.below(bytes.size()));
      switch (random.below(4)) {
        case 0: bytes[at] ^= static_cast<std::byte>(1u << random.below(8)); break;
        case 1: bytes[at] = static_cast<std::byte>(random.below(256)); break;
        case 2: bytes.resize(at); break;
        default: bytes.insert(bytes.end(), at, bytes[at]);
      }
    }
    largest = 0;
    try {
      parse_idx(bytes, "mutated", i % 4 < 2 ? 3 : 1);
      ++read;
    } catch (const Error&) {
      ++refused;
    }
    ASSERT_LE(largest, std::max<std::size_t>(64, bytes.size() * 1032)) << "mutation " << i;
  }
  set_allocation_hook({});
  EXPECT_GT(read, 100);
  EXPECT_GT(refused, 1000);
}

}  // namespace idx_reader_test
}  // namespace belfry
