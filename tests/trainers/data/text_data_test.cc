#include "belfry/trainers/data/text_data.h"

#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/tests/trainers/data/idx_files.h"
#include "belfry/tests/trainers/data/training_samples.h"
#include "belfry/tests/trainers/data/unread_folder.h"
#include "belfry/trainers/data/tokenizer_file.h"
#include "belfry/trainers/util/option_error.h"

namespace belfry {
namespace text_data_test {

using test::Bytes;
using test::message_of;
using test::TemporaryFolder;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;

Bytes bytes_of(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

std::vector<std::int32_t> read(const TokenStream& tokens, std::int64_t begin, std::size_t count) {
  std::vector<std::int32_t> out(count);
  tokens.read(begin, out);
  return out;
}

std::vector<std::int32_t> values(const Tensor& tensor) {
  const auto data = tensor.data<std::int32_t>();
  return {data.begin(), data.end()};
}

TEST(FirstCharacter, TakesUtf8AndNothingElse) {
  EXPECT_EQ(first_character("ab").code, 'a');
  EXPECT_EQ(first_character("é!").code, 0xE9u);
  EXPECT_EQ(first_character("é!").bytes, 2u);
  EXPECT_EQ(first_character("日").code, 0x65E5u);
  EXPECT_EQ(first_character("😀").code, 0x1F600u);
  // A continuing byte, a character cut off, overlong forms, a surrogate, and a code beyond Unicode.
  for (const char* const text : {"\x80", "\xC3", "\xC0\xAF", "\xE0\x80\x80", "\xED\xA0\x80",
                                 "\xF4\x90\x80\x80", "\xFF", "\xC3("})
    EXPECT_EQ(first_character(text).bytes, 0u) << text;
}

TEST(CharacterTokens, AreNumberedByTheirCodePoints) {
  const TemporaryFolder folder;
  const std::string path = folder.write("input.txt", bytes_of("béba 日a"));
  BadRecords bad;
  const auto tokens = character_tokens(local_file_system(), path, bad);
  EXPECT_EQ(tokens->size(), 7);
  EXPECT_THAT(read(*tokens, 0, 7), ElementsAre(2, 3, 2, 1, 0, 4, 1));
  EXPECT_THAT(read(*tokens, 3, 3), ElementsAre(1, 0, 4));
  EXPECT_EQ(tokens->vocabulary()->decode(read(*tokens, 1, 6)), "éba 日a");
  EXPECT_THAT(tokens->vocabulary()->encode("日b"), ElementsAre(4, 2));
  EXPECT_THAT(message_of<InvalidArgument>([&] { tokens->vocabulary()->encode("bü"); }),
              HasSubstr("the character 'ü' is none of the 5 of the text"));
  EXPECT_EQ(tokens->describe(), "7 characters, 5 different ones, of " + path);
}

// The file is longer than a block of the reader. Characters of one and three bytes cross all
// borders.
TEST(CharacterTokens, AreReadFromAnywhereInALongFile) {
  std::string text;
  for (int i = 0; i < 40000; ++i)
    text += i % 7 == 0 ? "日" : std::string(1, static_cast<char>('a' + i % 5));
  const TemporaryFolder folder;
  BadRecords bad;
  const auto tokens =
      character_tokens(local_file_system(), folder.write("input.txt", bytes_of(text)), bad);
  ASSERT_EQ(tokens->size(), 40000);
  for (const std::int64_t begin : {0, 1, 4095, 4096, 4097, 20000, 39990}) {
    const std::vector<std::int32_t> window = read(*tokens, begin, 10);
    for (std::int64_t i = 0; i < 10; ++i)
      EXPECT_EQ(window[static_cast<std::size_t>(i)],
                (begin + i) % 7 == 0 ? 5 : static_cast<int>((begin + i) % 5))
          << begin + i;
  }
}

TEST(CharacterTokens, NameBytesThatAreNoUtf8OrLeaveThemOut) {
  const TemporaryFolder folder;
  const std::string path = folder.write("input.txt", bytes_of("ab\xFF"
                                                              "c\x80"));
  BadRecords none, two({.most = 2});
  EXPECT_THAT(message_of<IoError>([&] { character_tokens(local_file_system(), path, none); }),
              HasSubstr(path + ": bad record at byte 2: the byte 0xff is no UTF-8"));
  const auto tokens = character_tokens(local_file_system(), path, two);
  EXPECT_THAT(read(*tokens, 0, 3), ElementsAre(0, 1, 2));
  EXPECT_EQ(two.count(), 2);
}

TEST(ByteTokens, AreTheBytesOfAFile) {
  const TemporaryFolder folder;
  const auto tokens =
      byte_tokens(local_file_system(), folder.write("input.txt", bytes_of("a\xFFz")));
  EXPECT_THAT(read(*tokens, 0, 3), ElementsAre('a', 255, 'z'));
  EXPECT_EQ(tokens->vocabulary()->decode(read(*tokens, 1, 2)), "\xFFz");
}

Bytes llmc_file(const std::vector<std::uint16_t>& tokens, std::int32_t magic = 20240520,
                std::int32_t version = 1, int more = 0) {
  std::vector<std::int32_t> header(256);
  header[0] = magic;
  header[1] = version;
  header[2] = static_cast<std::int32_t>(tokens.size()) + more;
  const auto first = std::as_bytes(std::span(header)), second = std::as_bytes(std::span(tokens));
  Bytes bytes(first.begin(), first.end());
  bytes.insert(bytes.end(), second.begin(), second.end());
  return bytes;
}

TEST(LlmcTokens, OfSeveralFilesFollowEachOther) {
  const TemporaryFolder folder;
  const std::vector<std::string> paths{folder.write("a_train_0.bin", llmc_file({1, 2, 3})),
                                       folder.write("a_train_1.bin", llmc_file({})),
                                       folder.write("a_train_2.bin", llmc_file({40000, 5}))};
  const auto tokens = llmc_tokens(local_file_system(), paths, 50257);
  EXPECT_EQ(tokens->size(), 5);
  EXPECT_THAT(read(*tokens, 0, 5), ElementsAre(1, 2, 3, 40000, 5));
  EXPECT_THAT(read(*tokens, 2, 2), ElementsAre(3, 40000));
  EXPECT_EQ(tokens->vocabulary(), nullptr);
  const auto fewer = llmc_tokens(local_file_system(), paths, 100);
  EXPECT_THAT(message_of<BadRecord>([&] { read(*fewer, 2, 3); }),
              HasSubstr(paths[2] + ": bad record at byte 1024: expected a token below 100, found "
                                   "40000"));
}

TEST(LlmcTokens, NameWhatIsWrongWithAHeader) {
  const TemporaryFolder folder;
  const auto message = [&](const Bytes& bytes) {
    const std::string path = folder.write("x.bin", bytes);
    return message_of<IoError>([&] { llmc_tokens(local_file_system(), {path}, 50257); });
  };
  EXPECT_THAT(message(llmc_file({1}, 20240801)), HasSubstr("byte 0: expected 20240520"));
  EXPECT_THAT(message(llmc_file({1}, 20240520, 7)), HasSubstr("byte 4: expected version 1"));
  EXPECT_THAT(message(llmc_file({1, 2}, 20240520, 1, -5)),
              HasSubstr("byte 8: expected a number of tokens, found -3"));
  EXPECT_THAT(message(Bytes(10)), HasSubstr("truncated at byte 10"));
  for (const Bytes& wrong : {llmc_file({1}, 20240801), llmc_file({1}, 20240520, 7), Bytes()})
    EXPECT_THAT(message(wrong),
                EndsWith("; make the file anew by the scripts of llm.c (dev/data), "
                         "for GPT-2, or name another folder (the option data_dir)"));
}

TEST(LlmcTokens, OfAFileThatHasNotItsSizeAreRefused) {
  const TemporaryFolder folder;
  Bytes odd = llmc_file({1, 2, 3});
  odd.pop_back();
  const std::string paths[] = {folder.write("short.bin", llmc_file({1, 2}, 20240520, 1, 5)),
                               folder.write("odd.bin", odd),
                               folder.write("long.bin", llmc_file({1, 2, 3}, 20240520, 1, -1))};
  for (const std::string& path : paths)
    EXPECT_THAT(
        message_of<IoError>([&] { llmc_tokens(local_file_system(), {path}, 50257); }),
        AllOf(HasSubstr(path + ": expected the "),
              HasSubstr(" tokens that the header says, found "), HasSubstr("make the file anew")));
}

TEST(Text, TrainsOnNineTenthsAndTestsOnWindowsWithoutOverlap) {
  const TemporaryFolder folder;
  std::string text;
  for (int i = 0; i < 205; ++i) text += static_cast<char>(i < 184 ? 'a' + i % 26 : 'A' + i % 26);
  folder.write("input.txt", bytes_of(text));
  const auto source =
      data::text({.tokens = "bytes", .length = 5, .per_epoch = 40, .vocabulary = 256});
  const auto train = source({folder.path()}, true), held = source({folder.path()}, false);
  EXPECT_EQ(train->size(), 40);
  EXPECT_EQ(held->size(), 4);  // from 21 bytes
  const std::vector<std::int64_t> rows{0, 3};
  const std::vector<Tensor> windows = gather_tensors(*held, rows);
  const auto at = [&](int i) {
    return static_cast<std::int32_t>(text[static_cast<std::size_t>(i)]);
  };
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(values(windows[0])[static_cast<std::size_t>(i)], at(184 + i));
    EXPECT_EQ(values(windows[1])[static_cast<std::size_t>(i)], at(185 + i));
    EXPECT_EQ(values(windows[0])[static_cast<std::size_t>(5 + i)], at(199 + i));
  }
  std::vector<std::int64_t> all(40);
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::int64_t>(i);
  std::set<std::vector<std::int32_t>> seen;
  for (std::int64_t epoch = 0; epoch < 20; ++epoch) {
    const auto batch = test::training_samples(*train, {1, epoch}, all);
    const auto tokens = values(batch[0]), labels = values(batch[1]);
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      ASSERT_GE(tokens[i], 'a') << "of the part for tests";
      ASSERT_GE(labels[i], 'a') << "of the part for tests";
      ASSERT_EQ(labels[i], tokens[i] == 'z' ? 'a' : tokens[i] + 1);
      if (i % 5 == 0) seen.insert({tokens[i]});
    }
  }
  EXPECT_EQ(seen.size(), 26u);
}

// Training and tests take parts of one file.
TEST(Text, CountsABadByteOnce) {
  const TemporaryFolder folder;
  folder.write("input.txt", bytes_of("abcdefgh\xFFij\xFEklmnopqrst"));
  const auto source = data::text({.length = 1, .vocabulary = 65});
  const RunDirs dirs{folder.path(), {.most = 2}};
  const auto train = source(dirs, true), held = source(dirs, false);
  EXPECT_EQ(train->size() + held->size(), 18);
  EXPECT_EQ(train->left_out(), 2);
  EXPECT_EQ(held->left_out(), 0);
  EXPECT_THAT(message_of<IoError>([&] {
                source({folder.path(), {.most = 1}}, true)->size();
              }),
              HasSubstr("1 was left out before it"));
}

TEST(Text, DrawsWindowsAsAFunctionOfSeedEpochAndSample) {
  const auto data = data::text({.length = 8, .per_epoch = 50, .vocabulary = 65})({}, true);
  const Tensor all = test::training_samples(*data, {1, 2}, {0, 1, 2, 3})[0];
  const auto some = values(test::training_samples(*data, {1, 2}, {2})[0]);
  EXPECT_TRUE(std::equal(some.begin(), some.end(), values(all).begin() + 16));
  EXPECT_NE(test::training_samples(*data, {1, 3}, {0, 1, 2, 3})[0], all);
  EXPECT_NE(test::training_samples(*data, {2, 2}, {0, 1, 2, 3})[0], all);
}

TEST(Text, NamesFilesThatLackAndTextWithTooManyCharacters) {
  const TemporaryFolder folder;
  const auto load = [&](data::TextOptions options) {
    return [=, &folder] { data::text(options)({folder.path()}, true)->size(); };
  };
  EXPECT_THAT(message_of<NotFoundError>(load({.vocabulary = 65})),
              HasSubstr("no such file: " + folder.path() + "/input.txt"));
  EXPECT_THAT(message_of<NotFoundError>(load({.tokens = "llmc", .vocabulary = 65})),
              HasSubstr(folder.path() + " has no file *train*.bin"));
  folder.write("input.txt", bytes_of("abcdefghij"));
  EXPECT_THAT(message_of<OptionMistake>(load({.length = 2, .vocabulary = 9})),
              AllOf(HasSubstr("vocabulary=9: 10 characters, 10 different ones"),
                    HasSubstr("the model knows 9 different tokens")));
  EXPECT_THAT(message_of<InvalidArgument>(load({.length = 9, .vocabulary = 65})),
              HasSubstr("9 tokens have no window of 9 and one that follows"));
}

TEST(Text, SaysThatItMayNotReadTheFolder) {
  const TemporaryFolder folder;
  folder.write("input.txt", bytes_of("abcdefghij"));
  const test::UnreadFolder unread(folder.path());
  if (!unread.denied()) GTEST_SKIP() << "root may read everything here";
  EXPECT_THAT(message_of<IoError>([&] {
                data::text({.length = 2, .vocabulary = 65})({folder.path()}, true)->size();
              }),
              HasSubstr("/input.txt: cannot look up: Permission denied"));
}

// A plan reads no samples, and may be made on a machine without the data.
TEST(Text, ChecksItsVocabularyIfItsFilesAreThere) {
  const TemporaryFolder folder;
  const auto check = [&](const std::string& tokens, std::int64_t vocabulary, bool generated) {
    const RunDirs dirs{generated ? "" : folder.path()};
    return [=] {
      data::text({.tokens = tokens, .length = 2, .vocabulary = vocabulary})(dirs, true)->check();
    };
  };
  check("characters", 1, false)();
  check("llmc", 1, false)();
  check("llmc", 1, true)();
  folder.write("input.txt", bytes_of("abcdefghij"));
  for (const auto& refused :
       {check("characters", 9, false), check("bytes", 255, false), check("characters", 9, true)})
    EXPECT_THROW(refused(), OptionMistake);
  check("characters", 10, false)();
  check("bytes", 256, false)();
}

TEST(Text, PutsTheNextWindowInThePlaceOfABadOne) {
  const TemporaryFolder folder;
  std::vector<std::uint16_t> tokens(20);
  for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<std::uint16_t>(i);
  tokens[6] = 60000;
  folder.write("x_val.bin", llmc_file(tokens));
  const auto source = data::text({.tokens = "llmc", .length = 4, .vocabulary = 100});
  const std::vector<std::int64_t> rows{0, 1};
  EXPECT_THAT(
      message_of<IoError>([&] { gather_tensors(*source({folder.path()}, false), rows); }),
      HasSubstr("x_val.bin: bad record at byte 1036: expected a token below 100, found 60000"));
  const auto data = source({folder.path(), {.most = 1}}, false);
  EXPECT_THAT(values(gather_tensors(*data, rows)[0]), ElementsAre(0, 1, 2, 3, 8, 9, 10, 11));
}

// The text is encoded at once, and cut as others are.
TEST(Text, OfATokenizerHasItsTokens) {
  const TemporaryFolder folder;
  folder.write("input.txt", bytes_of("ab ab b\nab b a\n ab ab"));
  const std::string json = folder.write("tokenizer.json", bytes_of(R"({
      "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false},
      "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "Ġ": 2, "Ċ": 3, "ab": 4, "Ġab": 5},
                "merges": ["a b", "Ġ ab"]}})"));
  const auto words = read_tokenizer(folder.path());
  const auto source = [&](std::int64_t known) {
    return data::text(
        {.tokens = "tokenizer", .tokenizer = words, .length = 2, .vocabulary = known});
  };
  const auto text = source(6)({folder.path()}, true);
  EXPECT_EQ(text->describe(), "tokens 0 to 11 of 13 tokens, of 6 different ones, of " +
                                  folder.path() + "/input.txt, 5 windows of 2");
  const std::vector<Tensor> batch = gather_tensors(*text, std::vector<std::int64_t>{0, 1, 2});
  EXPECT_THAT(values(batch[0]), ElementsAre(4, 5, 2, 1, 3, 4));
  EXPECT_THAT(values(batch[1]), ElementsAre(5, 2, 1, 3, 4, 2));
  EXPECT_THAT(text->files(), ElementsAre(folder.path() + "/input.txt", json));
  EXPECT_EQ(text->vocabulary(), words.get());
  EXPECT_THAT(
      message_of<OptionMistake>([&] { source(5)({folder.path()}, true)->check(); }),
      HasSubstr("the model knows 5 different tokens, and must know as many as there are: 6"));
  folder.write("input.txt", bytes_of("abc"));
  EXPECT_THAT(message_of<IoError>([&] { source(6)({folder.path()}, true)->size(); }),
              AllOf(HasSubstr(folder.path() + "/input.txt: no token stands for 'c'"),
                    HasSubstr("; name a tokenizer that knows all of the text")));
}

TEST(Text, OfATokenizerIsGeneratedWithoutAFolder) {
  const TemporaryFolder folder;
  std::string vocab = R"({" ": 0, "Ċ": 1, ".": 2, "Ġ": 3)";
  for (int i = 0; i < 26; ++i)
    vocab += ", \"" + std::string(1, 'a' + i) + "\": " + std::to_string(4 + i);
  folder.write("vocab.json", bytes_of(vocab + "}"));
  folder.write("merges.txt", bytes_of("#version: 0.2\n"));
  const auto text = data::text({.tokens = "tokenizer",
                                .tokenizer = read_tokenizer(folder.path()),
                                .length = 2,
                                .vocabulary = 30})({}, true);
  EXPECT_THAT(text->describe(), HasSubstr("of 200000 tokens, of 30 different ones, of 200000 bytes "
                                          "of generated text"));
}

}  // namespace text_data_test
}  // namespace belfry
