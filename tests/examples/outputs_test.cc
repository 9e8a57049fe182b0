// The outputs and inputs of programs if a shell passes something else than files.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sys/stat.h>

#include "belfry/framework/base/file_system.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/checkpoint/checkpoint.h"
#include "belfry/tests/support/programs.h"
#include "belfry/trainers/runs/run_checkpoints.h"

namespace belfry {
namespace outputs_test {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

const std::string kTrain = "linear_regression --epochs=1 ";

// Commands of a shell run in a folder of their own.
class ShellTest : public testing::Test {
 protected:
  ShellTest() : folder_(temporary_path(".shell")) { local_file_system().create_directory(folder_); }
  ~ShellTest() override { remove_tree(local_file_system(), folder_); }

  // Runs a command with the programs of the build on the PATH.
  Finished shell(const std::string& command) const {
    return run_program(
        "sh", {"-c", cat("cd ", folder_, " && PATH=", BELFRY_BIN_DIR, ":$PATH; ", command)});
  }
  std::string path(const std::string& name) const { return cat(folder_, "/", name); }
  std::string text(const std::string& name) const {
    const std::vector<std::byte> bytes = local_file_system().read(path(name));
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
  std::vector<std::string> listed() const { return local_file_system().list(folder_); }

  std::string folder_;
};

TEST_F(ShellTest, RedirectedLogsAreAddedToAndNeverReplaced) {
  const std::pair<std::string, std::string> flags[] = {
      {"linear_regression --max_steps=3 --json=/dev/stderr", "2>>log"},
      {"linear_regression --max_steps=3 --trace_file=/dev/stderr", "2>>log"},
      {"linear_regression --max_steps=3 --json=/dev/fd/3", "3>>log"},
      {"linear_regression --max_steps=3 --json=/proc/self/fd/1", ">>log"},
      {"linear_regression --max_steps=3 --json=log", ">>log"},
      {"allreduce_bench -b 8 -e 8 -n 1 --csv=/dev/stderr", "2>>log"},
      {"train_bench --model=mlp --num_batches=1 --num_warmup_batches=1 --strategies=naive "
       "--repetitions=1 --plot=/dev/stderr",
       "2>>log"}};
  for (const auto& [command, redirection] : flags) {
    write_text_file(local_file_system(), path("log"), "before\n");
    const Finished done = shell(cat(command, " ", redirection));
    EXPECT_EQ(done.status, 0) << command << done.errors;
    EXPECT_THAT(text("log"), StartsWith("before\n")) << command;
    EXPECT_GT(text("log").size(), 100u) << command;
    EXPECT_THAT(listed(), ElementsAre("log")) << command;
  }
}

TEST_F(ShellTest, AnOutputThatCannotBeWrittenIsRefusedAtOnceAndMakesNothing) {
  const std::pair<const char*, const char*> refusals[] = {
      {"mkfifo pipe; linear_regression --json=pipe", "pipe is a pipe that no process reads"},
      {"linear_regression --json=new/", "new/ names a directory"},
      {"linear_regression --json=.", ". names a directory"},
      {"linear_regression --json=/dev/fd/9", "Bad file descriptor"},
      {"linear_regression --json=/dev/stdin </dev/null", "is open to be read alone"}};
  for (const auto& [command, why] : refusals) {
    const Finished done = shell(command);
    EXPECT_EQ(done.status, 2) << command;
    EXPECT_EQ(done.output, "") << command;
    EXPECT_THAT(done.errors, HasSubstr(why));
  }
  EXPECT_THAT(listed(), ElementsAre("pipe"));
}

TEST_F(ShellTest, EveryProgramRefusesAFileThatCannotBeWrittenBeforeItWorks) {
  const std::string bench = "train_bench --model=mlp ";
  const std::string commands[] = {"linear_regression --json=no/x",
                                  "linear_regression --memory_report=no/x",
                                  "linear_regression --dry_run --json=no/x",
                                  "linear_regression --trace_file=no/x",
                                  bench + "--json=no/x",
                                  bench + "--memory_report=no/x",
                                  bench + "--strategies=naive --plot=no/x",
                                  bench + "--trace_file=no/x",
                                  "allreduce_bench --json=no/x",
                                  "allreduce_bench --csv=no/x",
                                  "peak_bench --devices=cpu:1 --json=no/x",
                                  "gan --json=no/x",
                                  "predict none --json=no/x",
                                  "predict none --probabilities=no/x",
                                  "belfry checkpoint ls none --json=no/x",
                                  "belfry checkpoint diff none none --json=no/x",
                                  "belfry plot none --out=no/x"};
  for (const std::string& command : commands) {
    const Finished done = shell(command);
    EXPECT_EQ(done.status, 2) << command << done.errors;
    EXPECT_EQ(done.output, "") << command;
    const std::string flag = command.substr(command.rfind("--"));
    EXPECT_EQ(done.errors, cat("error: ", flag, " cannot be written: there is no folder ", folder_,
                               "/no; make it, or write elsewhere\n"))
        << command;
  }
  EXPECT_TRUE(listed().empty());
}

TEST_F(ShellTest, AReplacedJsonKeepsItsPermissions) {
  EXPECT_EQ(shell("echo old > r.json; chmod 600 r.json; " + kTrain + "--json=r.json").status, 0);
  struct stat status = {};
  ASSERT_EQ(::stat(path("r.json").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
  EXPECT_EQ(nlohmann::json::parse(text("r.json"))["epochs"], 1);
}

TEST_F(ShellTest, AFullOrClosedStandardOutputIsAnErrorOfEveryProgram) {
  const std::string commands[] = {kTrain,
                                  kTrain + "--help",
                                  "linear_regression --dry_run",
                                  "mnist --help",
                                  "belfry --help",
                                  "belfry checkpoint ls --help",
                                  "placement",
                                  "colocation .",
                                  "allreduce_bench -b 8 -e 8 -n 1",
                                  "allreduce_bench --help",
                                  "train_bench --model=mlp --num_batches=1 --num_warmup_batches=1"};
  for (const std::string& command : commands)
    for (const char* redirection : {">/dev/full", ">&-"}) {
      const Finished done = shell(cat(command, " ", redirection));
      EXPECT_EQ(done.status, 1) << command << redirection;
      EXPECT_THAT(done.errors, HasSubstr("error: standard output could not be written")) << command;
    }
}

TEST_F(ShellTest, ALostStandardOutputLosesNoRun) {
  for (const char* redirection : {">/dev/full", ">&-", "<&- >&- 2>&-", "| head -n 1 >/dev/null"}) {
    const Finished done =
        shell(cat("linear_regression --epochs=9 --run_dir=saved "
                  "--json=r.json ",
                  redirection));
    EXPECT_EQ(nlohmann::json::parse(text("r.json"))["epochs"], 9) << redirection;
    EXPECT_EQ(inspect_checkpoint(latest_checkpoint_of(path("saved"))).extra.at("epoch").integer(),
              9)
        << redirection;
    EXPECT_THAT(listed(), ElementsAre("r.json", "saved")) << redirection;
    EXPECT_EQ(shell("rm -r r.json saved").status, 0);
  }
}

TEST_F(ShellTest, AReaderThatGoesIsNoErrorOfATraining) {
  const Finished done =
      shell("{ linear_regression --epochs=9; echo $? >status; } | head -n 1 >/dev/null");
  EXPECT_EQ(text("status"), "0\n");
  EXPECT_EQ(done.errors, "");
}

TEST_F(ShellTest, ARunSaysTheExitCodeThatItsProgramHas) {
  const std::pair<const char*, int> endings[] = {{"| head -n 1 >/dev/null", 0},
                                                 {"| true", 0},
                                                 {">/dev/full", 1},
                                                 {">&-", 1},
                                                 {"--json=/dev/full", 1},
                                                 {"--max_time=1 --epochs=9999999 >/dev/full", 143},
                                                 {"--learning_rate=1e30", 1}};
  for (const auto& [ending, code] : endings) {
    SCOPED_TRACE(ending);
    // In a pipe another command is the last one.
    const std::string command =
        cat("linear_regression --epochs=5 --run_dir=run ", ending[0] == '|' ? "" : ending);
    shell(cat("{ ", command, "; echo $? >status; } ", ending[0] == '|' ? ending : ""));
    EXPECT_EQ(text("status"), cat(code, "\n"));
    const auto summary = nlohmann::json::parse(text("run/summary.json"));
    EXPECT_EQ(summary["exit_code"], code);
    EXPECT_EQ(summary["error"].is_null(), code == 0);
    const bool is_trained = code == 0 || summary["error"]["code"] == "IO";
    EXPECT_EQ(summary["finished"], is_trained && code != 143);
    if (summary["finished"]) {
      EXPECT_THAT(shell("linear_regression --epochs=5 --run_dir=run").output,
                  HasSubstr("this run has ended before"));
    }
    EXPECT_EQ(shell("rm -r run").status, 0);
  }
}

TEST_F(ShellTest, ADashIsStandardOutputForEveryFile) {
  const std::pair<std::string, const char*> commands[] = {
      {"allreduce_bench -b 8 -e 8 -n 1 --csv=-", "strategy,canonical,"},
      {"allreduce_bench -b 8 -e 8 -n 1 --json=-", "[\n"},
      {kTrain + "--json=-", "{\n"},
      {kTrain + "--trace_file=-", "{"},
      {"train_bench --model=mlp --num_batches=1 --num_warmup_batches=1 --json -", "{\n"},
      {"peak_bench --devices=cpu:1 -b 1K --size=8 -n 1 --json=-", "{\n"}};
  for (const auto& [command, begin] : commands) {
    const Finished done = shell(command);
    EXPECT_EQ(done.status, 0) << command << done.errors;
    EXPECT_THAT(done.output, StartsWith(begin)) << command;
    EXPECT_THAT(listed(), ElementsAre()) << command;
  }
  EXPECT_EQ(shell(kTrain + "--json=- --trace_file=/dev/stdout").errors,
            "error: --json=- and --trace_file=/dev/stdout would overwrite each other\n");
  EXPECT_EQ(shell(kTrain + "--json=./-").status, 0);
  EXPECT_THAT(listed(), ElementsAre("-"));
}

TEST_F(ShellTest, AnOpenDescriptorIsTheFileThatItLeadsTo) {
  for (const char* redirection : {"3>>log", "3>log"}) {
    const Finished done = shell(cat(kTrain, "--json=/dev/fd/3 --trace_file=log ", redirection));
    EXPECT_EQ(done.errors,
              "error: --json=/dev/fd/3 and --trace_file=log would overwrite each other\n");
    EXPECT_EQ(text("log"), "");
  }
  // A file with two names is replaced under one name alone.
  EXPECT_EQ(shell("ln log other").status, 0);
  EXPECT_EQ(shell(kTrain + "--json=/dev/fd/3 --trace_file=other 3>>log").status, 0);
  EXPECT_EQ(nlohmann::json::parse(text("log"))["epochs"], 1);
  EXPECT_TRUE(nlohmann::json::parse(text("other")).contains("traceEvents"));
}

TEST_F(ShellTest, ARunWithoutAStepSaysThatItHasNoTrace) {
  EXPECT_EQ(shell(kTrain + "--run_dir=saved").status, 0);
  const Finished done = shell(kTrain + "--resume=saved --trace_file=trace.json");
  EXPECT_EQ(done.status, 0) << done.errors;
  EXPECT_THAT(done.errors, HasSubstr("W --trace_file=trace.json was not written: this run ended "
                                     "after 0 steps, before one to trace; train longer"));
  EXPECT_THAT(listed(), ElementsAre("saved"));
}

TEST_F(ShellTest, OneLostFileLosesNoOther) {
  const Finished done = shell("allreduce_bench -b 8 -e 8 -n 1 --csv=/dev/full --json=r.json");
  EXPECT_EQ(done.status, 1);
  EXPECT_THAT(done.errors, HasSubstr("error: --csv=/dev/full could not be written: "));
  EXPECT_EQ(nlohmann::json::parse(text("r.json")).size(), 2u);
}

TEST_F(ShellTest, InputsThatAreNoFilesAreRefusedByName) {
  const std::string links = "linear_regression --allreduce=auto --links=";
  const std::pair<std::string, const char*> refusals[] = {
      {links + "/dev/zero", "--links=/dev/zero: /dev/zero: is a device, not a file to read"},
      {"mkfifo pipe; " + links + "pipe", "pipe: is a pipe, not a file to read"},
      {links + ".", ".: is a directory, not a file to read"},
      {"truncate -s 1T large; " + links + "large", "large: has 1099511627776 bytes, more than"},
      {"mkdir data; for f in train-images-idx3 train-labels-idx1; do ln -s /dev/zero "
       "data/$f-ubyte; done; mnist --data_dir=data",
       "is a device, not a file to read"},
      {"mkdir saved; mkfifo saved/manifest.json; linear_regression --resume=saved",
       "saved/manifest.json: is a pipe, not a file to read"}};
  for (const auto& [command, why] : refusals) {
    const Finished done = shell(command);
    EXPECT_EQ(done.status, command.find(links) != command.npos ? 2 : 1) << command;
    EXPECT_THAT(done.errors, HasSubstr(why));
  }
}

TEST_F(ShellTest, WrongJsonIsToldByFileLineAndColumn) {
  const std::pair<const char*, const char*> refusals[] = {
      {R"({"devices": ["gpu:0",\n ]})", "line 2, column 2: unexpected ']'; expected "},
      {R"({"devices": 3})", "line 1, column 13: expected an array, found 3"},
      {R"({"devices": ["gpu:0", "gpu:1"],\n "other_links": {}})",
       "line 2, column 17: there is no member 'gbps' in this object"}};
  for (const auto& [json, why] : refusals) {
    const Finished done = shell(cat("printf '", json,
                                    "' > l.json; linear_regression "
                                    "--allreduce=auto --links=l.json"));
    EXPECT_EQ(done.status, 2) << json;
    EXPECT_THAT(done.errors, HasSubstr(cat("error: --links=l.json: ", why)));
  }
}

}  // namespace outputs_test
}  // namespace belfry
