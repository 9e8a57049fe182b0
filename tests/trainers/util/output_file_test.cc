#include "belfry/trainers/util/output_file.h"

#include <filesystem>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "belfry/framework/base/text.h"
#include "belfry/tests/support/path_of_test.h"
#include "belfry/trainers/util/flag_values.h"

namespace belfry {
namespace output_file_test {

using testing::HasSubstr;

class OutputFileTest : public testing::Test {
 protected:
  OutputFileTest() { std::filesystem::create_directories(folder_); }
  ~OutputFileTest() override { std::filesystem::remove_all(folder_); }

  std::string path(const char* name) const { return folder_ / name; }
  static std::string text(const std::string& file) {
    const std::vector<std::byte> bytes = local_file_system().read(file);
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }

  const std::filesystem::path folder_ = path_of_test("");
};

TEST_F(OutputFileTest, WritesTheWholeText) {
  OutputFile file(local_file_system(), "--json", path("r.json"));
  EXPECT_FALSE(local_file_system().exists(path("r.json")));
  file.write("{}\n");
  EXPECT_EQ(text(path("r.json")), "{}\n");
  EXPECT_EQ(local_file_system().list(folder_), std::vector<std::string>{"r.json"});
}

TEST_F(OutputFileTest, LeavesAnExistingFileAloneUntilThereAreResults) {
  write_text_file(local_file_system(), path("r.json"), "old");
  OutputFile file(local_file_system(), "--json", path("r.json"));
  EXPECT_EQ(text(path("r.json")), "old");
  file.write("new");
  EXPECT_EQ(text(path("r.json")), "new");
}

TEST_F(OutputFileTest, RefusesToWriteIntoACheckpoint) {
  for (const char* name : {"manifest.json", "model.safetensors", "state.safetensors"})
    write_text_file(local_file_system(), path(name), "old");
  std::filesystem::create_directory_symlink(folder_, folder_.string() + "_link");
  for (const std::string& file :
       {path("model.safetensors"), path("new.json"), folder_.string() + "_link/manifest.json"}) {
    try {
      OutputFile(local_file_system(), "--json", file);
      ADD_FAILURE() << file;
    } catch (const FlagError& error) {
      EXPECT_THAT(error.what(), HasSubstr("--json=" + file + " cannot be written: " +
                                          folder_.string() + " is a checkpoint"));
    }
  }
  EXPECT_EQ(local_file_system().list(folder_).size(), 3u);
  std::filesystem::remove(folder_.string() + "_link");
}

TEST_F(OutputFileTest, KeepsLinksAndReplacesWhatTheyLeadTo) {
  write_text_file(local_file_system(), path("real.json"), "old");
  std::filesystem::create_symlink("real.json", path("link.json"));
  OutputFile(local_file_system(), "--json", path("link.json")).write("new");
  EXPECT_TRUE(std::filesystem::is_symlink(path("link.json")));
  EXPECT_EQ(text(path("real.json")), "new");
}

TEST_F(OutputFileTest, HoldsAPipeOpenFromTheStart) {
  ASSERT_EQ(mkfifo(path("pipe").c_str(), 0600), 0);
  try {
    OutputFile(local_file_system(), "--json", path("pipe"));
    ADD_FAILURE() << "nobody reads";
  } catch (const FlagError& error) {
    EXPECT_THAT(error.what(), HasSubstr("--json=" + path("pipe") + " cannot be written: "));
    EXPECT_THAT(error.what(), HasSubstr("start the reader first"));
  }
  const int reader = ::open(path("pipe").c_str(), O_RDONLY | O_NONBLOCK);
  OutputFile(local_file_system(), "--json", path("pipe")).write("through the pipe");
  std::string got(100, ' ');
  got.resize(static_cast<std::size_t>(::read(reader, got.data(), got.size())));
  ::close(reader);
  EXPECT_EQ(got, "through the pipe");
}

TEST_F(OutputFileTest, AddsToAnOpenDescriptorAndReplacesNothing) {
  write_text_file(local_file_system(), path("log"), "old ");
  const int fd = ::open(path("log").c_str(), O_WRONLY | O_APPEND);
  OutputFile(local_file_system(), "--json", cat("/dev/fd/", fd)).write("new");
  ::close(fd);
  EXPECT_EQ(text(path("log")), "old new");
}

TEST_F(OutputFileTest, KeepsWhatWentWrongForTheEndOfTheRun) {
  if (!local_file_system().exists("/dev/full")) GTEST_SKIP() << "no /dev/full";
  OutputFiles outputs(local_file_system());
  outputs.open("--csv", "/dev/full")->write("lost");
  outputs.open("--json", path("r.json"))->write("kept");
  try {
    outputs.finish();
    ADD_FAILURE() << "the lost file was not told";
  } catch (const IoError& error) {
    EXPECT_THAT(error.what(), HasSubstr("--csv=/dev/full could not be written: "));
  }
  EXPECT_EQ(text(path("r.json")), "kept");
}

TEST_F(OutputFileTest, RefusesWhatCannotBeWritten) {
  try {
    OutputFile(local_file_system(), "--json", path("missing/r.json"));
    ADD_FAILURE() << "a folder that does not exist was accepted";
  } catch (const FlagError& error) {
    EXPECT_EQ(std::string(error.what()), "--json=" + path("missing/r.json") +
                                             " cannot be written: there is no folder " +
                                             path("missing") + "; make it, or write elsewhere");
  }
  std::filesystem::create_directory(path("a; b"));
  for (const std::string& directory : {folder_.string(), path("new/"), path("a; b")}) {
    try {
      OutputFile(local_file_system(), "--json", directory);
      ADD_FAILURE() << directory << " was accepted";
    } catch (const FlagError& error) {
      EXPECT_THAT(error.what(), testing::EndsWith("; write elsewhere"));
    }
  }
  EXPECT_THAT(local_file_system().list(folder_), testing::ElementsAre("a; b"));
}

TEST_F(OutputFileTest, WritesToDevicesAsTheyAre) {
  OutputFile file(local_file_system(), "--json", "/dev/null");
  file.write("{}");
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/null"));
  EXPECT_TRUE(OutputFile(local_file_system(), "--json", "/dev/stdout").is_stdout());
  EXPECT_TRUE(OutputFile(local_file_system(), "--json", "-").is_stdout());
}

// The error of opening a second file; "" if it is opened.
std::string refusal(const std::string& first, const std::string& second) {
  OutputFiles outputs(local_file_system());
  outputs.open("--json", first);
  try {
    outputs.open("--trace_file", second);
    return "";
  } catch (const FlagError& error) {
    return error.what();
  }
}

TEST_F(OutputFileTest, RefusesOneFileForTwoFlagsHoweverItIsSpelled) {
  std::filesystem::create_directory(path("folder"));
  std::filesystem::create_symlink("x.json", path("link.json"));
  std::filesystem::create_directory_symlink("folder", path("other"));
  const std::string file = path("x.json");
  for (const std::string& same : {file, path("./x.json"), path("folder/../x.json"),
                                  path("link.json"), folder_.string() + "//x.json"})
    EXPECT_EQ(refusal(file, same),
              "--json=" + file + " and --trace_file=" + same + " would overwrite each other");
  EXPECT_THAT(refusal(path("folder/x.json"), path("other/x.json")), HasSubstr("overwrite"));
  EXPECT_THAT(refusal("/dev/stdout", "/dev/stdout"), HasSubstr("overwrite"));
  EXPECT_EQ(refusal(file, path("folder/x.json")), "");
  EXPECT_EQ(refusal(file, path("x.json2")), "");
  EXPECT_EQ(refusal("x_that_is_here.json", path("x_that_is_here.json")), "");
}

TEST_F(OutputFileTest, KnowsWhatIsWrittenByOtherMeans) {
  OutputFiles outputs(local_file_system());
  EXPECT_EQ(outputs.open("--json", ""), nullptr);
  ASSERT_TRUE(outputs.open("--json", path("r.json")));
  EXPECT_FALSE(outputs.on_stdout());
  EXPECT_TRUE(outputs.open("--trace_file", "/dev/stdout"));
  EXPECT_TRUE(outputs.on_stdout());
}

TEST_F(OutputFileTest, SparesWhatTheRunReads) {
  std::filesystem::create_directory(path("from"));
  std::filesystem::create_symlink("from", path("link"));
  OutputFiles outputs(local_file_system());
  outputs.reserve_input("--links=l.json", path("l.json"));
  outputs.reserve_input("--other=l.json", path("l.json"));
  outputs.reserve_input("--resume=from", path("from"));
  EXPECT_THROW(outputs.open("--json", path("l.json")), FlagError);
  EXPECT_THROW(outputs.open("--json", path("from/in")), FlagError);
  try {
    outputs.open("--json", path("link/manifest.json"));
    ADD_FAILURE() << "a part of an input was opened";
  } catch (const FlagError& error) {
    EXPECT_EQ(std::string(error.what()),
              cat("--json=", path("link/manifest.json"),
                  " would overwrite what --resume=from reads; write elsewhere"));
  }
  EXPECT_TRUE(outputs.open("--trace_file", path("t.json")));
  EXPECT_THROW(outputs.reserve_input("--data_dir=.", path("t.json")), FlagError);
}

TEST_F(OutputFileTest, SparesFilesOfARunButNotItsFolder) {
  std::filesystem::create_directory(path("run"));
  std::filesystem::create_symlink("run", path("link"));
  OutputFiles outputs(local_file_system());
  outputs.reserve_input("--config=run/c.json", path("run/c.json"));
  outputs.reserve_run("--run_dir=run", path("run"), {"c.json", "s.jsonl", "checkpoints"});
  outputs.reserve_input("--resume=run", path("run"));
  for (const char* const name : {"run/s.jsonl", "link/s.jsonl", "run/checkpoints/x"})
    EXPECT_THROW(outputs.open("--json", path(name)), FlagError) << name;
  OutputFiles others(local_file_system());
  others.reserve_run("--run_dir=run", path("run"), {"s.jsonl"});
  EXPECT_TRUE(others.open("--json", path("run/mine.json")));
  try {
    others.open("--trace_file", path("link/s.jsonl"));
    ADD_FAILURE() << "opened";
  } catch (const FlagError& error) {
    EXPECT_EQ(std::string(error.what()),
              cat("--trace_file=", path("link/s.jsonl"),
                  " would overwrite files of the run --run_dir=run; write elsewhere"));
  }
}

TEST_F(OutputFileTest, NamesThePathThatWasGivenAndSaysWhatToDo) {
  if (!local_file_system().exists("/proc/self/mem")) GTEST_SKIP() << "no /proc/self/mem";
  try {
    OutputFile(local_file_system(), "--json", "/proc/self/mem");
    ADD_FAILURE() << "the memory of a process was accepted";
  } catch (const FlagError& error) {
    EXPECT_THAT(error.what(), HasSubstr("--json=/proc/self/mem cannot be written: "));
    EXPECT_THAT(error.what(), HasSubstr("; write elsewhere"));
    EXPECT_THAT(error.what(), testing::Not(HasSubstr(".tmp-")));
  }
}

}  // namespace output_file_test
}  // namespace belfry
