// A run takes, tidies and removes what is its own, and nothing else.
#include "belfry/trainers/runs/run_directory.h"

#include <fstream>

#include <gmock/gmock.h>

#include "belfry/framework/base/error.h"
#include "belfry/tests/trainers/runs/saved_runs.h"

namespace belfry {
namespace run_directory_test {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::UnorderedElementsAre;

constexpr char kConfig[] = R"({"devices": "cpu:1", "chosen": {"trainer": "simple"}})";

class RunDirectoryTest : public SavedRunsTest {
 protected:
  void write(const std::string& name, const std::string& text = "text") {
    const std::filesystem::path path = at("run/" + name);
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }
  std::string refusal() {
    try {
      RunDirectory directory(at("run"));
    } catch (const IoError& error) {
      return error.what();
    }
    return "";
  }
  // All paths below the run, sorted.
  std::vector<std::string> tree() const {
    std::vector<std::string> paths;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(at("run")))
      if (!entry.is_directory())
        paths.push_back(entry.path().lexically_relative(at("run")).string());
    std::ranges::sort(paths);
    return paths;
  }
};

TEST_F(RunDirectoryTest, IsNoFolderOfAnotherProgram) {
  const std::vector<std::pair<std::string, std::string>> folders[] = {
      {{"config.json", R"({"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2"})"},
       {"model.safetensors", "weights"}},
      {{"config.json", R"(["devices", "chosen"])"}},
      {{"config.json", "no JSON"}},
      {{"checkpoints/step-00000010/pytorch_model.bin", "weights"}},
      {{"checkpoints/last.ckpt", "weights"}},
      {{"checkpoints", "a file"}},
      {{"notes.txt", "text"}, {"log.txt", "text"}}};
  for (const auto& folder : folders) {
    for (const auto& [name, text] : folder) write(name, text);
    const std::vector<std::string> before = tree();
    EXPECT_THAT(refusal(), HasSubstr("holds files, but no run (no")) << folder[0].second;
    EXPECT_EQ(tree(), before);
    std::filesystem::remove_all(at("run"));
  }
}

TEST_F(RunDirectoryTest, IsOneWithItsConfigurationOrWithItsCheckpoints) {
  write("config.json", kConfig);
  write("notes.txt");
  EXPECT_EQ(refusal(), "");
  std::filesystem::remove_all(at("run"));
  save_run({3});
  write("stats.jsonl", "");
  EXPECT_EQ(refusal(), "") << "the machine went down before config.json was on the disk";
  write("config.json", "no JSON");
  EXPECT_THAT(refusal(), HasSubstr("no run has written its config.json"));
  std::filesystem::remove_all(at("run"));
  write("config.json.tmp-12-34");
  write("checkpoints/step-00000001.tmp-12-34", "");
  EXPECT_EQ(refusal(), "") << "killed in its first moments";
}

TEST_F(RunDirectoryTest, ClearsWhatARunHasWrittenAndNothingElse) {
  save_run({3, 5});
  for (const char* const name :
       {"stats.jsonl", "hashes.jsonl", "log.txt", "placement.txt", "summary.json",
        "tensorboard/train/events.out.tfevents.00000001", "traces/step-00000003.json",
        "summary.json.tmp-1-2", "traces/step-00000003.json.tmp-1-2",
        "checkpoints/step-00000007.tmp-1-2/manifest.json"})
    write(name);
  write("config.json", kConfig);
  const std::vector<std::string> foreign{"checkpoints/last.ckpt",
                                         "tensorboard/train/events.out.tfevents.170.host.12.0",
                                         "tensorboard/notes.txt", "thesis.tex", "traces/mine.json"};
  for (const std::string& name : foreign) write(name);
  RunDirectory directory(at("run"));
  directory.clear();
  std::vector<std::string> left = tree();
  std::erase(left, "run.lock");
  EXPECT_THAT(left, testing::UnorderedElementsAreArray(foreign));
  EXPECT_TRUE(directory.is_empty());
}

TEST_F(RunDirectoryTest, LeavesACheckpointWithAFileOfSomebodyElse) {
  save_run({3, 5});
  write("config.json", kConfig);
  write("checkpoints/step-00000003/notes.txt");
  write("stats.jsonl");
  RunDirectory directory(at("run"));
  const std::vector<std::string> before = tree();
  EXPECT_THROW(directory.remove_checkpoint(3), IoError);
  EXPECT_THROW(directory.clear(), IoError);
  EXPECT_EQ(tree(), before);
  directory.remove_checkpoint(5);
  EXPECT_THAT(directory.checkpoints(), ElementsAre(3));
}

TEST_F(RunDirectoryTest, IsTidiedOfFilesThatWereBeingWritten) {
  write("config.json", kConfig);
  for (const char* const name :
       {"config.json.tmp-1-2", "placement.txt.tmp-1-2", "summary.json.tmp-1-2",
        "difference.json.tmp-1-2", "traces/step-00000003.json.tmp-1-2"})
    write(name);
  write("mine.json.tmp-1-2");
  write("traces/mine.json.tmp-1-2");
  write("checkpoints/step-00000004.tmp-1-2/notes.txt");
  std::filesystem::create_symlink("step-00000009", at("run/checkpoints/best"));
  RunDirectory directory(at("run"));
  testing::internal::CaptureStderr();
  directory.tidy();
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("notes.txt"));
  EXPECT_THAT(tree(), UnorderedElementsAre("config.json", "run.lock", "mine.json.tmp-1-2",
                                           "traces/mine.json.tmp-1-2",
                                           "checkpoints/step-00000004.tmp-1-2/notes.txt"));
}

}  // namespace run_directory_test
}  // namespace belfry
