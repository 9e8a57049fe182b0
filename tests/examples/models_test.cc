// Runs the programs of models on a few samples, as people run them.
#include <cstdlib>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "belfry/framework/base/file_system.h"
#include "belfry/framework/base/text.h"
#include "belfry/tests/support/programs.h"
#include "belfry/tests/support/sanitizers.h"
#include "belfry/tests/trainers/data/idx_files.h"
#include "belfry/tests/trainers/data/tf_files.h"

namespace belfry {
namespace example_models_test {

using test::Bytes;
using test::TemporaryFolder;
using testing::AllOf;
using testing::HasSubstr;

Finished run(const std::string& program, const std::vector<std::string>& flags) {
  return run_program(cat(BELFRY_BIN_DIR, "/", program), flags);
}

// The JSON of a run that must succeed.
nlohmann::json report(const std::string& program, std::vector<std::string> flags) {
  flags.emplace_back("--json=-");
  const Finished done = run(program, flags);
  EXPECT_EQ(done.status, 0) << program << " " << join(flags) << "\n" << done.errors;
  return done.status == 0 ? nlohmann::json::parse(done.output) : nlohmann::json();
}

void expect_refused(const std::string& program, const std::vector<std::string>& flags,
                    const std::string& why, int status = 2) {
  const Finished done = run(program, flags);
  EXPECT_EQ(done.status, status) << join(flags);
  EXPECT_THAT(done.errors, HasSubstr(why));
}

// Expects one hash on one, two and four devices, and with three data workers. A run that stops
// after its second step on the devices `stopped`, and resumes on `resumed_on`, must have it, too.
// The rate is constant, as the programs' own schedules end with the run.
void expect_one_hash(const std::string& program, std::vector<std::string> flags,
                     const std::string& stopped, const std::string& resumed_on) {
  flags.emplace_back("--learning_rate=0.001");
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.end(), flags.begin(), flags.end());
    return more;
  };
  const auto one = report(program, with({"--max_steps=4", "--devices=cpu:1"}));
  EXPECT_EQ(one["k_independent"], true) << one["k_dependent_because"];
  EXPECT_EQ(one["steps"], 4);
  for (const char* const devices : {"--devices=cpu:2", "--devices=cpu:4"}) {
    const bool two = devices == std::string("--devices=cpu:2");
    const auto other = report(
        program, with({"--max_steps=4", devices, two ? "--data_workers=0" : "--data_workers=3"}));
    EXPECT_EQ(other["params_hash"], one["params_hash"]) << devices;
    EXPECT_EQ(other["state_hash"], one["state_hash"]) << devices;
    EXPECT_EQ(other["validation_loss"], one["validation_loss"]) << devices;
  }
  const TemporaryFolder runs;
  const std::string directory = "--run_dir=" + runs.path() + "/run";
  report(program, with({"--max_steps=2", "--devices=" + stopped, directory}));
  const auto resumed =
      report(program, with({"--max_steps=4", "--devices=" + resumed_on, directory}));
  EXPECT_EQ(resumed["state_hash"], one["state_hash"]) << "resumed";
}

// `count` images in the binary form of CIFAR-10.
Bytes cifar(int count) {
  Bytes bytes;
  for (int i = 0; i < count; ++i) {
    bytes.push_back(static_cast<std::byte>(i % 10));
    for (int j = 0; j < 3072; ++j)
      bytes.push_back(static_cast<std::byte>((i * 31 + j * (1 + i % 10)) % 251));
  }
  return bytes;
}

TEST(ResNet20, EndsWithOneHashWhateverTheDevicesWorkersAndStops) {
  if (kSanitized) GTEST_SKIP() << "sanitizers run the reader and the model in other tests";
  const TemporaryFolder data;
  data.write("data_batch_1.bin", cifar(20));
  data.write("test_batch.bin.gz", test::gzip(cifar(4)));
  expect_one_hash("resnet20",
                  {"--data_dir=" + data.path(), "--global_batch_size=8",
                   "--batch_norm=synchronised", "--epochs=3"},
                  "cpu:2", "cpu:2");
}

TEST(ResNet20, RefusesWrongFlagsAndNamesWrongFiles) {
  const char* const why = " cannot train layers that are synchronised over towers: ";
  expect_refused("resnet20",
                 {"--batch_norm=synchronised", "--trainer=async", "--devices=cpu:2", "--dry_run"},
                 cat("error: --trainer=async", why));
  expect_refused("resnet20",
                 {"--batch_norm=synchronised", "--trainer=async", "--async=free", "--devices=cpu:2",
                  "--dry_run"},
                 cat("error: --async=free", why));
  expect_refused("train_bench",
                 {"--model=resnet20", "--batch_norm=synchronised", "--trainer=async",
                  "--devices=cpu:2", "--dry_run"},
                 cat("error: async: --trainer=async", why));
  expect_refused("resnet20", {"--batch_norm=towers"},
                 "--batch_norm=towers is none of tower, synchronised; did you mean 'tower'?");
  expect_refused("resnet20", {"--devices=cpu:3"},
                 "the program's --global_batch_size=128 cannot be divided among 3 devices alike");
  expect_refused("resnet20", {"--bad_records=skip"}, "--bad_records=skip: 'skip' is neither stop");
  expect_refused("resnet20", {"--data_workers=-1"}, "--data_workers=-1");
  const TemporaryFolder data;
  const std::string folder = "--data_dir=" + data.path();
  expect_refused("resnet20", {folder}, data.path() + " has no file data_batch_*.bin", 1);
  expect_refused("resnet20", {"--data_dir=/nonexistent"}, "with the data files (--data_dir)", 1);
  Bytes bytes = cifar(9);
  bytes[3073 * 2] = std::byte{77};
  data.write("data_batch_1.bin", bytes);
  data.write("test_batch.bin", cifar(2));
  expect_refused(
      "resnet20", {folder},
      "data_batch_1.bin: bad record at byte 6146: expected a label from 0 to 9, found 77", 1);
  const Finished skipped =
      run("resnet20", {folder, "--bad_records=skip:1", "--global_batch_size=2", "--max_steps=1"});
  EXPECT_EQ(skipped.status, 0) << skipped.errors;
  EXPECT_THAT(skipped.errors, HasSubstr("found 77; left out, 1 of at most 1"));
  EXPECT_THAT(skipped.output, AllOf(HasSubstr("CIFAR-10, 8 training images"),
                                    HasSubstr("left out            1 bad record\n")));
}

void write_text(const TemporaryFolder& data) {
  std::string text;
  for (int i = 0; text.size() < 2000; ++i) text += cat("line ", i * i % 97, ", and so on.\n");
  data.write("input.txt", test::as_bytes(text));
}

TEST(Gpt, EndsWithOneHashWhateverTheDevicesWorkersAndStops) {
  if (kSanitized) GTEST_SKIP() << "sanitizers run the reader and the model in other tests";
  const TemporaryFolder data;
  write_text(data);
  expect_one_hash("gpt", {"--data_dir=" + data.path()}, "cpu:2", "cpu:1");
}

TEST(LstmExample, EndsWithOneHashWhateverTheDevicesWorkersAndStops) {
  if (kSanitized) GTEST_SKIP() << "sanitizers run the layers in other tests";
  const TemporaryFolder data;
  write_text(data);
  expect_one_hash("lstm", {"--data_dir=" + data.path(), "--shards=4"}, "cpu:2", "cpu:1");
}

TEST(Gpt, WritesASampleOfTextAtTheEndAndWhenAsked) {
  const TemporaryFolder data;
  write_text(data);
  const std::string folder = "--data_dir=" + data.path(),
                    runs = "--run_dir=" + data.path() + "/run";
  const Finished first = run("gpt", {folder, runs, "--max_steps=1"});
  EXPECT_EQ(first.status, 0) << first.errors;
  EXPECT_THAT(first.output, HasSubstr("sample after step 1:\n"));
  const Finished asked = run("gpt", {folder, runs, "--max_steps=1", "--sample=line 7"});
  EXPECT_EQ(asked.status, 0) << asked.errors;
  EXPECT_THAT(asked.output, AllOf(HasSubstr("this run has ended before"),
                                  HasSubstr("sample after step 1:\nline 7")));
  for (const char* const other : {"--dry_run", "--max_steps=1"})
    expect_refused("gpt", {folder, "--sample=Q", other},
                   "--sample=Q: a sample of text cannot begin with 'Q': the character 'Q' is none "
                   "of");
}

TEST(Gpt, TakesBytesAndTokenFiles) {
  const TemporaryFolder data;
  write_text(data);
  const std::string folder = "--data_dir=" + data.path();
  EXPECT_EQ(report("gpt", {folder, "--tokens=bytes", "--max_steps=1"})["flags"]["tokens"], "bytes");
  for (const char* const name : {"a_train.bin", "a_val.bin"}) {
    std::vector<std::int32_t> header(256);
    header[0] = 20240520;
    header[1] = 1;
    header[2] = 300;
    std::vector<std::uint16_t> tokens(300);
    for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<std::uint16_t>(i % 90);
    const auto first = std::as_bytes(std::span(header)), second = std::as_bytes(std::span(tokens));
    Bytes bytes(first.begin(), first.end());
    bytes.insert(bytes.end(), second.begin(), second.end());
    data.write(name, bytes);
  }
  report("gpt", {folder, "--tokens=llmc", "--vocabulary=90", "--max_steps=1"});
  expect_refused("gpt", {folder, "--tokens=llmc", "--vocabulary=80", "--max_steps=1"},
                 "expected a token below 80, found 80, which the model does not know "
                 "(--vocabulary)",
                 1);
}

TEST(Gpt, RefusesWrongFlagsAndNamesWrongFiles) {
  expect_refused("gpt", {"--tokens=words"}, "--tokens=words is none of characters, bytes, llmc");
  expect_refused("gpt", {"--devices=cpu:8"}, "--global_batch_size=12 cannot be divided among 8");
  expect_refused("gpt", {"--tokens=llmc"}, "token files of llm.c are not generated", 1);
  const TemporaryFolder data;
  expect_refused("gpt", {"--data_dir=" + data.path()}, data.path() + "/input.txt", 1);
  expect_refused("gpt", {"--tokens=llmc", "--data_dir=/nonexistent"},
                 "with the data files (--data_dir)", 1);
  expect_refused("gpt", {"--tokens=llmc", "--sample=a"},
                 "--sample has no use beside --tokens=llmc");
  expect_refused("gpt", {"--label_smoothing=2"}, "--label_smoothing=2 is not a number from 0 to 1");
}

// With and without a plan, for text of a file and for generated text.
TEST(Gpt, RefusesAVocabularyThatIsTooSmall) {
  const TemporaryFolder data;
  write_text(data);
  expect_refused("gpt", {"--vocabulary=1000000000"},
                 "--vocabulary=1000000000 is not a whole number from 0 to 1114112");
  for (const std::string& text : {std::string("--seed=1"), "--data_dir=" + data.path()})
    for (const char* const other : {"--dry_run", "--max_steps=1"}) {
      expect_refused("gpt", {"--vocabulary=10", text, other},
                     "the model knows 10 different tokens, and must know as many");
    }
  expect_refused("gpt", {"--tokens=bytes", "--vocabulary=255", "--data_dir=" + data.path()},
                 "error: --vocabulary=255: 2");
}

// A preset is nothing but flags: those that are given win, of a file or on the command line.
TEST(Gpt, PresetsStandForFlags) {
  const auto config = [](std::vector<std::string> flags) {
    flags.emplace_back("--print_config");
    const Finished done = run("gpt", flags);
    EXPECT_EQ(done.status, 0) << done.errors;
    return nlohmann::json::parse(done.output);
  };
  const auto tiny = config({"--preset=llama-tiny"});
  EXPECT_FALSE(tiny.contains("preset"));
  EXPECT_EQ(tiny["architecture"], "llama");
  EXPECT_EQ(tiny["kv_heads"], 4);
  EXPECT_EQ(config({"--layers=2", "--preset", "llama-tiny"})["layers"], 2);
  EXPECT_EQ(config({"--preset=gpt2-124m", "--preset=char"})["width"], 128);
  const TemporaryFolder folder;
  folder.write("c.json", test::as_bytes(std::string(R"({"preset": "gpt2-124m", "layers": 3})")));
  const std::string file = "--config=" + folder.path() + "/c.json";
  EXPECT_EQ(config({file})["layers"], 3);
  EXPECT_EQ(config({file})["width"], 768);
  EXPECT_EQ(config({file, "--preset=llama-tiny"})["layers"], 4);
  expect_refused("gpt", {"--preset=gpt2-124"}, "did you mean 'gpt2-124m'?");
  expect_refused("gpt", {"--heads=3", "--dry_run"}, "--heads=3 does not divide the width 128");
}

TEST(Gpt, OfLlamaTrainsAndWrites) {
  const TemporaryFolder data;
  write_text(data);
  const std::vector<std::string> flags{"--data_dir=" + data.path(), "--preset=llama-tiny",
                                       "--layers=1", "--sequence_length=8", "--max_steps=2"};
  auto on_two = flags;
  on_two.emplace_back("--devices=cpu:2");
  EXPECT_EQ(report("gpt", flags)["state_hash"], report("gpt", on_two)["state_hash"]);
  EXPECT_THAT(run("gpt", flags).output, HasSubstr("sample after step 2:\n"));
}

TEST(Gpt, SmoothsItsLabels) {
  const TemporaryFolder data;
  write_text(data);
  const auto smooth = report("gpt", {"--data_dir=" + data.path(), "--max_steps=2",
                                     "--label_smoothing=0.5", "--weight_decay=0", "--clip_norm=1"});
  EXPECT_EQ(smooth["flags"]["label_smoothing"], 0.5);
  EXPECT_EQ(smooth["weight_decay"], 0);
  const auto plain = report(
      "gpt", {"--data_dir=" + data.path(), "--max_steps=2", "--weight_decay=0", "--clip_norm=1"});
  EXPECT_NE(smooth["params_hash"], plain["params_hash"]);
  EXPECT_GT(plain["examples_per_second"], 0);
  EXPECT_EQ(plain["tokens_per_second"], 64 * plain["examples_per_second"].get<double>());
}

void write_records(const TemporaryFolder& data, const std::string& name, int count) {
  std::string file;
  for (int i = 0; i < count; ++i) {
    const test::PlainImage image = test::ramp(20 + static_cast<std::uint32_t>(i), 26);
    file += test::tf_record(
        test::image_example(i % 2 == 0 ? test::png_of(image) : test::jpeg_of(image), i % 7 + 1));
  }
  data.write(name, test::as_bytes(file));
}

TEST(ResNet50, TrainsOnTfRecordsWithOneHashForOneAndTwoDevices) {
  if (kSanitized) GTEST_SKIP() << "sanitizers run the reader and the model in other tests";
  const TemporaryFolder data;
  write_records(data, "train-00000-of-00001", 5);
  write_records(data, "validation-00000-of-00001", 2);
  const std::vector<std::string> flags{
      "--data_dir=" + data.path(), "--image_size=32", "--label_offset=1", "--global_batch_size=4",
      "--batch_norm=synchronised", "--max_steps=2",   "--shards=2",       "--epochs=2"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.end(), flags.begin(), flags.end());
    return report("resnet50", more);
  };
  const auto one = with({"--devices=cpu:1"});
  for (const char* const workers : {"--data_workers=0", "--data_workers=2"})
    EXPECT_EQ(with({"--devices=cpu:2", workers})["state_hash"], one["state_hash"]) << workers;
}

TEST(ResNet, OfEveryDepthIsKnownByItsFlag) {
  const Finished done = run("resnet", {"--depth=18", "--summary"});
  EXPECT_EQ(done.status, 0) << done.errors;
  EXPECT_THAT(done.output, HasSubstr("11,689,512"));
  expect_refused("resnet", {"--depth=20"}, "--depth=20 is not one of 18, 34, 50, 101, 152");
}

TEST(ResNet50, NamesABadRecordAndWhatAFolderLacks) {
  const TemporaryFolder data;
  const std::string folder = "--data_dir=" + data.path();
  expect_refused("resnet50", {folder}, "has no file named train-*", 1);
  expect_refused("resnet50", {"--data_dir=/nonexistent"}, "with the data files (--data_dir)", 1);
  expect_refused("resnet50", {"--image_size=8"}, "--image_size=8 is not a number from 32 to 4096");
  write_records(data, "train-0", 2);
  write_records(data, "validation-0", 1);
  expect_refused("resnet50",
                 {folder, "--image_size=32", "--global_batch_size=2", "--label_offset=2"},
                 "train-0: bad record at byte 0: the label 1 less the offset 2 is no class", 1);
}

TEST(Vae, EndsWithOneHashWhateverTheDevicesWorkersAndStops) {
  if (kSanitized) GTEST_SKIP() << "sanitizers run the reader and the model in other tests";
  const test::SmallDigits data;
  expect_one_hash("vae", {"--data_dir=" + data.path()}, "cpu:4", "cpu:1");
}

// With their default number of shards.
TEST(SmallBatches, GiveOneHashAndOneValidationLossOnUpToFourDevices) {
  if (kSanitized) GTEST_SKIP() << "sanitizers run the models in other tests";
  const test::SmallDigits digits;
  for (const char* const program : {"vae", "gan"}) {
    nlohmann::json one;
    for (const int devices : {1, 2, 4}) {
      SCOPED_TRACE(cat(program, " on ", devices, " devices"));
      const auto made = report(program, {"--data_dir=" + digits.path(), "--max_steps=2",
                                         "--global_batch_size=16", cat("--devices=cpu:", devices)});
      if (devices == 1) one = made;
      for (const char* const value : {"shards", "state_hash", "validation_loss"})
        EXPECT_EQ(made[value], one[value]) << value;
    }
  }
}

TEST(ModelsOfPapers, EndWithOneHashWhateverTheDevicesWorkersAndStops) {
  if (kSanitized) GTEST_SKIP() << "sanitizers run the ops and layers in other tests";
  const test::SmallDigits digits;
  for (const char* const program : {"unet", "moe", "pointnet", "ctc", "flow"}) {
    SCOPED_TRACE(program);
    expect_one_hash(program, {"--data_dir=" + digits.path(), "--global_batch_size=8", "--shards=8"},
                    "cpu:2", "cpu:1");
  }
  const TemporaryFolder data;
  data.write("data_batch_1.bin", cifar(20));
  data.write("test_batch.bin.gz", test::gzip(cifar(4)));
  const std::vector<std::string> flags{"--data_dir=" + data.path(), "--global_batch_size=8",
                                       "--shards=8"};
  expect_one_hash("vit", flags, "cpu:2", "cpu:1");
  write_text(data);
  expect_one_hash("bert", flags, "cpu:2", "cpu:1");
}

TEST(Vit, TrainsOnImagesOfImagenetOrOfCifar10) {
  const std::vector<std::string> small{"--preset=ti16", "--image_size=32", "--classes=5",
                                       "--layers=1",    "--max_steps=1",   "--global_batch_size=2"};
  EXPECT_EQ(report("vit", small)["steps"], 1);
  expect_refused("vit", {"--image_size=64"}, "--data_format=cifar10 has 10 classes of images");
  expect_refused("vit", {"--patch=5", "--dry_run"}, "--patch=5 does not divide the 32 pixels");
  expect_refused("vit", {"--preset=b32"}, "did you mean 'b16'?");
}

TEST(ModelsOfPapers, TakeTheirSizesFromFlags) {
  if (kSanitized) GTEST_SKIP() << "sanitizers run the ops and layers in other tests";
  const TemporaryFolder data;
  write_text(data);
  const std::vector<std::string> text{"--data_dir=" + data.path(), "--max_steps=2", "--layers=1",
                                      "--width=16", "--sequence_length=8"};
  const auto encoder = report("bert", text);
  EXPECT_EQ(encoder["tokens_per_second"], 8 * encoder["examples_per_second"].get<double>());
  std::vector<std::string> odd = text;
  odd.emplace_back("--heads=3");
  expect_refused("bert", odd, "3 heads do not divide the width", 1);

  const test::SmallDigits digits;
  const std::vector<std::string> images{"--data_dir=" + digits.path(), "--max_steps=1",
                                        "--global_batch_size=8", "--width=4", "--levels=3"};
  expect_refused("unet", images, "--image_size=28 cannot be halved 3 times (--levels)");
  std::vector<std::string> larger = images;
  larger.emplace_back("--image_size=32");
  EXPECT_EQ(report("unet", larger)["flags"]["image_size"], 32);
}

TEST(FindSource, FindsIt) {
  if (kSanitized) GTEST_SKIP() << "sanitizers run the ops in other tests";
  const Finished done = run("find_source", {});
  EXPECT_EQ(done.status, 0) << done.errors;
  EXPECT_EQ(done.errors, "");
  EXPECT_THAT(done.output, HasSubstr("at (0.300000000, 0.400000000), rate exp(1.000000000)"));
}

TEST(Vae, HasTheSameNoiseInEachEvaluation) {
  const test::SmallDigits data;
  const std::string folder = "--data_dir=" + data.path(), run = data.path() + "/run";
  const auto trained = report("vae", {folder, "--max_steps=2", "--run_dir=" + run});
  const auto again = report("vae", {folder, "--evaluate_only", "--load=" + run});
  EXPECT_EQ(again["validation_loss"], trained["validation_loss"]);
}

TEST(Vae, LearnsToDrawAndToCode) {
  if (kSanitized) GTEST_SKIP() << "too slow under sanitizers";
  const auto after = [](const char* steps) {
    return report("vae", {"--devices=cpu:2", "--eval_batches=8", steps});
  };
  const auto early = after("--max_steps=10"), late = after("--max_steps=300");
  const auto metric = [](const nlohmann::json& result, const char* name) {
    return result["metrics"][cat("validation_", name)].get<double>();
  };
  for (const auto& result : {early, late})
    EXPECT_NEAR(metric(result, "loss"),
                metric(result, "reconstruction") + metric(result, "divergence"), 1e-3);
  EXPECT_LT(metric(late, "loss"), 0.5 * metric(early, "loss"));
  EXPECT_GT(metric(late, "divergence"), 1) << "codes say something about digits";
  EXPECT_EQ(late["k_independent"], true);
}

// Trains on real data, if $BELFRY_DATA_DIR has them. docs/benchmarks.md has PyTorch's figures for
// the same recipes.
class RealData : public testing::Test {
 protected:
  void SetUp() override {
    const char* const folder = std::getenv("BELFRY_DATA_DIR");
    if (!folder || !*folder) GTEST_SKIP() << "BELFRY_DATA_DIR names no folder";
    if (kSanitized) GTEST_SKIP() << "too slow under sanitizers";
    folder_ = folder;
  }
  std::string folder_;
};

TEST_F(RealData, LongResNet20LearnsCifar10In12Epochs) {
  double sum = 0;
  for (int seed = 1; seed <= 5; ++seed) {
    const auto result = report("resnet20", {"--data_dir=" + folder_ + "/cifar-10-batches-bin",
                                            cat("--seed=", seed), "--devices=cpu:2"});
    sum += result["validation_accuracy"].get<double>();
  }
  EXPECT_GE(sum / 5, 0.633);
}

TEST_F(RealData, LongResNet20EndsWithOneHashOnOneAndFourDevices) {
  const auto hash = [&](const char* devices) {
    return report("resnet20", {"--data_dir=" + folder_ + "/cifar-10-batches-bin", devices,
                               "--batch_norm=synchronised"})["state_hash"]
        .get<std::string>();
  };
  EXPECT_EQ(hash("--devices=cpu:4"), hash("--devices=cpu:1"));
}

TEST_F(RealData, LongGptLearnsToWriteIn2000Steps) {
  double sum = 0;
  for (int seed = 1; seed <= 3; ++seed) {
    const auto result = report("gpt", {"--data_dir=" + folder_ + "/tinyshakespeare",
                                       cat("--seed=", seed), "--devices=cpu:2"});
    EXPECT_EQ(result["steps"], 2000);
    sum += result["validation_loss"].get<double>();
  }
  EXPECT_LE(sum / 3, 1.893);
}

}  // namespace example_models_test
}  // namespace belfry
