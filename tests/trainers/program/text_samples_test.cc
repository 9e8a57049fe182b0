#include "belfry/trainers/program/text_samples.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/framework/base/text.h"
#include "belfry/tests/trainers/data/idx_files.h"
#include "belfry/trainers/core/trainer.h"
#include "belfry/trainers/core/trainer_kinds.h"
#include "belfry/trainers/data/synthetic_data.h"
#include "belfry/trainers/data/text_data.h"
#include "belfry/trainers/models/models.h"
#include "belfry/trainers/util/option_error.h"

namespace belfry {
namespace text_samples_test {

using test::message_of;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

const models::GptSize kTiny{
    .layers = 1, .heads = 1, .width = 8, .vocabulary = 30, .tie_embeddings = true};

std::vector<std::string> samples_of(const Dataset& data, TextSampleOptions wanted,
                                    std::int64_t steps = 5, int devices = 1,
                                    Precision precision = Precision::kF32,
                                    models::GptSize size = kTiny) {
  std::vector<std::string> lines;
  TrainerOptions options{
      .model = [size](Tower& tower, Output tokens,
                      Output label) { return models::gpt(tower, tokens, label, size); },
      .optimizer = adamw(1e-2),
      .batch_size = 4 / devices,
      .epochs = 2,
      .max_steps = steps,
      .precision = precision,
      .say = [&](std::string_view line) { lines.emplace_back(line); },
      .callbacks = {std::make_shared<TextSamples>(wanted)}};
  for (int t = 1; t < devices; ++t) options.devices.push_back(DeviceSpec::local("CPU", t));
  Trainer(find_trainer(devices == 1 ? "simple" : "replicated"), std::move(options), data).train();
  return lines;
}

std::unique_ptr<Dataset> text(std::int64_t length = 6) {
  return data::text({.length = length, .per_epoch = 12, .vocabulary = 30})({}, true);
}

TEST(TextSamples, ComeAfterEachEpochAndAfterOneThatWasCutShort) {
  const auto data = text();
  const auto lines = samples_of(*data, {.begin = "ab", .tokens = 20});
  ASSERT_EQ(lines.size(), 2u);  // 3 steps an epoch, and 5 in all
  EXPECT_THAT(lines[0], StartsWith("sample after step 3:\nab"));
  EXPECT_THAT(lines[1], StartsWith("sample after step 5:\nab"));
  EXPECT_EQ(lines[0].size(), std::string("sample after step 3:\nab").size() + 20);
  EXPECT_NE(lines[0].substr(24), lines[1].substr(24));
  EXPECT_EQ(samples_of(*data, {.begin = "ab", .tokens = 20}), lines);
  EXPECT_EQ(samples_of(*data, {.begin = "ab", .tokens = 20}, 5, 2), lines) << "on two devices";
}

TEST(TextSamples, AreDrawnFrom16BitsToo) {
  const auto data = text();
  for (const Precision precision : {Precision::kBf16, Precision::kF16}) {
    const auto lines = samples_of(*data, {.begin = "ab", .tokens = 4}, 3, 1, precision);
    ASSERT_FALSE(lines.empty());
    EXPECT_THAT(lines.back(), StartsWith("sample after step 3:\nab"));
  }
}

// Near temperature zero the most probable token is drawn, always the same one after "a". At a very
// high temperature any token may follow.
TEST(TextSamples, FollowTheTemperature) {
  const auto data = text();
  const std::string cold =
      samples_of(*data, {.begin = "a", .tokens = 6, .temperature = 1e-6}, 3)[0];
  for (const char* const begin : {"a", "a"})
    EXPECT_EQ(samples_of(*data, {.begin = begin, .tokens = 6, .temperature = 1e-6}, 3)[0], cold);
  const std::string hot =
      samples_of(*data, {.begin = "a", .tokens = 300, .temperature = 1e6}, 3)[0];
  std::set<char> letters(hot.begin() + 22, hot.end());
  EXPECT_GT(letters.size(), 25u);
}

// A step with a cache gives the tokens that the whole model gives, though text is longer than the
// model's time, and begins with more.
TEST(TextSamples, AreTheSameWithACache) {
  const models::GptSize size{
      .layers = 2, .heads = 2, .width = 8, .vocabulary = 30, .tie_embeddings = true};
  for (const std::int64_t length : {1, 6, 16})
    for (const char* const begin : {"a", "abcdefghijk"}) {
      const auto data = text(length);
      TextSampleOptions wanted{.begin = begin, .tokens = 40};
      const auto whole = samples_of(*data, wanted, 5, 1, Precision::kF32, size);
      int built = 0;
      wanted.step = [&](Tower& tower, TokenStep& step) {
        ++built;
        EXPECT_EQ(step.time, length);
        return models::gpt_step(tower, step, size);
      };
      EXPECT_EQ(samples_of(*data, wanted, 5, 1, Precision::kF32, size), whole);
      EXPECT_EQ(samples_of(*data, wanted, 5, 2, Precision::kF32, size), whole) << "on two devices";
      EXPECT_EQ(built, 2);
    }
}

// A cache rotates the position that it takes by its time.
TEST(TextSamples, OfLlamaAreTheSameWithACache) {
  const models::GptSize size{.architecture = "llama",
                             .layers = 2,
                             .heads = 4,
                             .kv_heads = 2,
                             .width = 16,
                             .vocabulary = 30};
  const auto data = text(16);
  TextSampleOptions wanted{.begin = "abc", .tokens = 40};
  const auto whole = samples_of(*data, wanted, 5, 1, Precision::kF32, size);
  wanted.step = [&](Tower& tower, TokenStep& step) { return models::gpt_step(tower, step, size); };
  EXPECT_EQ(samples_of(*data, wanted, 5, 1, Precision::kF32, size), whole);
}

TEST(TextSamples, WithACacheAreDrawnFrom16BitsToo) {
  const auto data = text();
  const TextSampleOptions wanted{
      .begin = "ab", .tokens = 12, .step = [](Tower& tower, TokenStep& step) {
        return models::gpt_step(tower, step, kTiny);
      }};
  for (const Precision precision : {Precision::kBf16, Precision::kF16})
    EXPECT_EQ(samples_of(*data, wanted, 3, 1, precision)[0].size(),
              std::string("sample after step 3:\nab").size() + 12);
}

TEST(TextSamples, RefuseAStepThatDoesNotMakeItsCaches) {
  const auto data = text();
  const TextSampleOptions wanted{.step = [](Tower& tower, TokenStep& step) {
    const Output logits = models::gpt_step(tower, step, kTiny);
    step.caches.pop_back();
    return logits;
  }};
  EXPECT_THAT(message_of<InvalidArgument>([&] { samples_of(*data, wanted); }),
              HasSubstr("a step of a sample of text has 5 inputs, but 0 tensors of caches"));
}

// Random weights give any byte.
TEST(TextSamples, ShowWhatIsNotPrintableTextAsEscapes) {
  const test::TemporaryFolder folder;
  folder.write("input.txt", test::Bytes(2000, std::byte{0x1B}));
  const auto data = data::text(
      {.tokens = "bytes", .length = 6, .per_epoch = 12, .vocabulary = 256})({folder.path()}, true);
  models::GptSize size = kTiny;
  size.vocabulary = 256;
  constexpr char kText[] = "\xC3\xA9\t\xE2\x82\xAC\xF0\x9F\x98\x80";  // of 2, 3 and 4 bytes
  const std::pair<const char*, const char*> cases[] = {
      {"\x1B", "\\x1b"},                    // ESC
      {"a\x85z", "a\\x85z"},                // not UTF-8
      {"\xC2\x9B", "\\xc2\\x9b"},           // a control character
      {"\xC0\xAF", "\\xc0\\xaf"},           // overlong
      {"\xED\xA0\x80", "\\xed\\xa0\\x80"},  // a surrogate
      {"\xE2\x82z", "\\xe2\\x82z"},         // cut off
      {kText, kText}};
  for (const auto& [begin, expected] : cases) {
    const std::string sample =
        samples_of(*data, {.begin = begin, .tokens = 1}, 1, 1, Precision::kF32, size)[0];
    EXPECT_THAT(sample, StartsWith(cat("sample after step 1:\n", expected)));
  }
}

TEST(TextSamples, RefuseABeginningThatIsNoText) {
  const auto data = text();
  EXPECT_THAT(
      message_of<OptionMistake>([&] { samples_of(*data, {.begin = "A"}); }),
      HasSubstr("sample=A: a sample of text cannot begin with 'A': the character 'A' is none of"));
  const auto numbers =
      synthetic_data({{"tokens", DType::kI32, {6}}, {"label", DType::kI32, {6}}}, 30, 12, 1);
  EXPECT_THAT(samples_of(*numbers, {}), IsEmpty());
  EXPECT_THAT(message_of<OptionMistake>([&] { samples_of(*numbers, {.begin = "a"}); }),
              HasSubstr("nobody knows what the tokens of the data stand for"));
}

}  // namespace text_samples_test
}  // namespace belfry
