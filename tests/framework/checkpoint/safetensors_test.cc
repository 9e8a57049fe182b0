#include "belfry/framework/checkpoint/safetensors.h"

#include <algorithm>
#include <limits>

#include "belfry/framework/base/text.h"
#include "belfry/tests/framework/framework_test_support.h"
#include "belfry/tests/support/programs.h"

namespace belfry {
namespace safetensors_test {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::byte> bytes_of(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

// A file with this header, without padding, and these values.
std::vector<std::byte> file_of(std::string_view header, std::string_view values = "") {
  std::string length;
  for (int i = 0; i < 8; ++i) length += static_cast<char>(header.size() >> 8 * i & 255);
  return bytes_of(cat(length, header, values));
}

std::string refusal(std::vector<std::byte> bytes) {
  return message_of<IoError>([&] { Safetensors(std::move(bytes), "x.safetensors"); });
}

std::vector<std::string> names(const std::vector<StoredTensor>& tensors) {
  std::vector<std::string> result;
  for (const StoredTensor& tensor : tensors) result.push_back(tensor.name);
  return result;
}

TEST(Safetensors, WritesTheBytesOfItsDocumentation) {
  std::vector<StoredTensor> tensors = {
      {.name = "w", .dtype = DType::kF32, .shape = {1, 2}},
      {.name = "b", .dtype = DType::kI64, .shape = {}},
  };
  const std::string head = lay_out_safetensors(tensors, {{"k", "v"}});
  // 143 bytes of JSON and one space.
  const std::string json =
      R"({"__metadata__":{"k":"v"},"b":{"dtype":"I64","shape":[],"data_offsets":[0,8]},)"
      R"("w":{"dtype":"F32","shape":[1,2],"data_offsets":[8,16]}})";
  const std::size_t padded = (json.size() + 7) / 8 * 8;
  EXPECT_EQ(head, std::string(1, static_cast<char>(padded)) + std::string(7, '\0') + json +
                      std::string(padded - json.size(), ' '));
  EXPECT_THAT(names(tensors), ElementsAre("b", "w"));
  EXPECT_EQ(tensors[0].begin, 8 + padded);
  EXPECT_EQ(tensors[1].begin, 16 + padded);
  EXPECT_EQ(tensors[1].end, 24 + padded);
}

TEST(Safetensors, ReadsWhatTheirPythonPackageWrites) {
  // safetensors.numpy.save({"b": arange(3, dtype=uint8), "a": array([1.5], float64)})
  const std::string header = R"({"a":{"dtype":"F64","shape":[1],"data_offsets":[0,8]},)"
                             R"("b":{"dtype":"U8","shape":[3],"data_offsets":[8,11]}}     )";
  const std::string values("\0\0\0\0\0\0\xf8\x3f\0\1\2", 11);
  const Safetensors file(file_of(header, values), "x");
  ASSERT_EQ(file.tensors().size(), 2u);
  const StoredTensor& a = file.tensors().at("a");
  EXPECT_EQ(a.dtype, DType::kF64);
  EXPECT_EQ(a.shape, (Shape{1}));
  EXPECT_EQ(a.begin, 8 + header.size());
  double value = 0;
  std::memcpy(&value, file.values(a).data(), sizeof value);
  EXPECT_EQ(value, 1.5);
  EXPECT_THAT(file.values(file.tensors().at("b")),
              ElementsAre(std::byte{0}, std::byte{1}, std::byte{2}));
}

TEST(Safetensors, AlignsEveryTensorWhateverItsTypeAndReadsItBack) {
  std::vector<StoredTensor> tensors;
  for (const char* dtype : {"BOOL", "U8", "F16", "BF16", "F32", "I32", "F64", "I64"})
    for (const Shape& shape : {Shape{}, Shape{3}, Shape{0, 4}, Shape{5, 1, 2}})
      tensors.push_back({.name = cat(dtype, " \"\n", shape),
                         .dtype = dtype_of_safetensors(dtype),
                         .shape = shape});
  std::string file = lay_out_safetensors(tensors);
  EXPECT_EQ(file.size() % 8, 0u);
  file.resize(tensors.back().end);
  const Safetensors read(bytes_of(file), "x");
  ASSERT_EQ(read.tensors().size(), tensors.size());
  for (const StoredTensor& tensor : tensors) {
    const StoredTensor& same = read.tensors().at(tensor.name);
    EXPECT_EQ(same.begin, tensor.begin) << tensor.name;
    EXPECT_EQ(same.end, tensor.end);
    EXPECT_EQ(same.dtype, tensor.dtype);
    EXPECT_EQ(same.shape, tensor.shape);
    EXPECT_EQ(same.begin % size_of(same.dtype), 0u);
  }
}

TEST(Safetensors, AFileMayHoldNothing) {
  std::vector<StoredTensor> none;
  const std::string head = lay_out_safetensors(none);
  EXPECT_EQ(head, std::string("\x08\0\0\0\0\0\0\0{}      ", 16));
  EXPECT_TRUE(Safetensors(bytes_of(head), "x").tensors().empty());
}

TEST(Safetensors, TwoTensorsOfOneNameAreRefused) {
  std::vector<StoredTensor> twice = {{.name = "w"}, {.name = "w"}};
  EXPECT_THAT(message_of<InvalidArgument>([&] { lay_out_safetensors(twice); }), HasSubstr("'w'"));
  std::vector<StoredTensor> reserved = {{.name = "__metadata__"}};
  EXPECT_THROW(lay_out_safetensors(reserved), InvalidArgument);
}

TEST(Safetensors, RefusesToLayOutAHeaderThatNobodyReads) {
  std::vector<StoredTensor> tensors = {{.name = std::string(4 << 20, 'w')}};
  EXPECT_THAT(message_of<InvalidArgument>([&] { lay_out_safetensors(tensors); }),
              HasSubstr("more than the 4194304 that one may have; use fewer variables"));
}

TEST(Safetensors, RefusesAWrongLengthOfTheHeader) {
  EXPECT_THAT(refusal({}), AllOf(HasSubstr("x.safetensors"), HasSubstr("ends at byte 0")));
  EXPECT_THAT(refusal(bytes_of("1234567")), HasSubstr("ends at byte 7"));
  EXPECT_THAT(refusal(bytes_of(std::string("\x09\0\0\0\0\0\0\0{}      ", 16))),
              HasSubstr("truncated at byte 16: byte 0 announces a header of 9 bytes"));
  EXPECT_THAT(refusal(bytes_of(std::string(8, '\xff') + "{}")),
              HasSubstr("18446744073709551615 bytes, more than the 4194304 that one may have"));
  EXPECT_THAT(refusal(file_of("")), HasSubstr("expected '{' at byte 8"));
  EXPECT_THAT(refusal(file_of(" {}")), HasSubstr("expected '{' at byte 8"));
}

TEST(Safetensors, RefusesWhatIsNoHeader) {
  EXPECT_THAT(refusal(file_of("{\"a\":")),
              HasSubstr("damaged header, from byte 8: line 1, column 6: "));
  EXPECT_THAT(refusal(file_of("{\"a\":3}")), HasSubstr("'a' in the header"));
  EXPECT_THAT(refusal(file_of(R"({"__metadata__":{"a":3}})")), HasSubstr("'__metadata__'"));
  EXPECT_THAT(refusal(file_of(R"({"a":{},"a":{}})")), HasSubstr("two members 'a'"));
}

std::string entry(std::string_view dtype, std::string_view shape, std::string_view offsets) {
  return cat("{\"w\":{\"dtype\":\"", dtype, "\",\"shape\":", shape, ",\"data_offsets\":", offsets,
             "}}");
}

TEST(Safetensors, NamesTheTensorThatIsWrong) {
  const auto wrong = [](const std::string& header) { return refusal(file_of(header, "12345678")); };
  EXPECT_THAT(wrong(entry("F8", "[8]", "[0,8]")), AllOf(HasSubstr("'w'"), HasSubstr("dtype 'F8'")));
  EXPECT_THAT(wrong(entry("U8", "[-8]", "[0,8]")), AllOf(HasSubstr("'w'"), HasSubstr("-8")));
  EXPECT_THAT(wrong(entry("U8", "[8.0]", "[0,8]")), HasSubstr("whole number"));
  EXPECT_THAT(wrong(entry("U8", "8", "[0,8]")), HasSubstr("an array"));
  EXPECT_THAT(wrong(entry("U8", "[8]", "[0]")), HasSubstr("1 numbers instead of 2"));
  EXPECT_THAT(wrong(entry("U8", "[8]", "[8,0]")), HasSubstr("data_offsets 8 and 0"));
  EXPECT_THAT(wrong(entry("U8", "[8]", "[0,18446744073709551615]")), HasSubstr("data_offsets"));
  EXPECT_THAT(wrong(entry("F32", "[3]", "[0,8]")), HasSubstr("F32[3] takes 12 bytes"));
  EXPECT_THAT(wrong(entry("U8", "[4294967296,4294967296]", "[0,0]")), HasSubstr("too many"));
  EXPECT_THAT(wrong(R"({"w":{"dtype":"U8","shape":[8]}})"), HasSubstr("'data_offsets'"));
  const std::string many = cat("[", join(std::vector<int>(65, 1), ","), "]");
  EXPECT_THAT(wrong(entry("U8", many, "[0,8]")), HasSubstr("65 dimensions"));
}

TEST(Safetensors, NamesTensorAndByteWhereTheFileEndsEarly) {
  const std::string header = entry("F32", "[2]", "[0,8]");
  EXPECT_EQ(refusal(file_of(header, "1234567")),
            cat("x.safetensors: tensor 'w' at byte ", 8 + header.size(),
                ": truncated: expected its values up to byte ", 16 + header.size(),
                ", but the file ends at byte ", 15 + header.size()));
}

TEST(Safetensors, RefusesHolesOverlapsAndBytesBehind) {
  const auto two = [](std::string_view a, std::string_view b) {
    return refusal(file_of(cat(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":)", a,
                               R"(},"b":{"dtype":"U8","shape":[4],"data_offsets":)", b, "}}"),
                           "123456789"));
  };
  EXPECT_THAT(two("[0,4]", "[5,9]"), AllOf(HasSubstr("'b'"), HasSubstr("expected byte")));
  EXPECT_THAT(two("[0,4]", "[3,7]"), AllOf(HasSubstr("'b'"), HasSubstr("expected byte")));
  EXPECT_THAT(two("[0,4]", "[0,4]"), HasSubstr("'b'"));
  EXPECT_THAT(two("[1,5]", "[5,9]"), HasSubstr("'a'"));
  EXPECT_THAT(two("[4,8]", "[0,4]"), HasSubstr("1 bytes from byte"));
}

TEST(Safetensors, AFileIsReadWholeOrRefused) {
  const std::string path = temporary_path(".safetensors");
  const std::vector<std::byte> bytes = file_of(entry("U8", "[3]", "[0,3]"), "abc");
  const auto file = local_file_system().create(path);
  file->append(bytes);
  file->close();
  const Safetensors read(read_large_file(local_file_system(), path, bytes.size()), path);
  EXPECT_TRUE(std::ranges::equal(read.bytes(), bytes));
  EXPECT_THAT(
      message_of<IoError>([&] { read_large_file(local_file_system(), path, bytes.size() - 1); }),
      HasSubstr(cat(path, ": has ", bytes.size(), " bytes, more than the ")));
  local_file_system().remove(path);
  EXPECT_THROW(read_large_file(local_file_system(), path, bytes.size()), NotFoundError);
}

TEST(Safetensors, ABoolIsZeroOrOne) {
  const std::string header = entry("BOOL", "[3]", "[0,3]");
  EXPECT_THAT(refusal(file_of(header, std::string("\0\1\2", 3))),
              HasSubstr(cat("tensor 'w': byte ", 10 + header.size())));
}

TEST(Safetensors, LongOrUnprintableNamesAreShortenedInMessages) {
  const std::string header = cat("{\"", std::string(100'000, 'x'), "\\n\":{}}");
  EXPECT_LT(refusal(file_of(header)).size(), 300u);
  EXPECT_THAT(refusal(file_of("{\"a\\nb\":{}}")), HasSubstr("'a?b'"));
}

}  // namespace safetensors_test
}  // namespace belfry
