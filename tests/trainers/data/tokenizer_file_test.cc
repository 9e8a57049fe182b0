#include "belfry/trainers/data/tokenizer_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/framework/base/text.h"
#include "belfry/tests/trainers/data/idx_files.h"
#include "belfry/trainers/data/text_pattern.h"
#include "belfry/trainers/util/option_error.h"

namespace belfry {
namespace tokenizer_file_test {

using test::message_of;
using test::TemporaryFolder;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

test::Bytes bytes_of(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

std::shared_ptr<const Vocabulary> tokenizer(const std::string& json) {
  const TemporaryFolder folder;
  return read_tokenizer(folder.write("tokenizer.json", bytes_of(json)));
}

std::vector<std::string> pieces(const TextPattern& pattern, std::string_view text) {
  std::vector<std::string> all;
  pattern.cut(text, [&](std::string_view piece) { all.emplace_back(piece); });
  return all;
}

TEST(TextPattern, CutsTextIntoMatchesAndWhatIsBetweenThem) {
  using Form = TextPattern::Form;
  using Keep = TextPattern::Keep;
  const auto numbers = [](Keep keep) { return TextPattern("\\p{N}+", Form::kExpression, keep); };
  EXPECT_THAT(pieces(numbers(Keep::kAll), "a12b٣"), ElementsAre("a", "12", "b", "٣"));
  EXPECT_THAT(pieces(numbers(Keep::kMatches), "a12b٣"), ElementsAre("12", "٣"));
  EXPECT_THAT(pieces(numbers(Keep::kRest), "a12b٣c"), ElementsAre("a", "b", "c"));
  EXPECT_THAT(pieces(numbers(Keep::kAll), ""), IsEmpty());
  EXPECT_THAT(pieces(TextPattern("x*", Form::kExpression, Keep::kAll), "日xxb"),
              ElementsAre("日", "xx", "b"))
      << "an empty match cuts nothing";
  EXPECT_THAT(pieces(TextPattern(".", Form::kLiteral, Keep::kAll), "a.b"),
              ElementsAre("a", ".", "b"));
  EXPECT_THAT(pieces(TextPattern("\\s+|\\\\s", Form::kExpression, Keep::kAll), "a\u2003\\s\u180Eb"),
              ElementsAre("a", "\u2003", "\\s", "\u180Eb"))
      << "U+180E is no space";
  EXPECT_THAT(
      message_of<InvalidArgument>([] { TextPattern("a(b", Form::kExpression, Keep::kAll); }),
      HasSubstr("'a(b' is no regular expression: missing closing parenthesis"));
}

// The files of GPT-2: Ġ is a space, Ċ a line break, and Ã© the bytes of é.
constexpr char kVocab[] =
    R"({"a": 0, "b": 1, "Ġ": 2, "Ċ": 3, "Ã": 4, "©": 5, "ab": 6, "Ġab": 7, "aa": 8, "bĠ": 9,
        "Ã©": 10, "<|endoftext|>": 11, "'": 12, "s": 13, "'s": 14})";
constexpr char kMerges[] = "#version: 0.2\na b\nĠ ab\na a\r\nb Ġ\nÃ ©\n' s\n";

TEST(Tokenizer, OfGpt2MergesBytes) {
  const TemporaryFolder folder;
  const std::string vocab = folder.write("vocab.json", bytes_of(kVocab));
  const std::string merges = folder.write("merges.txt", bytes_of(kMerges));
  const auto words = read_tokenizer(folder.path());
  EXPECT_EQ(words->size(), 15);
  EXPECT_THAT(words->files(), ElementsAre(vocab, merges));
  EXPECT_THAT(words->encode(""), IsEmpty());
  EXPECT_THAT(words->encode("ab ab"), ElementsAre(6, 7));
  EXPECT_THAT(words->encode("aaab"), ElementsAre(8, 6)) << "a b comes before a a";
  EXPECT_THAT(words->encode("aaa"), ElementsAre(8, 0)) << "the leftmost pair comes first";
  EXPECT_THAT(words->encode("b b"), ElementsAre(1, 2, 1)) << "no pair crosses words";
  EXPECT_THAT(words->encode("ab's"), ElementsAre(6, 14));
  EXPECT_THAT(words->encode("é\n\n"), ElementsAre(10, 3, 3));
  EXPECT_THAT(words->encode("a<|endoftext|>b"), ElementsAre(0, 11, 1));
  EXPECT_EQ(words->end_of_text(), 11);
  EXPECT_THAT(words->encode("a\xC3"), ElementsAre(0, 4));
  const std::vector<std::int32_t> some{7, 10, 3, 11, 4};
  EXPECT_EQ(words->decode(some), " abé\n<|endoftext|>\xC3");
  EXPECT_THAT(message_of<InvalidArgument>([&] { words->encode("ac"); }),
              HasSubstr("no token stands for 'c'"));
  EXPECT_THAT(message_of<InvalidArgument>([&] { words->decode(std::vector<std::int32_t>{15}); }),
              HasSubstr("token 15 of a vocabulary of 15"));
}

TEST(Tokenizer, FindsAddedTokensAndTheLongestOfThem) {
  const auto words = tokenizer(R"({
    "added_tokens": [{"id": 5, "content": "<e>"}, {"id": 6, "content": "<e>>", "special": true}],
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false},
    "model": {"type": "BPE", "vocab": {"<": 0, "e": 1, ">": 2}, "merges": []}})");
  EXPECT_EQ(words->size(), 7);
  EXPECT_THAT(words->encode("<e<e>e<e>>"), ElementsAre(0, 1, 5, 1, 6));
  EXPECT_EQ(words->decode(std::vector<std::int32_t>{5, 4, 6}), "<e><e>>") << "4 is no token";
}

constexpr char kLlama3[] = R"({
  "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
    {"type": "Split", "pattern": {"Regex": "\\p{N}{1,2}|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+"},
     "behavior": "Isolated", "invert": false},
    {"type": "ByteLevel", "add_prefix_space": false, "use_regex": false}]},
  "model": {"type": "BPE", "ignore_merges": IGNORE,
            "vocab": {"1": 0, "2": 1, "12": 2, "a": 3, "Ġ": 4, "Ġaa": 5},
            "merges": [["1", "2"]]}})";

TEST(Tokenizer, CutsByItsPatternAndTakesWholeWords) {
  std::string json = kLlama3;
  json.replace(json.find("IGNORE"), 6, "true");
  EXPECT_THAT(tokenizer(json)->encode("121 aa a"), ElementsAre(2, 0, 5, 4, 3));
  json.replace(json.find("true"), 4, "false");
  EXPECT_THAT(tokenizer(json)->encode("121 aa a"), ElementsAre(2, 0, 4, 3, 3, 4, 3));
}

constexpr char kLlama2[] = R"({
  "normalizer": {"type": "Sequence", "normalizers": [
    {"type": "Prepend", "prepend": "▁"},
    {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]},
  "pre_tokenizer": null,
  "decoder": {"type": "Sequence", "decoders": [
    {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"},
    {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
  "model": {"type": "BPE", "unk_token": "<unk>", "fuse_unk": true, "byte_fallback": true,
            "vocab": {"<unk>": 0, "<0xC3>": 1, "<0xA9>": 2, "▁": 3, "a": 4, "▁a": 5, "日": 6,
                      "a▁": 7},
            "merges": ["▁ a", "a ▁"]}})";

TEST(Tokenizer, OfLlamaMergesCharactersAndHasBytesForOthers) {
  const auto words = tokenizer(kLlama2);
  EXPECT_THAT(words->encode("a a"), ElementsAre(5, 5));
  EXPECT_THAT(words->encode("aa 日"), ElementsAre(5, 7, 6)) << "pairs cross words";
  EXPECT_THAT(words->encode("é"), ElementsAre(3, 1, 2));
  EXPECT_THAT(words->encode("xyaé"), ElementsAre(3, 0, 4, 1, 2)) << "one for two unknown ones";
  EXPECT_THAT(words->encode("\xC3"), ElementsAre(3, 1));
  EXPECT_EQ(words->decode(words->encode("a é")), "a é");
}

constexpr char kMetaspace[] = R"({
  "added_tokens": [{"id": 0, "content": "<s>"}],
  "pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "SCHEME"},
  "decoder": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "SCHEME"},
  "model": {"type": "BPE", "vocab": {"▁": 1, "a": 2, "a▁": 3, "▁a": 4, "\n": 5},
            "merges": ["a ▁", "▁ a"]}})";

TEST(Tokenizer, WithMetaspaceCutsBeforeSpaces) {
  const auto with = [](const std::string& scheme) {
    std::string json = kMetaspace;
    for (std::size_t at; (at = json.find("SCHEME")) != json.npos;) json.replace(at, 6, scheme);
    return tokenizer(json);
  };
  EXPECT_THAT(with("always")->encode("a a\na<s>a"), ElementsAre(4, 4, 5, 2, 0, 4));
  EXPECT_THAT(with("first")->encode("a a<s>a"), ElementsAre(4, 4, 0, 2));
  EXPECT_THAT(with("never")->encode("a  a"), ElementsAre(2, 1, 4));
  EXPECT_EQ(with("never")->encode(std::string(100'000, 'a')).size(), 100'000u);
  EXPECT_EQ(with("never")->end_of_text(), std::nullopt);
  EXPECT_EQ(with("always")->decode(std::vector<std::int32_t>{4, 4}), "a a");
  EXPECT_EQ(with("never")->decode(std::vector<std::int32_t>{4, 4}), " a a");
  EXPECT_EQ(with("always")->decode(std::vector<std::int32_t>{1, 4, 4}), " a a") << "one space";
}

TEST(TextPattern, FindsLongMatchesThatNeedMuchMemory) {
  const TextPattern pattern("(?:(?!x).)+", TextPattern::Form::kExpression, TextPattern::Keep::kAll);
  const std::string text(100'000, 'a');
  std::vector<std::size_t> sizes;
  pattern.cut(text, [&](std::string_view part) { sizes.push_back(part.size()); });
  EXPECT_THAT(sizes, ElementsAre(text.size()));
}

TEST(Tokenizer, OfAFileThatAsksForMoreIsRefused) {
  const auto message = [](const std::string& members, const std::string& model = "") {
    const std::string json =
        cat("{", members, members.empty() ? "" : ", ", R"("model": {"vocab": {"a": 0, "b": 1})",
            model.empty() ? R"(, "merges": [])" : model, "}}");
    return message_of<IoError>([&] { tokenizer(json); });
  };
  const std::string type = R"(, "type": "Unigram", "merges": [])";
  EXPECT_THAT(message("", type), AllOf(HasSubstr("/tokenizer.json: line 1, column "),
                                       HasSubstr("the model is of type 'Unigram'; only")));
  EXPECT_THAT(message("", ""), IsEmpty());
  EXPECT_THAT(message("", R"(, "merges": ["ab"])"),
              HasSubstr("a merge is two tokens with a space"));
  EXPECT_THAT(message("", R"(, "merges": ["a b"])"),
              HasSubstr("the merge of 'a' and 'b' needs 'ab', which is no token"));
  EXPECT_THAT(message("", R"(, "merges": [], "dropout": 0.1)"), HasSubstr("'dropout' is not"));
  EXPECT_THAT(message("", R"(, "merges": [], "unk_token": "?")"),
              HasSubstr("the 'unk_token' '?' is not in 'vocab'"));
  EXPECT_THAT(message("", R"(, "merges": [], "end_of_word_suffix": "</w>")"),
              HasSubstr("'end_of_word_suffix' is not supported"));
  EXPECT_THAT(message(R"("normalizer": {"type": "NFC"})"),
              HasSubstr("the normalizer 'NFC' is none"));
  EXPECT_THAT(message(R"("pre_tokenizer": {"type": "Whitespace"})"),
              HasSubstr("the pre-tokenizer 'Whitespace' is none of ByteLevel"));
  EXPECT_THAT(message(R"("decoder": {"type": "CTC"})"), HasSubstr("the decoder 'CTC' is none of"));
  EXPECT_THAT(message(R"("pre_tokenizer": {"type": "Split", "behavior": "Isolated",
                         "pattern": {"Regex": "("}})"),
              HasSubstr("'(' is no regular expression"));
  EXPECT_THAT(message(R"("added_tokens": [{"id": 2, "content": "<m>", "lstrip": true}])"),
              HasSubstr("'lstrip' of the added token '<m>' is not supported"));
  EXPECT_THAT(message(R"("added_tokens": [{"id": 99999999, "content": "<m>"}])"),
              HasSubstr("a token is a number from 0 to 1114111, not 99999999"));
}

TEST(Tokenizer, OfAFolderWithoutFilesSaysWhichAreMissing) {
  const TemporaryFolder folder;
  EXPECT_THAT(message_of<OptionMistake>([&] { read_tokenizer(folder.path()); }),
              AllOf(HasSubstr("tokenizer=" + folder.path() + ": there is no "),
                    HasSubstr("/tokenizer.json and no "), HasSubstr("/vocab.json; name a file")));
  folder.write("vocab.json", bytes_of(kVocab));
  EXPECT_THAT(message_of<OptionMistake>([&] { read_tokenizer(folder.path()); }),
              HasSubstr("there is no " + folder.path() + "/merges.txt; name"));
  const std::string merges = folder.write("merges.txt", bytes_of("#version: 0.2\na b\nab\n"));
  EXPECT_THAT(message_of<IoError>([&] { read_tokenizer(folder.path()); }),
              HasSubstr(merges + ": line 3: expected two tokens with a space between them"));
}

}  // namespace tokenizer_file_test
}  // namespace belfry
