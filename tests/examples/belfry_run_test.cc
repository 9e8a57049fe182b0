// Runs `belfry run` as people run it.
#include <algorithm>
#include <regex>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/framework/base/file_system.h"
#include "belfry/framework/base/memory_folder.h"
#include "belfry/framework/base/text.h"
#include "belfry/tests/support/programs.h"
#include "belfry/tests/support/sanitizers.h"
#include "belfry/tests/trainers/data/idx_files.h"
#include "belfry/trainers/runs/memory_folders.h"
#include "belfry/trainers/runs/run_directory.h"

namespace belfry {
namespace belfry_run_test {

using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

class BelfryRunTest : public testing::Test {
 protected:
  BelfryRunTest() { local_file_system().create_directory(folder_); }
  ~BelfryRunTest() override { remove_tree(local_file_system(), folder_); }

  // Runs a command in a folder of the test, with the programs of the build on the PATH.
  Finished shell(const std::string& command) const {
    return run_program(
        "sh", {"-c", cat("cd ", folder_, " && PATH=", BELFRY_BIN_DIR, ":$PATH; ", command)});
  }
  std::string text_of(const std::string& file) const {
    const std::vector<std::byte> bytes = local_file_system().read(cat(folder_, "/", file));
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }

  const std::string folder_ = temporary_path(".run");
};

TEST_F(BelfryRunTest, StartsProcessesThatMeetAndKeepsWhatEachPrints) {
  const Finished done = shell(
      "belfry run -n 3 -- sh -c 'echo $RANK of $WORLD_SIZE at "
      "$MASTER_ADDR${MASTER_PORT:+:port}; echo oops $RANK >&2'");
  EXPECT_EQ(done.status, 0) << done.errors;
  EXPECT_EQ(done.output, "0 of 3 at 127.0.0.1:port\n");
  EXPECT_EQ(done.errors, "oops 0\n");
  EXPECT_THAT(text_of("logs/rank_2.log"), AllOf(HasSubstr("2 of 3"), HasSubstr("oops 2")));
  EXPECT_THAT(text_of("logs/rank_0.log"), AllOf(HasSubstr("0 of 3"), HasSubstr("oops 0")));
}

// One process computes what the towers of both have, and names the one that had computed otherwise.
TEST_F(BelfryRunTest, StepsAreComputedAgainByOneProcess) {
  const test::SmallDigits digits;
  const std::string flags =
      " --data_dir=" + digits.path() +
      " --devices=cpu:1 --global_batch_size=32 --shards=8 --threads=1 --max_steps=6 "
      "--eval_every_epochs=0 --hash_every=1 --save_every_steps=3 --check_contribution_every=2";
  const Finished trained = shell(cat("belfry run -n 2 -- mnist", flags, " --run_dir=run"));
  ASSERT_EQ(trained.status, 0) << trained.errors;
  const Finished equal = shell("belfry replay run --step=6");
  EXPECT_EQ(equal.status, 0) << equal.errors;
  EXPECT_THAT(equal.output, ContainsRegex("equal: 3 steps that run has noted, the last is 6: the "
                                          "gradients of 2 towers, combined gradients, variables"));
  EXPECT_EQ(shell("belfry replay run --step=6 --from=0").status, 0);
  // As if rank 1 had contributed another gradient of its first variable to step 5.
  shell(R"(sed -i '5s/\("rank":1,"host":"[^"]*","gradients":{"[^"]*":"\)./\1x/' run/hashes.jsonl)");
  const Finished other = shell("belfry replay run --step=6");
  EXPECT_EQ(other.status, 76);
  EXPECT_THAT(
      other.errors,
      AllOf(ContainsRegex("step 5: rank 1 on .* contributed other gradients .tower 1.: of "),
            HasSubstr("its backward pass went wrong at '"), Not(HasSubstr("rank 0"))));
  EXPECT_THAT(shell("belfry replay run").errors, HasSubstr("--step=S"));
  EXPECT_THAT(shell("belfry replay run --step=6 --from=4").errors,
              HasSubstr("has no checkpoint of that step; it has those of 3, 6"));
  // Other data, with which nothing has gone wrong.
  shell(cat("printf x | dd of=", digits.path(),
            "/train-images-idx3-ubyte bs=1 seek=1000 conv=notrunc"));
  for (const char* const from : {"0", "3"}) {
    const Finished refused = shell(cat("belfry replay run --step=6 --from=", from));
    EXPECT_THAT(refused.status, testing::AnyOf(1, 2)) << refused.errors;
    EXPECT_THAT(refused.errors, HasSubstr("the training data"));
  }
}

TEST_F(BelfryRunTest, StepsAreComputedAgainWhateverEndsOrBeginsARun) {
  const test::SmallDigits digits;
  const std::string train = cat(" mnist --data_dir=", digits.path(), " --devices=cpu:1 ",
                                "--global_batch_size=32 --threads=1 --max_steps=6 --hash_every=1 ",
                                "--save_every_steps=3 --eval_every_steps=3 ");
  const Finished trained = shell(
      cat(train, "--run_dir=run --early_stop=validation_loss:min:9 --on_nonfinite=restore && ",
          train, "--run_dir=other --load=run/checkpoints/latest --gradient_accumulation_steps=2"));
  ASSERT_EQ(trained.status, 0) << trained.errors;
  const Finished equal = shell("belfry replay run --step=6");
  EXPECT_EQ(equal.status, 0) << equal.errors;
  EXPECT_THAT(shell("belfry replay other --step=2").errors,
              HasSubstr("other began with --load=run/checkpoints/latest, so its steps can be "
                        "computed again from its checkpoints alone, of steps 3, 6"));
  shell(R"(sed -i '5s/\("gradients":{"[^"]*":"\)./\1x/2' other/hashes.jsonl)");
  const Finished other = shell("belfry replay other --step=5");
  EXPECT_EQ(other.status, 76) << other.errors;
  EXPECT_THAT(other.errors, HasSubstr("the last of its 2 batches was right in all ranks"));
}

TEST_F(BelfryRunTest, NamesTheFirstFailureAndReturnsItsExitCode) {
  const Finished exited = shell(
      "belfry run -n 2 -- sh -c 'test $RANK = 0 && exec sleep 100; echo error: no disk; touch "
      "down; exit 75' & until test -e down && pgrep -x -P $! sleep > pid; do sleep 0.02; done; "
      "kill -9 $(cat pid); wait $!");
  EXPECT_EQ(exited.status, 137);  // the signal decides
  EXPECT_THAT(exited.errors, AllOf(HasSubstr("error: rank 0 (process "), HasSubstr("SIGKILL")));
  const Finished alone =
      shell("belfry run -n 2 -- sh -c 'test $RANK = 0 && exit 0; echo error: no disk; exit 75'");
  EXPECT_EQ(alone.status, 75);
  EXPECT_THAT(alone.errors, AllOf(HasSubstr("error: rank 1 (process "),
                                  HasSubstr("ended with exit code 75; logs/rank_1.log ends: error: "
                                            "no disk")));
}

// A rank that fails because another one did names that one.
TEST_F(BelfryRunTest, DoesNotBlameWhoTellsOfAnother) {
  const Finished done = shell(
      "belfry run -n 2 -- sh -c 'if test $RANK = 1; then sleep 0.2; fi; "
      "echo \"{\\\"message\\\":{\\\"error\\\":{\\\"rank\\\":1,\\\"why\\\":\\\"no disk\\\"}}}\" "
      "> $TORCHELASTIC_ERROR_FILE; exit 1'");
  EXPECT_EQ(done.status, 1);
  EXPECT_THAT(done.errors, HasSubstr("error: rank 1 (process "));
}

TEST_F(BelfryRunTest, StartsAllAgainAndAddsToTheLogs) {
  const Finished done = shell(
      "belfry run -n 2 --max_restarts=3 -- sh -c 'test $RANK = 0 && exit 0; echo try >> tries; "
      "test $(wc -l < tries) = 3'");
  EXPECT_EQ(done.status, 0) << done.errors;
  EXPECT_EQ(text_of("tries"), "try\ntry\ntry\n");
  EXPECT_THAT(done.errors,
              AllOf(HasSubstr("belfry run: restart 1 of 3 with 2 of 2 processes, from the start"),
                    HasSubstr("restart 2 of 3"), Not(HasSubstr("restart 3"))));
  EXPECT_THAT(text_of("logs/rank_1.log"), AllOf(HasSubstr("# start with 2 processes: sh -c"),
                                                HasSubstr("# restart 2 with 2 processes: sh")));
}

TEST_F(BelfryRunTest, StartsNothingAgainThatAWrongCommandLineEnded) {
  const Finished done =
      shell("belfry run -n 2 --max_restarts=3 -- mnist --devices=cpu:1 --no_such_flag");
  EXPECT_EQ(done.status, 2);
  EXPECT_THAT(done.errors,
              AllOf(HasSubstr("unknown flag --no_such_flag"), Not(HasSubstr("restart"))));
}

// Nor what a process refuses once it has met the others.
TEST_F(BelfryRunTest, StartsNothingAgainThatOneOfSeveralProcessesRefuses) {
  const test::SmallDigits digits;
  for (const auto& [flag, why] :
       {std::pair("--run_dir=r --allreduce=naive", "--allreduce=naive"),
        {"--run_dir=r --zero_stage=1 --memory_save_every_steps=4",
         "--memory_save_every_steps=4 keeps whole saves in memory, and with --zero_stage=1 no"},
        {"--check_equivalence=1", "--check_equivalence is for one process"},
        {"--uneven=error --batch_size=100", "--uneven=error: the 1024 samples"}}) {
    const Finished done = shell(
        cat("belfry run -n 2 --max_restarts=3 -- mnist --devices=cpu:1 --data_dir=", digits.path(),
            " ", flag));
    EXPECT_EQ(done.status, 2) << done.errors;
    EXPECT_THAT(done.errors, AllOf(HasSubstr(why), Not(HasSubstr("restart"))));
  }
}

TEST_F(BelfryRunTest, PassesSignalsOnAndStartsNothingAgain) {
  const Finished done = shell(
      "belfry run -n 2 --max_restarts=3 -- sh -c 'trap \"echo $RANK stops; exit 143\" TERM; touch "
      "up$RANK; while :; do sleep 0.02; done' & until test -e up0 -a -e up1; do sleep 0.02; done; "
      "kill -TERM $!; wait $!");
  EXPECT_EQ(done.status, 143) << done.errors;
  EXPECT_THAT(done.output, HasSubstr("0 stops"));
  EXPECT_THAT(text_of("logs/rank_1.log"), HasSubstr("1 stops"));
  EXPECT_EQ(done.errors, "");
}

// A shell dies of most signals at once, or ignores them, and SIGUSR2 asks nobody to end.
TEST_F(BelfryRunTest, PassesSignalsOnToATrainingBelowAScript) {
  if (kSanitized) GTEST_SKIP() << "too slow under sanitizers";
  const test::SmallDigits digits;
  const std::string train =
      cat("mnist --data_dir=", digits.path(), " --devices=cpu:1 --global_batch_size=32 ",
          "--threads=1 --epochs=100000 --run_dir=r; true");
  for (const std::string wrapper : {"", "setsid -w "}) {
    for (const std::string signal : {"TERM", "USR1"}) {
      const Finished done = shell(
          cat("rm -rf r; belfry run -n 2 -- sh -c '", wrapper, train, "' > out & ",
              "until test $(cat r/stats.jsonl 2> /dev/null | wc -l) -gt 2; do sleep 0.02; done; ",
              "kill -USR2 $!; until test -e r/checkpoints/latest; do sleep 0.02; done; ", "kill -",
              signal, " $!; wait $!; echo code $?"));
      EXPECT_EQ(done.output, "code 143\n");
      EXPECT_EQ(done.errors, "");
      EXPECT_THAT(text_of("out"), ContainsRegex(cat("SIG", signal,
                                                    ": step [0-9]+ of [0-9]+ is "
                                                    "complete; step [0-9]+ is saved in ")));
    }
  }
}

// As a scheduler does that signals all processes of a job, each before or after the command.
TEST_F(BelfryRunTest, WaitsForWhatAScriptStartedThatWasAskedToEnd) {
  const Finished done = shell(
      "belfry run -n 2 -- sh -c 'echo $$ > pid$RANK; sh -c \"trap \\\"sleep 0.5; touch "
      "saved$RANK; exit 143\\\" TERM; touch up$RANK; while :; do sleep 0.02; done\"; true' & "
      "until test -e up0 -a -e up1; do sleep 0.02; done; kill -TERM $(cat pid0 pid1); wait $!; "
      "echo $?; ls saved*");
  EXPECT_EQ(done.output, "143\nsaved0\nsaved1\n") << done.errors;
}

// A pipe that nobody reads, or a terminal that is stopped.
TEST_F(BelfryRunTest, PassesSignalsOnWhileNobodyReadsItsOutput) {
  const Finished done = shell(
      "mkfifo out; exec 3<>out; belfry run -n 2 -- sh -c 'trap asked=1 TERM; i=0; if test $RANK = "
      "0; then while test $i -lt 20000; do i=$((i+1)); echo line $i, which with all others makes "
      "more than a pipe holds; done; fi; touch up$RANK; until test \"$asked\"; do sleep 0.02; "
      "done; exit 143' > out & until test -e up1; do sleep 0.02; done; kill -TERM $!; wait $!");
  EXPECT_EQ(done.status, 143) << done.errors;
  const std::string log = text_of("logs/rank_0.log");
  EXPECT_EQ(std::ranges::count(log, '\n'), 20'001);  // and the heading
  EXPECT_THAT(log, HasSubstr("line 20000, which"));
}

// nohup asks for that. A failure that comes later starts all again.
TEST_F(BelfryRunTest, IgnoresASignalThatItWasStartedToIgnore) {
  const Finished done = shell(
      "env --ignore-signal=HUP belfry run -n 1 --max_restarts=1 -- sh -c 'test -e up && exit 0; "
      "touch up; until test -e told; do sleep 0.02; done; exit 3' & until test -e up; do sleep "
      "0.02; done; kill -HUP $!; touch told; wait $!");
  EXPECT_EQ(done.status, 0) << done.errors;
  EXPECT_THAT(done.errors, HasSubstr("restart 1 of 1"));
}

// Then the system would keep to itself how a process ended.
TEST_F(BelfryRunTest, SeesItsProcessesEndWhereSigchldWasIgnored) {
  const Finished done =
      shell("timeout -s KILL 60 env --ignore-signal=CHLD belfry run -n 2 -- sh -c 'exit 3'");
  EXPECT_EQ(done.status, 3) << done.errors;
}

// Prints which of the processes in `pids` still run after 10 s at most. A process that nobody has
// collected yet (Z) has ended.
constexpr const char* kTellWhoIsLeft =
    "for i in $(seq 500); do left=; for p in $(cat pids); do case $(cut -d' ' -f3 /proc/$p/stat 2> "
    "/dev/null) in [!Z]) left=$p;; esac; done; test -z \"$left\" && break; sleep 0.02; done; echo "
    "left: $left";

// This holds if a rank has started other processes, and if the command is killed.
TEST_F(BelfryRunTest, LeavesNoOrphan) {
  const Finished own = shell(
      cat("belfry run -n 2 -- sh -c 'sleep 100 & echo $! >> pids; exit 3'; ", kTellWhoIsLeft));
  EXPECT_EQ(own.output, "left:\n");
  const Finished killed = shell(
      cat("rm pids; belfry run -n 2 -- sh -c 'echo $$ >> pids; exec sleep 100' & until test \"$(wc "
          "-l < pids 2> /dev/null)\" = 2; do sleep 0.02; done; kill -9 $!; ",
          kTellWhoIsLeft));
  EXPECT_EQ(killed.output, "left:\n");
}

// A program may be a script, whose processes may make groups of their own, as `timeout` does.
TEST_F(BelfryRunTest, LeavesNoOrphanOfAScriptThatStartsOthers) {
  const std::string script =
      " belfry run -n 2 -- sh -c 'sleep 100 & echo $! >> pids; timeout 100 sh -c \"echo \\$\\$ >> "
      "pids; exec sleep 100\" & setsid sh -c \"echo \\$\\$ >> pids; exec sleep 100\" & ";
  const std::string up = "until test \"$(wc -l < pids 2> /dev/null)\" = 6; do sleep 0.02; done; ";
  EXPECT_EQ(shell(cat(script, "wait' & ", up, "kill -9 $!; ", kTellWhoIsLeft)).output, "left:\n");
  EXPECT_EQ(shell(cat("rm -f pids;", script, up, "exit 3'; ", kTellWhoIsLeft)).output, "left:\n");
}

// A shell that becomes the command leaves it children.
TEST_F(BelfryRunTest, LeavesAloneWhatItHasNotStarted) {
  const Finished done = shell(
      "sh -c 'sleep 100 & echo $! > pid; exec belfry run -n 2 -- sleep 0'; kill $(cat pid) && echo "
      "it ran");
  EXPECT_EQ(done.output, "it ran\n") << done.errors;
}

// A training that leaves the foreground would be lost in silence.
TEST_F(BelfryRunTest, NamesWhatItEndsIfItsProgramsLeaveTheForeground) {
  for (const char* const program : {"sh -c 'sleep 100 & exit 0'", "setsid --fork sleep 100"}) {
    const Finished done = shell(cat("belfry run -n 2 -- ", program));
    EXPECT_EQ(done.status, 1) << program;
    EXPECT_THAT(
        done.errors,
        AllOf(HasSubstr("error: all ranks of PROGRAM ended, but not what they had started: "),
              HasSubstr(" (sleep) of rank 0"), HasSubstr(" (sleep) of rank 1"),
              HasSubstr("must not leave the foreground")))
        << program;
  }
  // Some end soon by themselves.
  EXPECT_EQ(shell("belfry run -n 2 -- sh -c 'sleep 0.2 & exit 0'").status, 0);
}

TEST_F(BelfryRunTest, FailsIfItsOutputCannotBeWritten) {
  if (!local_file_system().exists("/dev/full")) GTEST_SKIP() << "no /dev/full";
  const Finished done = shell("belfry run -n 1 -- echo the end > /dev/full");
  EXPECT_EQ(done.status, 1);
  EXPECT_THAT(done.errors, HasSubstr("error: standard output could not be written to its end"));
  EXPECT_THAT(text_of("logs/rank_0.log"), HasSubstr("the end"));
  EXPECT_EQ(shell("belfry run -n 1 -- seq 100000 | head -n 1 > /dev/null").status, 0);
}

// Such a process has neither the group nor the mark of the others.
TEST_F(BelfryRunTest, LeavesNoOrphanThatHasClearedItsEnvironment) {
  const Finished done = shell(
      "belfry run -n 2 -- sh -c 'setsid env -i PATH=$PATH sh -c \"echo \\$\\$ >> pids; exec sleep "
      "100\" & until test \"$(wc -l < pids 2> /dev/null)\" = 2; do sleep 0.02; done'; for p in "
      "$(cat pids); do kill -0 $p 2> /dev/null && echo left: $p; done");
  EXPECT_EQ(done.output, "");
  EXPECT_EQ(text_of("pids").empty(), false);
}

TEST_F(BelfryRunTest, GoesOnWithoutALogThatCannotBeWritten) {
  // The limit holds for files of the command alone.
  const Finished done = shell(
      "(ulimit -f 1; belfry run -n 2 -- sh -c 'for i in $(seq 3000); do echo line $i; done; sleep "
      "0.2; echo the end' 2>&1; echo code $?) | cat");
  EXPECT_THAT(done.output, AllOf(HasSubstr("\nline 3000\n"), HasSubstr("\nthe end\ncode 0\n")));
  for (const char* const log : {"logs/rank_0.log", "logs/rank_1.log"}) {
    const std::string warning = cat("belfry run: ", log, ": cannot write: ");
    const std::size_t at = done.output.find(warning);
    ASSERT_NE(at, std::string::npos) << done.output;
    EXPECT_EQ(done.output.find(warning, at + 1), std::string::npos) << "once";
    EXPECT_FALSE(text_of(log).empty());
  }
  EXPECT_THAT(done.output, HasSubstr("; the training continues, and this log ends here\n"));
}

// Each of several commands would make a training of its own.
TEST_F(BelfryRunTest, RefusesToBeOneOfSeveral) {
  for (const std::string sign :
       {"RANK=0 and WORLD_SIZE=2", "SLURM_STEP_NUM_TASKS=4", "OMPI_COMM_WORLD_SIZE=3"}) {
    const std::string variables = std::regex_replace(sign, std::regex(" and "), " ");
    const Finished done =
        shell(cat("export ", variables, "; belfry run -n 2 -- touch up; echo $?; ls"));
    EXPECT_EQ(done.output, "1\n") << sign;
    EXPECT_THAT(done.errors, AllOf(HasSubstr(cat("the environment has ", sign, ": a launcher")),
                                   HasSubstr("have it start PROGRAM instead")));
  }
  const Finished one = shell(
      "export SLURM_STEP_NUM_TASKS=1 SLURM_NTASKS=4 RANK=0 WORLD_SIZE=1; belfry run -n 2 -- sh -c "
      "'echo $RANK of $WORLD_SIZE${SLURM_STEP_NUM_TASKS:+, a task}'");
  EXPECT_EQ(one.output, "0 of 2\n") << one.errors;
}

TEST_F(BelfryRunTest, SaysThatItMayOpenTooFewFiles) {
  const Finished done = shell("ulimit -n 20; belfry run -n 12 -- sleep 1");
  EXPECT_EQ(done.status, 1);
  EXPECT_THAT(done.errors, HasSubstr("Too many open files; allow more open files (ulimit -n)"));
}

// A limit that the command may raise holds nobody up; its processes keep it.
TEST_F(BelfryRunTest, OpensAsManyFilesAsItMay) {
  const Finished done = shell("ulimit -Sn 20; belfry run -n 12 -- sh -c 'ulimit -Sn'");
  EXPECT_EQ(done.status, 0) << done.errors;
  EXPECT_EQ(done.output, "20\n");
}

TEST_F(BelfryRunTest, FindsProgramsBesideItselfAndWritesNothingForOneThatItCannotFind) {
  const std::string without_path =
      cat("PATH=/usr/bin:/bin; ", BELFRY_BIN_DIR, "/belfry run -n 1 -- ");
  const Finished beside = shell(without_path + "mnist --version; rm -r logs");
  EXPECT_EQ(beside.status, 0) << beside.errors;
  EXPECT_THAT(beside.output, HasSubstr("mnist"));
  const Finished missing = shell(without_path + "no_such_program; echo $?; ls");
  EXPECT_EQ(missing.output, "1\n");
  EXPECT_THAT(missing.errors,
              AllOf(HasSubstr("cannot start 'no_such_program': there is no such program in the "
                              "folders of PATH (/usr/bin:/bin), nor beside this one in "),
                    HasSubstr("/bin; name its path")));
  const Finished no_file = shell("belfry run -n 2 -- ./no_such_program; echo $?; ls");
  EXPECT_EQ(no_file.output, "1\n");
  EXPECT_THAT(no_file.errors, HasSubstr("cannot start './no_such_program': No such file"));
  const Finished no_program = shell("touch text; belfry run -n 2 -- ./text; echo $?; ls");
  EXPECT_EQ(no_program.output, "1\ntext\n");
  EXPECT_THAT(no_program.errors, HasSubstr("cannot start './text': Permission denied"));
}

// The second would empty the logs that the first writes. A folder of its own is fine.
TEST_F(BelfryRunTest, RefusesTheLogsOfAnotherThatRuns) {
  const Finished done = shell(
      "belfry run -n 2 -- sh -c 'echo first; touch up$RANK; until test -e end; do sleep 0.02; "
      "done' & until test -e up0 -a -e up1; do sleep 0.02; done; "
      "belfry run -n 2 -- touch second; echo $?; "
      "belfry run -n 1 --log_dir=other -- echo third; touch end; wait $!; echo $?; ls logs");
  EXPECT_EQ(done.output, "first\n1\nthird\n0\nrank_0.log\nrank_1.log\n");
  EXPECT_EQ(done.errors,
            "error: another 'belfry run' writes to the folder 'logs'; wait for its end, or name "
            "another folder by --log_dir=DIR\n");
  EXPECT_THAT(text_of("logs/rank_1.log"), HasSubstr("first"));
  EXPECT_FALSE(local_file_system().exists(folder_ + "/second"));
}

TEST_F(BelfryRunTest, RefusesWhatCannotBe) {
  for (const auto& [arguments, why] :
       {std::pair("-n 2", "there is no PROGRAM"),
        {"-n 2 --", "there is no PROGRAM"},
        {"-n 2 true", "there is no '-- PROGRAM ...'"},
        {"-n 2 mnist --devices=cpu:1", "behind the flags; put -- before 'mnist'"},
        {"--processes=2 mnist -h", "behind the flags; put -- before 'mnist'"},
        {"-n 2 --devices=cpu:1", "unknown flag --devices"},
        {"-- true", "say by -n P"},
        {"-n 0 -- true", "-n 0"},
        {"-n 2 --min_processes=2 -- true", "--min_processes=2 must be below -n 2"},
        {"-n 2 --min_processes=1 -- true", "--run_dir=DIR"}}) {
    const Finished done = shell(cat("belfry run ", arguments));
    EXPECT_EQ(done.status, 2) << arguments;
    EXPECT_THAT(done.errors, HasSubstr(why)) << arguments;
  }
  const Finished missing = shell("belfry run -n 2 -- ./no_such_program");
  EXPECT_EQ(missing.status, 1);
  EXPECT_THAT(missing.errors, HasSubstr("cannot start './no_such_program': No such file"));
}

// Each of the first starts loses rank 1 once. With --min_processes one process continues.
TEST_F(BelfryRunTest, ATrainingThatLosesProcessesHasTheBitsOfOneThatLosesNone) {
  if (kSanitized) GTEST_SKIP() << "too slow under sanitizers";
  const test::SmallDigits digits;
  const std::string train =
      cat(" mnist --data_dir=", digits.path(), " --global_batch_size=32 --threads=1 --shards=4 ",
          "--epochs=5 --max_steps=60 ");
  const Finished whole = shell(cat(train, "--devices=cpu:2 | grep params_hash"));
  ASSERT_THAT(whole.output, HasSubstr("params_hash"));
  for (const std::string flags : {"--max_restarts=1", "--min_processes=1"}) {
    const Finished done =
        shell(cat("rm -rf r logs; belfry run -n 2 ", flags, " --", train,
                  "--devices=cpu:1 --run_dir=r --save_every_steps=5 > out 2> err & run=$!\n",
                  "until test -e r/checkpoints/latest; do sleep 0.01; done\n",
                  "kill -9 $(pgrep -P $run | tail -1); wait $run; echo $?; grep params_hash out"));
    EXPECT_EQ(done.output, "0\n" + whole.output) << text_of("err");
    EXPECT_THAT(text_of("err"), HasSubstr("was killed by SIGKILL"));
    EXPECT_THAT(text_of("err"),
                HasSubstr(flags == "--min_processes=1" ? "restart 1 of 1 with 1 of 2 processes"
                                                       : "restart 1 of 1 with 2 of 2 processes"));
  }
}

// Resumed from memory, it computes few steps again, and leaves nothing there.
TEST_F(BelfryRunTest, ARestartGoesOnFromMemory) {
  if (kSanitized) GTEST_SKIP() << "too slow under sanitizers";
  if (memory_file_system().empty()) GTEST_SKIP() << "this machine has no files in memory";
  const test::SmallDigits digits;
  const std::string train =
      cat(" mnist --data_dir=", digits.path(), " --devices=cpu:1 --global_batch_size=32 ",
          "--threads=1 --shards=4 --epochs=5 --max_steps=60 ");
  const Finished whole = shell(cat("belfry run -n 2 --", train, "| grep params_hash"));
  ASSERT_THAT(whole.output, HasSubstr("params_hash"));
  const Finished done = shell(
      cat("belfry run -n 2 --max_restarts=1 --", train,
          "--run_dir=r --save_every_epochs=0 --memory_save_every_steps=4 --json=json > out 2> err "
          "& run=$!\n",
          "until test $(cat r/stats.jsonl 2> /dev/null | wc -l) -gt 20; do sleep 0.002; done\n",
          "kill -9 $(pgrep -P $run | tail -1); wait $run; echo $?; grep params_hash out"));
  EXPECT_EQ(done.output, "0\n" + whole.output) << text_of("err");
  const std::string said = text_of("out");
  EXPECT_THAT(said, ContainsRegex("checkpoint: /dev/shm/belfry-.*, after step"));
  EXPECT_THAT(said, ContainsRegex("restart 1: detection [0-9.]+ s, meeting [0-9.]+ s, restore "
                                  "[0-9.]+ s, recomputation [0-9.]+ s \\([0-9]+ steps?\\)"));
  EXPECT_THAT(text_of("json"), HasSubstr("\"detection_seconds\": "));
  std::smatch folder;
  ASSERT_TRUE(std::regex_search(said, folder, std::regex("/dev/shm/belfry-[0-9]+-[0-9a-f]+")));
  EXPECT_FALSE(local_file_system().exists(folder.str()));
}

// The process that finds it ends the start, as others could not know of it; the next start takes
// the save before it.
TEST_F(BelfryRunTest, ADamagedSaveInMemoryCostsOneStart) {
  if (kSanitized) GTEST_SKIP() << "too slow under sanitizers";
  if (memory_file_system().empty()) GTEST_SKIP() << "this machine has no files in memory";
  const test::SmallDigits digits;
  const std::string train =
      cat(" mnist --data_dir=", digits.path(), " --devices=cpu:1 --global_batch_size=32 ",
          "--threads=1 --shards=4 --epochs=5 --max_steps=60 --run_dir=r --save_every_epochs=0 ",
          "--memory_save_every_steps=4 ");
  shell(cat("belfry run -n 2 --", train, "> out 2> err & run=$!\n",
            "until test $(cat r/stats.jsonl 2> /dev/null | wc -l) -gt 20; do sleep 0.002; done\n",
            "kill -9 $(pgrep -P $run | tail -1); wait $run"));
  const std::string folder = memory_folder_of(run_id_of(folder_ + "/r"));
  const std::vector<std::int64_t> saves = checkpoints_in(local_file_system(), folder);
  ASSERT_GE(saves.size(), 2U) << text_of("err");  // a third one may not be removed yet
  const std::int64_t newest = saves.back(), before = saves[saves.size() - 2];
  shell(cat("echo damaged > ", checkpoint_in(folder, newest), "/model.safetensors"));
  const Finished done = shell(cat("belfry run -n 2 --max_restarts=1 --", train));
  EXPECT_EQ(done.status, 0) << done.errors;
  EXPECT_THAT(done.errors, HasSubstr("a damaged save in memory, which is now removed"));
  EXPECT_THAT(done.output, HasSubstr(cat(checkpoint_in(folder, before), ", after step ")));
}

TEST_F(BelfryRunTest, ATrainingThatLosesFiftyProcessesHasTheCurveOfOneThatLosesNoneLong) {
  if (kSanitized) GTEST_SKIP() << "too slow under sanitizers";
  const Finished done = shell(
      cat(BELFRY_SOURCE_DIR, "/tests/examples/lose_processes many ", BELFRY_BIN_DIR, " 50 1"));
  EXPECT_EQ(done.status, 0) << done.output << done.errors;
  EXPECT_THAT(done.output, HasSubstr("the largest difference between losses is 0.0\n"));
}

}  // namespace belfry_run_test
}  // namespace belfry
