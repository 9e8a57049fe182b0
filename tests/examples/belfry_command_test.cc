// Runs the command belfry as people run it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "belfry/framework/base/file_system.h"
#include "belfry/framework/base/text.h"
#include "belfry/tests/support/programs.h"

namespace belfry {
namespace belfry_command_test {

using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;

// A folder with the checkpoints a and b of different steps of one run.
class BelfryCommandTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = temporary_path(".command");
    local_file_system().create_directory(folder_);
    shell(
        "linear_regression --max_steps=3 --run_dir=r; mv r/checkpoints/step-00000003 a; rm -r r; "
        "linear_regression --max_steps=5 --run_dir=r; mv r/checkpoints/step-00000005 b; rm -r r");
  }
  static void TearDownTestSuite() { remove_tree(local_file_system(), folder_); }

  // Runs a command with the programs of the build on the PATH.
  static Finished shell(const std::string& command) {
    return run_program(
        "sh", {"-c", cat("cd ", folder_, " && PATH=", BELFRY_BIN_DIR, ":$PATH; ", command)});
  }
  static void expect_refusal(const std::string& command, int status, const std::string& why) {
    const Finished done = shell(command);
    EXPECT_EQ(done.status, status) << command;
    EXPECT_THAT(done.errors, AllOf(StartsWith("error: "), HasSubstr(why))) << command;
  }

  static inline std::string folder_;
};

TEST_F(BelfryCommandTest, HelpsWithEachOfItsCommands) {
  for (const char* command : {"", "generate", "plot", "runs", "trace", "trace summary",
                              "checkpoint", "checkpoint ls", "checkpoint verify", "checkpoint diff",
                              "checkpoint export", "checkpoint import", "simulate", "machine"}) {
    const Finished done = shell(cat("belfry ", command, " --help"));
    EXPECT_EQ(done.status, 0) << command << done.errors;
    EXPECT_THAT(done.output, HasSubstr(cat("Usage: belfry ", command))) << command;
  }
}

TEST_F(BelfryCommandTest, PrintsThePageOfFlagsAsDocsHaveIt) {
  const std::vector<std::byte> page =
      local_file_system().read(cat(BELFRY_SOURCE_DIR, "/docs/flags.md"));
  EXPECT_EQ(shell("belfry flags").output,
            std::string(reinterpret_cast<const char*>(page.data()), page.size()))
      << "build the target flags_page";
}

TEST_F(BelfryCommandTest, ExitsWithTwoForWrongCommandLines) {
  expect_refusal("belfry", 2, "belfry needs a command");
  expect_refusal("belfry checkpoints ls a", 2, "did you mean 'checkpoint'?");
  expect_refusal("belfry checkpoint ls", 2, "there is no PATH");
  expect_refusal("belfry checkpoint diff a", 2, "there is no B");
  expect_refusal("belfry checkpoint ls a b", 2, "'b' is one argument too many");
  expect_refusal("belfry checkpoint ls a --jsn=-", 2, "did you mean --json?");
  expect_refusal("belfry checkpoint export a w --layout=tf", 2,
                 "--layout: there is no layout 'tf'");
  expect_refusal("belfry checkpoint import w out", 2, "--like=PATH is needed");
  expect_refusal("belfry plot a --scale=round", 2, "none of auto, linear and log");
}

TEST_F(BelfryCommandTest, ListsACheckpoint) {
  const Finished text = shell("belfry checkpoint ls a");
  EXPECT_EQ(text.status, 0) << text.errors;
  EXPECT_THAT(text.output, AllOf(HasSubstr("step 3, epoch "), HasSubstr("weights: ")));
  const Finished done = shell("belfry checkpoint ls a --json=-");
  const auto json = nlohmann::json::parse(done.output);
  EXPECT_EQ(json["step"], 3);
  EXPECT_FALSE(json["tensors"].empty());
  expect_refusal("belfry checkpoint ls none", 1, "there is no checkpoint");
}

TEST_F(BelfryCommandTest, VerifiesEveryCheckpointOfARun) {
  EXPECT_EQ(shell("mkdir -p run/checkpoints && cp -r a run/checkpoints/step-00000003 && "
                  "cp -r b run/checkpoints/step-00000005 && "
                  "ln -s step-00000005 run/checkpoints/latest")
                .status,
            0);
  const Finished good = shell("belfry checkpoint verify run a");
  EXPECT_EQ(good.status, 0) << good.output;
  EXPECT_THAT(good.output, AllOf(StartsWith("ok       run/checkpoints/step-00000003 (step 3, "),
                                 HasSubstr("ok       a (step 3")));
  EXPECT_THAT(shell("belfry checkpoint ls run").output,
              AllOf(StartsWith("run "), HasSubstr("latest\n"), HasSubstr("step 5, epoch ")));
  EXPECT_EQ(shell("printf x | dd of=run/checkpoints/step-00000003/model.safetensors bs=1 seek=400 "
                  "conv=notrunc; rm run/checkpoints/step-00000005/state.safetensors")
                .status,
            0);
  const Finished bad = shell("belfry checkpoint verify run none");
  EXPECT_EQ(bad.status, 1);
  EXPECT_THAT(bad.output, AllOf(HasSubstr("damaged  run/checkpoints/step-00000003: "),
                                HasSubstr("model.safetensors: "), HasSubstr(" byte "),
                                HasSubstr("state.safetensors: no such file, so the checkpoint is"),
                                HasSubstr("missing  none: there is no checkpoint")));
}

TEST_F(BelfryCommandTest, SparesWhatItReads) {
  EXPECT_EQ(shell("linear_regression --max_steps=3 --run_dir=spared && ln -s spared other && "
                  "cp spared/stats.jsonl s.jsonl")
                .status,
            0);
  const std::string stats = shell("cat spared/stats.jsonl").output;
  for (const char* const command :
       {"belfry plot spared --out=spared/stats.jsonl",
        "belfry plot spared/stats.jsonl --out=spared/stats.jsonl",
        "belfry plot spared --out=other/stats.jsonl",
        "belfry plot other/stats.jsonl --out=spared/./stats.jsonl",
        "belfry plot spared --out=spared/config.json", "belfry plot s.jsonl spared --out=s.jsonl",
        "belfry checkpoint ls spared --json=other/stats.jsonl",
        "belfry checkpoint diff spared spared --json=spared/checkpoints/d.json"})
    expect_refusal(command, 2, "would overwrite");
  EXPECT_EQ(shell("cat spared/stats.jsonl").output, stats);
  EXPECT_EQ(shell("cat s.jsonl").output, stats);
  EXPECT_EQ(shell("belfry plot spared --out=spared/plot.svg").status, 0);
  EXPECT_EQ(shell("belfry checkpoint ls spared --json=spared/ls.json").status, 0);
}

TEST_F(BelfryCommandTest, ComparesRunsOverSeeds) {
  EXPECT_EQ(
      shell("for seed in 1 2; do linear_regression --devices=cpu:1 --max_steps=3 --seed=$seed "
            "--keep=$seed --run_dir=sweep/$seed; done")
          .status,
      0);
  const Finished done = shell("belfry runs sweep --metric=loss --json=-");
  EXPECT_EQ(done.status, 0) << done.errors;
  EXPECT_THAT(done.errors, AllOf(StartsWith("linear_regression: 2 runs\n"), HasSubstr(" +- ")));
  const auto program = nlohmann::json::parse(done.output)["programs"][0];
  EXPECT_EQ(program["differ"], nlohmann::json({"seed"}));
  EXPECT_EQ(program["runs"][0]["state"], "finished");
  EXPECT_EQ(program["runs"][0]["steps"], 3);
  EXPECT_EQ(program["groups"][0]["runs"], nlohmann::json({"sweep/1", "sweep/2"}));
  expect_refusal("belfry runs sweep --metric=lost", 1, "no run has the metric 'lost'");
  expect_refusal("belfry runs sweep --metric=loss:best", 2, "--metric=loss:best");
  expect_refusal("belfry runs a", 1, "has no run directory");
  expect_refusal("belfry runs sweep --json=sweep/1/stats.jsonl", 2, "would overwrite");
}

// Named rows of a summary.
nlohmann::json row_of(const nlohmann::json& rows, const std::string& name) {
  for (const nlohmann::json& row : rows)
    if (row["name"] == name) return row;
  ADD_FAILURE() << "no row " << name << " in " << rows;
  return {{"calls", 0}, {"ms", 0}};
}

TEST_F(BelfryCommandTest, SumsUpTheTraceOfAStep) {
  const std::string flags = "--devices=cpu:2 --global_batch_size=64 ";
  EXPECT_EQ(shell("mnist " + flags + "--max_steps=2 --trace_file=step.json").status, 0);
  EXPECT_EQ(shell(R"(echo '{"devices":1,"device_type":"cpu","threads":2,"copy_gbs":20,)"
                  R"("matmul_tflops":{"f32":0.2}}' > peaks.json)")
                .status,
            0);
  const Finished done = shell("belfry trace summary step.json --peak=peaks.json --json=-");
  EXPECT_EQ(done.status, 0) << done.errors;
  EXPECT_THAT(done.errors, AllOf(HasSubstr("a step of "), HasSubstr("Conv2dGradFilter"),
                                 HasSubstr("peak of each worker 100.0 GFLOP/s, 10.0 GB/s")));
  const auto json = nlohmann::json::parse(done.output);
  EXPECT_EQ(json["processes"], 1);
  EXPECT_EQ(json["gpus"], 0);
  EXPECT_GE(json["workers"], 1);
  double ms = 0;
  for (const auto& phase : json["phases"])
    if (phase["name"] != "wait") ms += phase["ms"].get<double>();
  EXPECT_NEAR(ms, json["total"]["ms"].get<double>(), 1e-6);
  for (const char* const phase : {"forward", "gradient", "update"})
    EXPECT_GT(row_of(json["phases"], phase)["ms"], 0) << phase;
  EXPECT_GT(row_of(json["ops"], "Conv2d")["floor_share"], 0);
  EXPECT_GT(row_of(json["layers"], "conv1")["flops"], 0);
  // As the model says, without the gradient of the images.
  const auto model = nlohmann::json::parse(shell("mnist " + flags + "--summary --json=-").output);
  EXPECT_EQ(json["total"]["flops"], 2 * model["multiply_adds_per_step"].get<double>());
}

TEST_F(BelfryCommandTest, SumsUpTheTraceOfSeveralProcesses) {
  EXPECT_EQ(shell("belfry run -n 2 -- mnist --devices=cpu:1 --global_batch_size=64 --max_steps=2 "
                  "--trace_file=both.json")
                .status,
            0);
  const Finished done = shell("belfry trace summary both.json --json=-");
  EXPECT_EQ(done.status, 0) << done.errors;
  EXPECT_THAT(done.errors, HasSubstr(", 2 processes\n"));
  const auto json = nlohmann::json::parse(done.output);
  EXPECT_EQ(json["processes"], 2);
  EXPECT_GE(json["workers"], 2);
  EXPECT_GT(row_of(json["phases"], "messages")["calls"], 0);
  EXPECT_TRUE(json["total"]["floor_ms"].is_null());
}

TEST_F(BelfryCommandTest, RefusesFilesThatAreNoTraces) {
  EXPECT_EQ(shell("echo '{}' > none.json").status, 0);
  expect_refusal("belfry trace summary none.json", 1,
                 "none.json: this is no trace that Belfry has written");
  expect_refusal("belfry trace summary missing.json", 1, "missing.json");
  expect_refusal("belfry trace summary none.json --peak=none.json", 1, "none.json: ");
  expect_refusal("belfry trace summary none.json --json=none.json", 2, "none.json");
  expect_refusal("belfry trace none.json", 2, "has no command 'none.json'");
}

TEST_F(BelfryCommandTest, ComparesCheckpoints) {
  EXPECT_EQ(shell("belfry checkpoint diff a a").status, 0);
  const Finished done = shell("belfry checkpoint diff a b --json=diff.json");
  EXPECT_EQ(done.status, 1);
  EXPECT_EQ(done.errors, "");
  EXPECT_THAT(done.output, HasSubstr(" of the largest value)\n"));
  const auto json = nlohmann::json::parse(shell("cat diff.json").output);
  EXPECT_EQ(json["equal"], false);
  EXPECT_GT(json["values"][0]["largest"], 0);
}

TEST_F(BelfryCommandTest, ExportsWeightsAndImportsThemAgain) {
  for (const char* layout : {"belfry", "torch"}) {
    EXPECT_EQ(
        shell(cat("belfry checkpoint export a w/ --state --overwrite --layout=", layout)).status,
        0);
    const Finished done = shell("belfry checkpoint import w --like=b c --overwrite");
    EXPECT_EQ(done.status, 0) << done.errors;
    EXPECT_THAT(done.output, HasSubstr(cat("in the layout ", layout)));
    EXPECT_EQ(shell("belfry checkpoint diff a c").status, 0) << layout;
  }
  const Finished piped =
      shell("belfry checkpoint export a - --state --layout=torch | cmp - w/model.safetensors");
  EXPECT_EQ(piped.status, 0) << piped.output;
  EXPECT_THAT(piped.errors, HasSubstr(" bytes, to standard output with "));
  expect_refusal("belfry checkpoint export a w", 1,
                 "w/model.safetensors is there; nothing was changed: write elsewhere, or replace "
                 "it (--overwrite)");
  expect_refusal("belfry checkpoint import w --like=b c", 1, "to be replaced (--overwrite)");
  expect_refusal("belfry checkpoint import w --like=b -", 2, "OUT=-: a checkpoint is a folder");
  EXPECT_EQ(shell("linear_regression --max_steps=3 --resume=c").status, 0)
      << "training continues with an imported checkpoint";
}

TEST_F(BelfryCommandTest, PlotsRunsThatMayStillGoOn) {
  EXPECT_EQ(
      shell(R"(mkdir -p one two && for i in 1 2 3; do )"
            R"(echo '{"step":'$i',"loss":0.'$i',"examples_per_second":5}' >> one/stats.jsonl; )"
            R"(done && cp one/stats.jsonl two && printf '{"step":4,"lo' >> two/stats.jsonl)")
          .status,
      0);
  const Finished done = shell("belfry plot one two --out=runs.svg");
  EXPECT_EQ(done.status, 0) << done.errors;
  EXPECT_EQ(done.output, "wrote runs.svg\n");
  EXPECT_THAT(shell("cat runs.svg").output,
              AllOf(HasSubstr("<svg "), HasSubstr(">2 runs<"), HasSubstr("</svg>")));
  EXPECT_EQ(shell("gnuplot runs.gp | cmp - runs.svg").status, 0) << "the script draws it again";
  // gnuplot warns of any text in UTF-8 where the locale has none, as in a minimal system.
  const Finished printed = shell("belfry plot one --metric=loss --out=- | LC_ALL=C.UTF-8 gnuplot");
  EXPECT_THAT(printed.output, StartsWith("<?xml "));
  EXPECT_EQ(printed.errors, "");
  EXPECT_EQ(shell("belfry plot one --out=one.png && file -b one.png || head -c 4 one.png").status,
            0);
  EXPECT_THAT(shell("head -c 4 one.png").output, EndsWith("PNG"));
  const Finished none = shell("PATH=none $(command -v belfry) plot one --out=alone.svg");
  EXPECT_EQ(none.status, 1);
  EXPECT_THAT(none.errors, HasSubstr("install gnuplot (Debian: gnuplot-nox), or draw alone.gp"));
  EXPECT_EQ(shell("test -s alone.gp && test ! -e alone.svg").status, 0);
  expect_refusal("belfry plot one --metric=los", 1, "no line has the metric 'los'");
  expect_refusal("belfry plot none", 1, "none: no such file");
}

// "simulate" with a workload and a machine of the documents.
std::string simulation_of(const std::string& workload, const std::string& machine) {
  const std::string docs = cat(BELFRY_SOURCE_DIR, "/docs/");
  return cat("belfry simulate ", docs, "workloads/", workload, ".json --machine=", docs,
             "machines/", machine, ".json ");
}

TEST_F(BelfryCommandTest, SimulatesThousandsOfDevices) {
  const std::string command = simulation_of("resnet50", "a100-dgx") +
                              "--devices=1,8,4096 --batch_size=256 --precision=f16 --gradients=f16 "
                              "--measured=1:2500 --device_mtbf_hours=50000 --explain "
                              "--trace_file=t.json --json=-";
  const Finished done = shell(command);
  ASSERT_EQ(done.status, 0) << done.errors;
  const auto json = nlohmann::json::parse(done.output);
  ASSERT_EQ(json["rows"].size(), 3u);
  EXPECT_NEAR(json["rows"][0]["samples_per_s"], 2500, 1e-3);
  EXPECT_EQ(json["rows"][2]["hosts"], 512);
  EXPECT_LT(json["rows"][2]["efficiency"], json["rows"][1]["efficiency"]);
  EXPECT_GT(json["rows"][2]["faults"]["best_goodput"], 0.5);
  EXPECT_THAT(done.errors, HasSubstr("A step of 4096 devices of DGX A100"));
  EXPECT_FALSE(nlohmann::json::parse(shell("cat t.json").output)["traceEvents"].empty());
  const Finished again = shell(command);
  EXPECT_EQ(again.output, done.output);
  EXPECT_EQ(again.errors, done.errors);
}

TEST_F(BelfryCommandTest, SimulatesAModelThatAProgramSumsUp) {
  const Finished done =
      shell(cat("linear_regression --summary --json=mine.json >/dev/null && belfry simulate "
                "mine.json --machine=",
                BELFRY_SOURCE_DIR, "/docs/machines/v100-dgx1.json"));
  EXPECT_EQ(done.status, 0) << done.errors;
  EXPECT_THAT(done.output, HasSubstr("mine on DGX-1 (8 x V100)"));
}

TEST_F(BelfryCommandTest, SimulatesAPlanWithTracedTimes) {
  const std::string machine = cat(BELFRY_SOURCE_DIR, "/docs/machines/v100-dgx1.json");
  const Finished planned =
      shell(cat("linear_regression --devices=gpu:2 --dry_run --json=p.json "
                "--links=",
                machine));
  ASSERT_EQ(planned.status, 0) << planned.errors;
  EXPECT_THAT(planned.output, HasSubstr(" ms on 2 devices of DGX-1 (8 x V100), with arithmetic"));
  EXPECT_GT(nlohmann::json::parse(shell("cat p.json").output)["predicted"]["step_ms"], 0);
  const Finished done = shell(cat(
      "linear_regression --devices=cpu:1 --dry_run --json=p.json >/dev/null && linear_regression "
      "--devices=cpu:1 --trace_file=t.json >/dev/null 2>&1 && belfry simulate p.json "
      "--trace=t.json --devices=1,8 --json=- --machine=",
      machine));
  ASSERT_EQ(done.status, 0) << done.errors;
  const auto rows = nlohmann::json::parse(done.output)["rows"];
  const auto sums = nlohmann::json::parse(shell("belfry trace summary t.json --json=-").output);
  EXPECT_NEAR(1e3 * rows[0]["step_s"].get<double>(), sums["step_ms"].get<double>(), 1e-3);
  EXPECT_GT(rows[1]["step_s"], rows[0]["step_s"]);
  expect_refusal(cat("belfry simulate p.json --trace=t.json --batch_size=1 --machine=", machine), 2,
                 "for its own batch");
}

// Several processes sum an eighth of the gradients at a time, so that sums begin early.
TEST_F(BelfryCommandTest, SimulatesTheBucketsOfThePlannedProgram) {
  ASSERT_EQ(shell("mnist --devices=cpu:1 --dry_run --json=p.json").status, 0);
  const auto hidden = [](const char* flags) {
    const Finished done =
        shell(cat("belfry simulate p.json --devices=2 --json=- --machine=", BELFRY_SOURCE_DIR,
                  "/docs/machines/v100-dgx1.json", flags));
    EXPECT_EQ(done.status, 0) << done.errors;
    return nlohmann::json::parse(done.output)["rows"][0]["hidden_share"].get<double>();
  };
  EXPECT_EQ(hidden(" --bucket_mb=100"), 0);
  EXPECT_GT(hidden(""), 0);
}

// Predictions know no name and no order: the same rows come out of renamed tables in other order.
TEST_F(BelfryCommandTest, PredictsTablesWhateverTheirNames) {
  const std::string prepare = cat(R"(python3 - )", BELFRY_SOURCE_DIR, R"(/docs <<'EOF'
import json, pathlib, shutil, sys
docs = pathlib.Path(sys.argv[1])
for folder in ("machines", "workloads", "tables"):
    shutil.copytree(docs / folder, pathlib.Path("renamed") / folder)
for path in list(pathlib.Path("renamed/machines").glob("*.json")):
    path.rename(path.with_name("m" + path.name[::-1].replace("nosj.", "") + ".json"))
for name in ("all_reduce", "scaling"):
    path = pathlib.Path(f"renamed/tables/{name}.json")
    tables = [t for t in json.loads(path.read_text()) if t.get("jitter_of", "none") == "none"][:2][::-1]
    for table in tables:
        for member in ("machine", "also_from"):
            if member in table:
                table[member] = "m" + table[member][::-1]
        for member in ("id", "what", "name"):
            if member in table:
                table[member] = f"{abs(hash(table[member]))}"
    path.write_text(json.dumps(tables))
    plain = [t for t in json.loads((docs / f"tables/{name}.json").read_text()) if t.get("jitter_of", "none") == "none"]
    pathlib.Path("plain/tables").mkdir(parents=True, exist_ok=True)
    pathlib.Path(f"plain/tables/{name}.json").write_text(json.dumps(plain[:2]))
for folder in ("machines", "workloads"):
    shutil.copytree(docs / folder, pathlib.Path("plain") / folder)
EOF
)");
  ASSERT_EQ(shell(prepare).status, 0);
  const auto rows = [&](const std::string& docs, const std::string& command) {
    return shell(cat("BELFRY=$(command -v belfry) ", BELFRY_SOURCE_DIR,
                     "/scripts/simulator_tables ", command, " --docs=", docs,
                     " | grep -E '^ +[0-9]' | sort"))
        .output;
  };
  for (const std::string command : {"all_reduce", "scaling"}) {
    const std::string plain = rows("plain", command);
    EXPECT_GT(std::ranges::count(plain, '\n'), 7);
    EXPECT_EQ(rows("renamed", command), plain);
  }
}

TEST_F(BelfryCommandTest, RefusesSimulationsThatItCannotMake) {
  const std::string simulation = simulation_of("resnet50", "v100-dgx1");
  expect_refusal("belfry simulate", 2, "needs --machine=FILE");
  expect_refusal(simulation + "--bytes=1K", 2, "either a WORKLOAD or --bytes");
  expect_refusal(simulation + "--without=noise", 2, "no part 'noise'");
  expect_refusal(simulation + "--allreduce=rings", 2, "did you mean 'ring'");
  expect_refusal(simulation + "--precision=tf32", 1, "no \"tflops\" for tf32");
  expect_refusal(simulation + "--processes_per_host=9", 1, "has 8 devices, not 9");
  expect_refusal("echo {} >e.json; belfry simulate e.json --machine=e.json", 1, "e.json: ");
}

}  // namespace belfry_command_test
}  // namespace belfry
