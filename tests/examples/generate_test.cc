// Runs `belfry generate` on runs of gpt, as people run it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "belfry/framework/base/text.h"
#include "belfry/tests/support/programs.h"
#include "belfry/tests/trainers/data/idx_files.h"
#include "belfry/tests/trainers/data/tf_files.h"

namespace belfry {
namespace generate_test {

using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;

constexpr char kTokenizer[] = R"({
  "added_tokens": [{"id": 31, "content": "<|end|>"}],
  "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false},
  "decoder": {"type": "ByteLevel"},
  "model": {"type": "BPE", "merges": [["l", "i"], ["n", "e"], ["li", "ne"], ["Ġ", "o"]],
            "vocab": {"Ċ": 0, "Ġ": 1, ",": 2, ".": 3, "0": 4, "1": 5, "2": 6, "3": 7, "4": 8,
                      "5": 9, "6": 10, "7": 11, "8": 12, "9": 13, "a": 14, "d": 15, "e": 16,
                      "i": 17, "l": 18, "n": 19, "o": 20, "s": 21, "li": 22, "ne": 23,
                      "line": 24, "Ġo": 25}}})";

// A folder with a text, a tokenizer, and runs of three steps: `run` of characters, and `words`.
class GenerateTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new test::TemporaryFolder();
    std::string text;
    for (int i = 0; text.size() < 3000; ++i) text += cat("line ", i * i % 97, ", and so on.\n");
    folder_->write("input.txt", test::as_bytes(text));
    folder_->write("tokenizer.json", test::as_bytes(std::string(kTokenizer)));
    trained_ = run("gpt", {data(), "--max_steps=3", "--layers=2", "--sequence_length=24",
                           "--run_dir=" + path("run")});
    words_ = run("gpt", {data(), "--max_steps=3", "--tokenizer=" + path("tokenizer.json"),
                         "--run_dir=" + path("words")});
  }
  static void TearDownTestSuite() { delete folder_; }

  static std::string path(const std::string& name) { return cat(folder_->path(), "/", name); }
  static std::string data() { return "--data_dir=" + folder_->path(); }
  static Finished run(const std::string& program, const std::vector<std::string>& flags) {
    return run_program(cat(BELFRY_BIN_DIR, "/", program), flags);
  }
  static Finished generate(std::vector<std::string> flags) {
    flags.insert(flags.begin(), "generate");
    return run("belfry", flags);
  }
  static void expect_refusal(const std::vector<std::string>& flags, int status,
                             const std::string& why) {
    const Finished done = generate(flags);
    EXPECT_EQ(done.status, status) << join(flags, " ");
    EXPECT_THAT(done.errors, AllOf(StartsWith("error: "), HasSubstr(why))) << join(flags, " ");
  }
  // The last sample that a training showed.
  static std::string sample(const Finished& training) {
    constexpr std::string_view kHead = "sample after step 3:\n";
    const std::size_t begin = training.output.rfind(kHead);
    EXPECT_NE(begin, std::string::npos) << training.output << training.errors;
    return begin == std::string::npos ? "" : training.output.substr(begin + kHead.size());
  }

  static inline test::TemporaryFolder* folder_ = nullptr;
  static inline Finished trained_, words_;
};

// The flags of the run say which model it is; text is longer than its time.
TEST_F(GenerateTest, WritesTheSampleOfTheTraining) {
  const Finished done = generate({path("run")});
  EXPECT_EQ(done.status, 0) << done.errors;
  EXPECT_GT(done.output.size(), 200u);
  EXPECT_THAT(sample(trained_), StartsWith(done.output));
  const Finished checkpoint = generate({path("run/checkpoints/latest")});
  EXPECT_EQ(checkpoint.output, done.output) << checkpoint.errors;
}

TEST_F(GenerateTest, WritesTokensOfATokenizer) {
  const Finished done = generate({path("words")});
  EXPECT_EQ(done.status, 0) << done.errors;
  EXPECT_THAT(sample(words_), StartsWith(done.output));
  EXPECT_THAT(done.output, HasSubstr("line"));
}

TEST_F(GenerateTest, DrawsAsItsFlagsSay) {
  const auto text = [](std::vector<std::string> flags) {
    flags.insert(flags.begin(), {path("run"), "--prompt=line 1", "--length=30"});
    const Finished done = generate(flags);
    EXPECT_EQ(done.status, 0) << done.errors;
    EXPECT_EQ(done.output.size(), 37u) << done.output;
    EXPECT_THAT(done.output, AllOf(StartsWith("line 1"), EndsWith("\n")));
    return done.output;
  };
  const std::string first = text({});
  EXPECT_EQ(text({"--seed=1"}), first);
  EXPECT_NE(text({"--seed=2"}), first);
  const std::string most_probable = text({"--temperature=0"});
  EXPECT_EQ(text({"--temperature=0", "--seed=2"}), most_probable);
  EXPECT_EQ(text({"--top_k=1", "--seed=3"}), most_probable);
  EXPECT_EQ(text({"--top_p=0.0001", "--seed=3"}), most_probable);
  EXPECT_NE(text({"--top_k=3", "--temperature=5"}), most_probable);
}

// A checkpoint that no run has left, as `belfry checkpoint import` makes them.
TEST_F(GenerateTest, TakesTheModelOfALoneCheckpointFromFlags) {
  run_program("cp", {"-r", path("words/checkpoints/step-00000003"), path("lone")});
  const std::string tokenizer = "--tokenizer=" + path("tokenizer.json");
  const Finished done = generate({path("lone"), "--preset=char", tokenizer});
  EXPECT_EQ(done.status, 0) << done.errors;
  EXPECT_EQ(done.output, generate({path("words")}).output);
  expect_refusal({path("lone"), tokenizer, "--layers=5"}, 1, "block4/");
  expect_refusal({path("lone"), tokenizer, "--width=64"}, 1,
                 "say by flags, such as --preset and --layers, which model");
}

// It needs a first token, though there is no line break, and the characters that the run has read.
TEST_F(GenerateTest, ReadsALineWithBadBytesAsTheRunHas) {
  const test::TemporaryFolder line;
  std::string text = "\xFF";
  while (text.size() < 600) text += "no end ";
  line.write("input.txt", test::as_bytes(text));
  const std::string made = line.path() + "/run";
  const Finished trained =
      run("gpt", {"--data_dir=" + line.path(), "--bad_records=skip:1", "--max_steps=1",
                  "--layers=1", "--sequence_length=8", "--run_dir=" + made});
  ASSERT_EQ(trained.status, 0) << trained.errors;
  const Finished done = generate({made, "--length=20"});
  EXPECT_EQ(done.status, 0) << done.errors;
  EXPECT_EQ(done.output.size(), 22u) << done.output;
}

// Imported weights say how to compute with them.
TEST_F(GenerateTest, TakesTheFlagsThatImportedWeightsNeed) {
  const std::string lone = path("run/checkpoints/latest/model.safetensors"),
                    made = path("imported");
  std::string rules = "needs gelu=exact\nneeds norm_epsilon=0.00001\n";
  for (const char* const name :
       {"tokens/table", "positions", "norm/gamma", "norm/beta", "block{i}/norm{n}/gamma",
        "block{i}/norm{n}/beta", "block{i}/attention/qkv/W", "block{i}/attention/qkv/b",
        "block{i}/attention/out/W", "block{i}/attention/out/b", "block{i}/fc{n}/W",
        "block{i}/fc{n}/b"})
    rules += cat(name, " = ", name, "\n");
  folder_->write("own.names", test::as_bytes(rules));
  const Finished imported =
      run("belfry", {"checkpoint", "import", lone, made, "--names=" + path("own.names")});
  ASSERT_EQ(imported.status, 0) << imported.errors;
  const std::vector<std::string> flags{made, data(), "--layers=2", "--sequence_length=24",
                                       "--seed=7"};
  const auto with = [&](const char* more) {
    std::vector<std::string> all = flags;
    all.emplace_back(more);
    return all;
  };
  const Finished plain = generate(flags);
  EXPECT_EQ(plain.status, 0) << plain.errors;
  EXPECT_EQ(plain.output, generate(with("--gelu=exact")).output);
  expect_refusal(with("--gelu=tanh"), 2, "--gelu=tanh: the weights of ");
  expect_refusal(with("--norm_epsilon=1e-6"), 2, "need --norm_epsilon=0.00001");
}

TEST_F(GenerateTest, RefusesWhatCannotBe) {
  expect_refusal({path("run"), "--prompt=Q"}, 2, "--prompt=Q: the character 'Q' is none of the ");
  expect_refusal({path("words"), "--prompt=Q"}, 2, "--prompt=Q: no token stands for 'Q'");
  expect_refusal({path("run"), "--temperature=-1"}, 2,
                 "--temperature=-1 is not a number from 0 on");
  expect_refusal({path("run"), "--top_p=0"}, 2, "--top_p=0 is not a number above 0");
  expect_refusal({path("run"), "--length=0"}, 2, "--length=0");
  expect_refusal({path("run"), "--tokens=llmc"}, 2, "nobody knows what these tokens stand for");
  expect_refusal({path("words"), "--vocabulary=20"}, 2, "--vocabulary=20: the model knows");
  expect_refusal({path("run"), "--tokens=bytes", "--tokenizer=" + path("tokenizer.json")}, 2,
                 "--tokenizer=" + path("tokenizer.json") + " has no use beside --tokens=bytes");
  expect_refusal({path("none")}, 1, "there is no checkpoint");
  expect_refusal({path("run"), "--tokenizer=" + path("none")}, 2, "/none: there is no ");
  expect_refusal({}, 2, "there is no RUN");
}

// Samples need words: a tokenizer says what the tokens of llm.c stand for.
TEST_F(GenerateTest, TokenFilesHaveWordsBesideATokenizer) {
  for (const char* const name : {"a_train.bin", "a_val.bin"}) {
    std::vector<std::int32_t> header(256);
    header[0] = 20240520;
    header[1] = 1;
    header[2] = 300;
    std::string text(reinterpret_cast<const char*>(header.data()), 1024);
    for (int i = 0; i < 300; ++i) text += {static_cast<char>(i % 26), '\0'};
    folder_->write(name, test::as_bytes(text));
  }
  const std::string tokenizer = "--tokenizer=" + path("tokenizer.json");
  const Finished done =
      run("gpt", {data(), "--tokens=llmc", tokenizer, "--max_steps=3", "--sample=line 7<|end|>"});
  EXPECT_EQ(done.status, 0) << done.errors;
  EXPECT_THAT(sample(done), StartsWith("line 7<|end|>"));
  const Finished refused = run("gpt", {data(), tokenizer, "--sample=Q", "--dry_run"});
  EXPECT_EQ(refused.status, 2);
  EXPECT_THAT(refused.errors, HasSubstr("--sample=Q: a sample of text cannot begin with 'Q'"));
}

}  // namespace generate_test
}  // namespace belfry
