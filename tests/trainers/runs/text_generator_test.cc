#include "belfry/trainers/runs/text_generator.h"

#include <cmath>
#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/framework/base/error.h"

namespace belfry {
namespace text_generator_test {

using ::testing::ElementsAre;

// How often each token is drawn with 10,000 keys, in thousands.
std::vector<double> shares(const std::vector<double>& probabilities, const DrawOptions& options) {
  std::vector<float> logits;
  for (const double p : probabilities) logits.push_back(static_cast<float>(std::log(p)));
  std::vector<double> drawn(logits.size());
  for (std::uint64_t key = 0; key < 10'000; ++key)
    drawn[static_cast<std::size_t>(draw_token(logits, options, key))] += 1e-4;
  return drawn;
}

auto near(const std::vector<double>& expected) {
  std::vector<testing::Matcher<double>> all;
  for (const double x : expected)
    all.push_back(x == 0 ? testing::Matcher<double>(0.0) : testing::DoubleNear(x, 0.02));
  return testing::ElementsAreArray(all);
}

TEST(DrawToken, DrawsByTheProbabilities) {
  EXPECT_THAT(shares({0.5, 0.2, 0.3}, {.temperature = 1}), near({0.5, 0.2, 0.3}));
  // Squares of the probabilities: 25, 4 and 9 of 38.
  EXPECT_THAT(shares({0.5, 0.2, 0.3}, {.temperature = 0.5}), near({0.658, 0.105, 0.237}));
}

TEST(DrawToken, OfTemperatureZeroIsTheFirstOfTheMostProbable) {
  EXPECT_THAT(shares({0.2, 0.4, 0.4}, {.temperature = 0}), near({0, 1, 0}));
}

TEST(DrawToken, LeavesOutWhatIsLessProbable) {
  const std::vector<double> all{0.1, 0.4, 0.2, 0.3};
  EXPECT_THAT(shares(all, {.temperature = 1, .top_k = 1}), near({0, 1, 0, 0}));
  EXPECT_THAT(shares(all, {.temperature = 1, .top_k = 2}), near({0, 0.571, 0, 0.429}));
  EXPECT_THAT(shares(all, {.temperature = 1, .top_k = 9}), near(all));
  EXPECT_THAT(shares(all, {.temperature = 1, .top_p = 0.39}), near({0, 1, 0, 0}));
  EXPECT_THAT(shares(all, {.temperature = 1, .top_p = 0.41}), near({0, 0.571, 0, 0.429}));
  // Of the three that top_k leaves, two have 7/9.
  EXPECT_THAT(shares(all, {.temperature = 1, .top_k = 3, .top_p = 0.77}),
              near({0, 0.571, 0, 0.429}));
  EXPECT_THAT(shares({0.25, 0.25, 0.25, 0.25}, {.temperature = 1, .top_k = 2}),
              near({0.5, 0.5, 0, 0}))
      << "of equal ones the first stay";
}

// Writes the bytes of a text, whatever it is asked for.
class Recited final : public TextGenerator {
 public:
  Recited(std::string text, std::size_t time) : text_(std::move(text)), time_(time) {}
  std::vector<std::size_t> asked;  // how many tokens; 0 before a row that is anew

 private:
  std::size_t time() const override { return time_; }
  std::span<const float> logits_after(std::span<const std::int32_t> tokens, bool anew) override {
    if (anew) asked.push_back(0);
    asked.push_back(tokens.size());
    logits_.assign(256, 0);
    logits_[static_cast<std::uint8_t>(text_[next_++])] = 100;
    return logits_;
  }

  const std::string text_;
  const std::size_t time_;
  std::size_t next_ = 0;
  std::vector<float> logits_;
};

std::vector<std::string> parts(TextGenerator& generator, std::size_t count) {
  std::vector<std::string> all;
  generator.generate(ByteVocabulary(), {'>'}, static_cast<std::int64_t>(count), {}, 1,
                     [&](std::string_view part) { all.emplace_back(part); });
  return all;
}

std::vector<std::string> recited(const std::string& text) {
  Recited generator(text, 100);
  return parts(generator, text.size());
}

TEST(TextGenerator, ShowsWholeCharacters) {
  EXPECT_THAT(recited("aé日😀b"), ElementsAre(">", "a", "é", "日", "😀", "b"));
  EXPECT_THAT(recited("\n\t"), ElementsAre(">", "\n", "\t"));
}

TEST(TextGenerator, ShowsOtherBytesAsEscapes) {
  EXPECT_THAT(recited("a\x1B\x80z"), ElementsAre(">", "a", "\\x1b", "\\x80", "z"));
  EXPECT_THAT(recited("\xE2\x82z"), ElementsAre(">", "\\xe2\\x82z")) << "cut off by z";
  EXPECT_THAT(recited("\xC2\x9B"), ElementsAre(">", "\\xc2\\x9b")) << "a control character";
  EXPECT_THAT(recited("\xC0\xAF"), ElementsAre(">", "\\xc0", "\\xaf")) << "overlong";
  EXPECT_THAT(recited("\xED\xA0\x80"), ElementsAre(">", "\\xed\\xa0", "\\x80")) << "a surrogate";
  EXPECT_THAT(recited("\xFF"), ElementsAre(">", "\\xff"));
}

TEST(TextGenerator, LeavesOutACharacterThatIsNotCompleteAtTheEnd) {
  for (const char* const begun : {"\xC3", "\xE2\x82", "\xE2", "\xF0\x9F\x98", "\xED", "\xF4\x8F"})
    EXPECT_THAT(recited(std::string("a") + begun), ElementsAre(">", "a")) << begun;
}

// Has no white space, as tokenizers that remove it; "." ends a text.
class Words final : public Vocabulary {
 public:
  std::int64_t size() const override { return 256; }
  std::vector<std::int32_t> encode(std::string_view text) const override {
    std::vector<std::int32_t> tokens;
    for (const char c : text)
      if (c != ' ' && c != '\n') tokens.push_back(static_cast<std::uint8_t>(c));
    return tokens;
  }
  std::string text_of(std::int32_t token) const override {
    ++decoded;
    return ByteVocabulary().text_of(token);
  }
  bool drops_first_space() const override { return true; }
  std::optional<std::int32_t> end_of_text() const override { return '.'; }

  mutable int decoded = 0;  // tokens
};

TEST(TextGenerator, DecodesEachTokenOnce) {
  const Words words;
  Recited generator(" a\xC3\xA9 b", 100);
  std::vector<std::string> all;
  generator.generate(words, {' ', 'x'}, 6, {}, 1,
                     [&](std::string_view part) { all.emplace_back(part); });
  EXPECT_THAT(all, ElementsAre("x", " ", "a", "é", " ", "b")) << "but for the first space";
  EXPECT_EQ(words.decoded, 8);
}

TEST(FirstTokens, AreALineBreakOrTheFirstTokenIfThereIsNoBeginning) {
  EXPECT_THAT(first_tokens(ByteVocabulary(), ""), ElementsAre('\n'));
  EXPECT_THAT(first_tokens(CharacterVocabulary({'a', 'b'}), ""), ElementsAre(0));
  EXPECT_THAT(first_tokens(CharacterVocabulary({'a', 'b'}), "b"), ElementsAre(1));
  EXPECT_THROW(first_tokens(CharacterVocabulary({'a', 'b'}), "c"), InvalidArgument);
  EXPECT_THAT(first_tokens(Words(), ""), ElementsAre(0));
  EXPECT_THROW(first_tokens(Words(), "  "), InvalidArgument);
}

TEST(TextGenerator, NeedsABeginning) {
  Recited generator("a", 4);
  EXPECT_THROW(generator.generate(ByteVocabulary(), {}, 1, {}, 1, [](std::string_view) {}),
               InvalidArgument);
}

TEST(TextGenerator, StopsAtTheEndOfText) {
  Recited generator("ab.c", 100);
  std::string all;
  generator.generate(Words(), {'>'}, 4, {}, 1, [&](std::string_view part) { all += part; });
  EXPECT_EQ(all, ">ab");
}

TEST(TextGenerator, KeepsTheLastHalfOfTextThatIsLongerThanItsTime) {
  Recited generator("abcdefg", 4);
  parts(generator, 7);
  EXPECT_THAT(generator.asked, ElementsAre(0, 1, 2, 3, 4, 0, 2, 3, 4));
}

}  // namespace text_generator_test
}  // namespace belfry
