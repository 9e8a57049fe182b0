// Runs the example programs as people run them.
#include "belfry/tests/support/programs.h"

#include <cstdio>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "belfry/framework/base/file_system.h"
#include "belfry/framework/base/host_memory.h"
#include "belfry/framework/base/text.h"
#include "belfry/tests/support/sanitizers.h"
#include "belfry/tests/trainers/data/idx_files.h"

namespace belfry {
namespace programs_test {

using testing::HasSubstr;

TEST(Programs, MnistTrainsOnGeneratedDigitsAndWritesItsJson) {
  const std::string json = cat(testing::TempDir(), "programs_test.", getpid(), ".json");
  const Finished done =
      run_built("mnist", {"--devices=cpu:4", "--max_steps=2", "--batch_size=8", "--json=" + json});
  EXPECT_EQ(done.status, 0) << done.errors;
  const auto report = nlohmann::json::parse(text_of_file(json));
  local_file_system().remove(json);
  EXPECT_EQ(report["steps"], 2);
  EXPECT_EQ(report["devices"].size(), 4u);
  EXPECT_EQ(report["allreduce"], "collective");
  EXPECT_EQ(report["replicas_equal"], true);
  EXPECT_EQ(report["params_hash"].get<std::string>().size(), 16u);
}

TEST(Programs, MnistSmoothsItsLabelsAndClipsItsGradients) {
  const std::string json = temporary_path(".json");
  const test::SmallDigits digits;
  const auto report = [&](std::vector<std::string> flags) {
    flags.insert(flags.end(), {"--data_dir=" + digits.path(), "--global_batch_size=64",
                               "--max_steps=2", "--json=" + json});
    const Finished done = run_built("mnist", flags);
    EXPECT_EQ(done.status, 0) << done.errors;
    return nlohmann::json::parse(text_of_file(json));
  };
  const auto plain = report({}), smooth = report({"--label_smoothing=0.1"});
  EXPECT_EQ(plain["flags"]["label_smoothing"], 0);
  EXPECT_EQ(smooth["flags"]["label_smoothing"], 0.1);
  EXPECT_NE(smooth["params_hash"], plain["params_hash"]);
  const auto clipped = report({"--clip_norm=0.01"});
  EXPECT_EQ(clipped["k_independent"], true);
  EXPECT_EQ(report({"--clip_norm=0.01", "--devices=cpu:4"})["state_hash"], clipped["state_hash"]);
  const Finished refused = run_built("mnist", {"--label_smoothing=2"});
  EXPECT_EQ(refused.status, 2);
  EXPECT_THAT(refused.errors, HasSubstr("--label_smoothing=2 is not a number from 0 to 1"));
  local_file_system().remove(json);
}

// The row of the global batch alone decides which units are dropped.
TEST(Programs, MnistDropsTheSameUnitsOnAnyNumberOfDevices) {
  const std::string json = temporary_path(".json");
  const test::SmallDigits digits;
  const std::string steps = kSanitized ? "--max_steps=3" : "--max_steps=20";
  const auto hash = [&](std::vector<std::string> flags) {
    flags.insert(flags.end(), {"--data_dir=" + digits.path(), "--epochs=2",
                               "--global_batch_size=64", steps, "--json=" + json});
    const Finished done = run_built("mnist", flags);
    EXPECT_EQ(done.status, 0) << done.errors;
    const auto report = nlohmann::json::parse(text_of_file(json));
    EXPECT_EQ(report["flags"]["dropout"], flags[0] == "--dropout=0.5" ? 0.5 : 0);
    return report["params_hash"].get<std::string>();
  };
  const std::string one = hash({"--dropout=0.5", "--devices=cpu:1"});
  for (const char* devices : {"--devices=cpu:2", "--devices=cpu:4", "--devices=cpu:8"})
    EXPECT_EQ(hash({"--dropout=0.5", devices}), one) << devices;
  const std::string without = hash({"--devices=cpu:2"});
  EXPECT_NE(without, one);
  EXPECT_EQ(hash({"--dropout=0", "--devices=cpu:2"}), without);
  local_file_system().remove(json);
}

// The sources of programs that train: they call train(), or take its flags.
std::vector<std::string> training_programs() {
  std::vector<std::string> names;
  const std::string folder = cat(BELFRY_SOURCE_DIR, "/examples");
  for (const std::string& file : local_file_system().list(folder)) {
    if (!file.ends_with(".cc")) continue;
    const std::string text = text_of_file(cat(folder, "/", file));
    if (text.find("return train(") != text.npos || text.find("TrainFlagSet") != text.npos)
      names.push_back(file.substr(0, file.size() - 3));
  }
  return names;
}

TEST(Programs, GiveTheSameRunAgainByTheirConfiguration) {
  if (kSanitized) GTEST_SKIP() << "sanitizers run these programs in other tests";
  EXPECT_THAT(training_programs(),
              testing::IsSupersetOf({"linear_regression", "mnist", "train_bench"}));
  const std::string json = temporary_path(".json"), config = temporary_path(".config");
  for (const std::string& program : training_programs()) {
    SCOPED_TRACE(program);
    std::vector<std::string> flags{"--devices=cpu:2", "--global_batch_size=8", "--seed=3",
                                   "--learning_rate=0.01"};
    if (program == "train_bench")
      flags.insert(flags.end(), {"--num_batches=2", "--num_warmup_batches=0"});
    else
      flags.insert(flags.end(), {"--max_steps=2", "--eval_batches=1"});
    if (program == "resnet" || program == "resnet50") flags.emplace_back("--image_size=32");
    const auto hash = [&](std::vector<std::string> arguments) {
      arguments.push_back("--json=" + json);
      const Finished done = run_built(program, arguments);
      EXPECT_EQ(done.status, 0) << done.errors;
      return nlohmann::json::parse(text_of_file(json))["state_hash"].get<std::string>();
    };
    const std::string first = hash(flags);
    flags.emplace_back("--print_config");
    const Finished printed = run_built(program, flags);
    ASSERT_EQ(printed.status, 0) << printed.errors;
    write_text_file(local_file_system(), config, printed.output);
    EXPECT_EQ(hash({"--config=" + config}), first);
    if (program == "linear_regression") {  // takes no time
      EXPECT_NE(hash({"--config=" + config, "--seed=4"}), first);
    }
    EXPECT_EQ(run_built(program, {"--config=" + config, "--print_config"}).output, printed.output);
  }
  for (const std::string& path : {json, config}) local_file_system().remove(path);
}

TEST(Programs, LinearRegressionFindsItsLine) {
  const std::string json = cat(testing::TempDir(), "programs_test.", getpid(), ".line.json");
  const Finished done = run_built("linear_regression", {"--json", json});
  EXPECT_EQ(done.status, 0) << done.errors;
  const auto report = nlohmann::json::parse(text_of_file(json));
  local_file_system().remove(json);
  EXPECT_LT(report["loss"].get<double>(), 0.001);
  EXPECT_FALSE(report.contains("validation_accuracy"));
}

TEST(Programs, LinearRegressionThatDivergesKeepsItsCheckpointAndExitsWithOne) {
  const std::string json = temporary_path(".json"), run = temporary_path(".run");
  const std::string save = "--run_dir=" + run, rate = "--learning_rate=1e30";
  EXPECT_EQ(run_built("linear_regression", {save, "--json=" + json}).status, 0);
  const std::string hash = nlohmann::json::parse(text_of_file(json))["state_hash"];
  const std::vector<std::string> on{"--resume=" + run, save, "--epochs=7", rate, "--json=" + json};
  const Finished stopped = run_built("linear_regression", on);
  EXPECT_EQ(stopped.status, 1);
  EXPECT_THAT(stopped.errors, HasSubstr("error: training diverged: the loss of step 322 is "));
  EXPECT_THAT(stopped.errors, HasSubstr("a smaller learning rate may help (--learning_rate)"));
  EXPECT_EQ(nlohmann::json::parse(text_of_file(json))["steps"], 322);
  std::vector<std::string> wilder = on;
  wilder.emplace_back("--on_nonfinite=continue");
  const Finished wild = run_built("linear_regression", wilder);
  EXPECT_EQ(wild.status, 1);
  EXPECT_THAT(wild.errors, HasSubstr("the loss is not finite since step 322, so no step is saved"));
  EXPECT_EQ(nlohmann::json::parse(text_of_file(json))["first_nonfinite_step"], 322);
  EXPECT_EQ(run_built("linear_regression", {"--resume=" + run, "--json=" + json}).status, 0);
  EXPECT_EQ(nlohmann::json::parse(text_of_file(json))["state_hash"], hash);
  local_file_system().remove(json);
  remove_tree(local_file_system(), run);
}

TEST(Programs, LinearRegressionWhoseTestLossIsNotFiniteWritesItsJsonAndExitsWithOne) {
  const Finished wild =
      run_built("linear_regression", {"--learning_rate=5", "--max_steps=17", "--json=-",
                                      "--on_nonfinite=continue"});  // gradients grow, too
  EXPECT_EQ(wild.status, 1);
  EXPECT_THAT(wild.errors, HasSubstr("error: training diverged: the test loss is inf"));
  const auto report = nlohmann::json::parse(wild.output);
  EXPECT_TRUE(report["validation_loss"].is_null());
  EXPECT_GT(report["loss"].get<double>(), 1e30);
}

TEST(Programs, NameTheFlagOfThreadsThatCannotStart) {
  if (kSanitized) GTEST_SKIP() << "sanitizers need the address space";
  const Finished done = run_program(
      "sh", {"-c", cat("ulimit -v 400000; exec ", BELFRY_BIN_DIR,
                       "/linear_regression --batch_size=1 --threads=1000 --devices=cpu:1000")});
  EXPECT_EQ(done.status, 1);
  EXPECT_THAT(done.errors, HasSubstr("use fewer (--threads), or "));
}

TEST(Programs, LoopTrainsWithoutATrainer) {
  const Finished done = run_built("loop", {});
  EXPECT_EQ(done.status, 0) << done.errors;
  double losses[3] = {};
  ASSERT_EQ(std::sscanf(done.output.c_str(),
                        "step 100: loss %lf\nstep 200: loss %lf\nstep 300: loss %lf\n", &losses[0],
                        &losses[1], &losses[2]),
            3)
      << done.output;
  EXPECT_LT(losses[2], losses[0]);
  EXPECT_LT(losses[2], 0.25);
}

// The two parameters of the exercise of ADCME, with its grid and its measurements at one end.
TEST(Programs, InverseProblemFindsBothParametersInTwentyEvaluations) {
  const Finished done = run_built("inverse_problem", {});
  ASSERT_EQ(done.status, 0) << done.errors;
  const std::size_t end = done.output.find(" iterations, ");
  ASSERT_NE(end, std::string::npos) << done.output;
  int evaluations = 0;
  ASSERT_EQ(std::sscanf(done.output.c_str() + end, " iterations, %d evaluations", &evaluations), 1);
  EXPECT_LE(evaluations, 20);
  EXPECT_THAT(done.output, HasSubstr("a 2.000000, b 1.500000\n"));
  EXPECT_THAT(done.output, HasSubstr("; the gradient is small enough\n"));
}

// The discriminator gets better than guessing, whose loss is 2 log 2, while the generator is
// trained, too.
TEST(Programs, GanTrainsTwoLossesInTurns) {
  const std::string json = temporary_path(".json");
  const Finished done =
      run_built("gan", {"--devices=cpu:2", "--global_batch_size=64", "--shards=4", "--max_steps=60",
                        "--eval_every_epochs=0", "--json=" + json});
  ASSERT_EQ(done.status, 0) << done.errors;
  const auto report = nlohmann::json::parse(text_of_file(json));
  const double disc = report["metrics"]["disc"], gen = report["metrics"]["gen"];
  EXPECT_GT(disc, 0);
  EXPECT_LT(disc, 1.38);
  EXPECT_GT(gen, 0);
  EXPECT_LT(gen, 20);
  EXPECT_DOUBLE_EQ(report["loss"], disc + gen);
  EXPECT_EQ(report["losses"][0]["trained_by"],
            "disc: disc by Adam(beta1=0.5, beta2=0.999, epsilon=1e-08)");
  EXPECT_EQ(report["k_dependent_because"], nullptr);
  EXPECT_EQ(report["replicas_equal"], true);
  local_file_system().remove(json);
}

TEST(Programs, GanHasOneHashOnAnyDevicesAndWhenItResumes) {
  const test::SmallDigits digits;
  const auto hash = [&](const std::string& devices, int steps, const std::string& run) {
    const std::string json = temporary_path(".json");
    std::vector<std::string> flags{"--data_dir=" + digits.path(), "--devices=" + devices,
                                   "--global_batch_size=64",      "--shards=4",
                                   cat("--max_steps=", steps),    "--json=" + json};
    if (!run.empty()) flags.push_back(cat("--run_dir=", digits.path(), "/", run));
    const Finished done = run_built("gan", flags);
    EXPECT_EQ(done.status, 0) << done.errors;
    const auto report = nlohmann::json::parse(text_of_file(json));
    local_file_system().remove(json);
    return report["state_hash"].get<std::string>();
  };
  const std::string one = hash("cpu:1", 6, "");
  EXPECT_EQ(hash("cpu:2", 6, ""), one);
  EXPECT_EQ(hash("cpu:4", 6, ""), one);
  EXPECT_NE(hash("cpu:2", 3, "run"), one);
  EXPECT_EQ(hash("cpu:4", 6, "run"), one);
}

TEST(Programs, PredictReportsAsTrainingProgramsDo) {
  const test::SmallDigits digits;
  const std::string data = "--data_dir=" + digits.path(), run = digits.path() + "/run";
  const Finished trained = run_built("mnist", {data, "--max_steps=2", "--run_dir=" + run});
  ASSERT_EQ(trained.status, 0) << trained.errors;
  const Finished done = run_built("predict", {run, data, "--images=64", "--json=-"});
  ASSERT_EQ(done.status, 0) << done.errors;
  const auto report = nlohmann::json::parse(done.output);
  EXPECT_EQ(report["program"], "predict");
  EXPECT_EQ(report["images"], 64);
  EXPECT_EQ(report["bad_records"], 0);
  const double right = 64 * report["validation_accuracy"].get<double>();
  EXPECT_THAT(done.errors, HasSubstr(cat("\n", right, " of 64 images are classified rightly\n")));
  digits.write("t10k-labels-idx1-ubyte", test::idx_bytes({64}, 11));
  EXPECT_THAT(run_built("predict", {run, data, "--images=8"}).errors,
              HasSubstr("let such records be left out (--bad_records, skip:N)"));
  const Finished some =
      run_built("predict", {run, data, "--images=8", "--bad_records=skip:9", "--json=-"});
  EXPECT_EQ(nlohmann::json::parse(some.output)["bad_records"], 5) << some.errors;
}

TEST(Programs, MnistLeavesOutBadRecords) {
  const test::SmallDigits digits;
  digits.write("train-labels-idx1-ubyte", test::idx_bytes({1024}, 11));
  std::vector<std::string> flags{"--data_dir=" + digits.path(), "--max_steps=1", "--json=-"};
  const Finished stopped = run_built("mnist", flags);
  EXPECT_EQ(stopped.status, 1);
  EXPECT_THAT(stopped.errors, HasSubstr("train-labels-idx1-ubyte: bad record at byte 18: "));
  flags.emplace_back("--bad_records=skip:93");
  const Finished done = run_built("mnist", flags);
  ASSERT_EQ(done.status, 0) << done.errors;
  EXPECT_EQ(nlohmann::json::parse(done.output)["bad_records"], 93);
}

TEST(Programs, PlacementPlansForGpusAndPrintsValuesAsNumpy) {
  const Finished done = run_built("placement", {});
  EXPECT_EQ(done.status, 0) << done.errors;
  const std::string device = "/job:localhost/replica:0/task:0/device:";
  for (const std::string& part : std::vector<std::string>{
           "# a function places variables on the CPU\nDevice mapping:\n",
           "\na: (Variable): " + device + "CPU:0\na/read: (Read): " + device +
               "CPU:0\nSin: (Sin): " + device + "GPU:0\na/Initializer/Fill: (Fill): " + device +
               "CPU:0\n0.84147096\n",
           "\nMatMul: (MatMul): " + device + "GPU:2\nMatMul_1: (MatMul): " + device +
               "GPU:3\nAddN: (AddN): " + device + "CPU:0\nConst: (Const): " + device + "GPU:2\n",
           "\n[[ 44.  56.]\n [ 98. 128.]]\n", "\nAssign: (Assign): " + device + "GPU:0\n",
           "\nv40: (Variable): " + device + "GPU:0\n", "\nv10: (Variable): " + device + "GPU:1\n",
           "\nv100/read: (Read): " + device + "CPU:0\n",
           "\nv80000/read: (Read): " + device + "GPU:1\n",
           "\nmoving_averages/AssignSub: (AssignSub): " + device + "CPU:0\n",
           "Cannot assign a device for operation value: node value (defined at placement.cc:"})
    EXPECT_THAT(done.output, HasSubstr(part));
  EXPECT_THAT(
      done.output,
      HasSubstr("was explicitly assigned to /device:CPU:1 but available devices are [ " + device +
                "CPU:0 ]. Make sure the device specification refers to a valid "
                "device."));
}

TEST(Programs, MissingDataExitsWithOneAndNamesTheFolder) {
  const Finished done = run_built("mnist", {"--data_dir=/nowhere"});
  EXPECT_EQ(done.status, 1);
  EXPECT_THAT(done.errors, HasSubstr("/nowhere"));
}

TEST(Programs, WrongFlagsExitWithTwo) {
  EXPECT_EQ(run_built("linear_regression", {"--data_dir=x"}).status, 2);
  const Finished done = run_built("mnist", {"--alreduce=naive"});
  EXPECT_EQ(done.status, 2);
  EXPECT_THAT(done.errors, HasSubstr("--allreduce"));
}

// Also where the model or the data say that a flag is wrong.
TEST(Programs, FlagsThatDoNotFitExitWithTwo) {
  const test::SmallDigits digits;
  for (const std::string flag :
       {"--gradient_repacking=1000000000", "--uneven=error", "--links=/nope"}) {
    const Finished done = run_built(
        "mnist", {"--data_dir=" + digits.path(), "--devices=cpu:2", "--global_batch_size=100",
                  flag == "--links=/nope" ? "--allreduce=auto" : "--allreduce=naive", flag});
    EXPECT_EQ(done.status, 2) << flag << done.errors;
    EXPECT_THAT(done.errors, HasSubstr("error: " + flag + ": "));
  }
}

// The closed forms: in both cases a, b and c cross (a to sin, b to cos, c to the sum). Colocated,
// the gradient of cos runs beside cos, so its result crosses to the gradient of sin, too.
TEST(Programs, ColocationPrintsWhatCrossesDevicesAndWritesTwoTraces) {
  const std::string folder = temporary_path(".traces");
  local_file_system().create_directory(folder);
  const Finished done = run_built("colocation", {folder});
  EXPECT_EQ(done.status, 0) << done.errors;
  EXPECT_THAT(done.output, HasSubstr("colocate = true: 16000000 bytes"));
  EXPECT_THAT(done.output, HasSubstr("colocate = false: 12000000 bytes"));
  const std::vector<std::string> files{folder + "/true.json", folder + "/false.json"};
  const Finished checked = check_traces(files);
  EXPECT_EQ(checked.status, 0) << checked.errors;
  EXPECT_THAT(checked.output, HasSubstr("true.json: "));
  std::vector<std::size_t> arrows;
  for (const std::string& file : files) {
    const auto trace = nlohmann::json::parse(text_of_file(file));
    std::size_t starts = 0;
    for (const auto& event : trace["traceEvents"]) starts += event["ph"] == "s" ? 1 : 0;
    EXPECT_EQ(starts, trace["otherData"]["transfers"].size());
    arrows.push_back(starts);
  }
  EXPECT_THAT(arrows, testing::ElementsAre(4u, 3u));
  remove_tree(local_file_system(), folder);
}

TEST(Programs, ColocationWritesNothingUnasked) {
  const std::string folder = temporary_path(".untouched");
  local_file_system().create_directory(folder);
  const Finished done =
      run_program("sh", {"-c", cat("cd ", folder, " && ", BELFRY_BIN_DIR, "/colocation")});
  EXPECT_EQ(done.status, 0) << done.errors;
  EXPECT_THAT(done.output, HasSubstr("colocate = true: 16000000 bytes"));
  EXPECT_TRUE(local_file_system().list(folder).empty());
  remove_tree(local_file_system(), folder);
}

TEST(Programs, ColocationRefusesFlagsAndNamesAFileThatCannotBeWritten) {
  EXPECT_EQ(run_built("colocation", {"a", "b"}).status, 2);
  const Finished done = run_built("colocation", {"/nowhere"});
  EXPECT_EQ(done.status, 2);
  EXPECT_THAT(done.errors, HasSubstr("/nowhere/true.json"));
}

TEST(Programs, ColocationRefusesTwoTracesOfOneFile) {
  const std::string folder = temporary_path(".one_trace");
  const Finished done =
      run_program("sh", {"-c", cat("mkdir ", folder, " && ln -s true.json ", folder,
                                   "/false.json && ", BELFRY_BIN_DIR, "/colocation ", folder)});
  EXPECT_EQ(done.status, 2);
  EXPECT_THAT(done.errors, HasSubstr("/true.json and FOLDER=" + folder +
                                     "/false.json would overwrite each other"));
  EXPECT_EQ(local_file_system().list(folder), std::vector<std::string>{"false.json"});
  remove_tree(local_file_system(), folder);
}

TEST(Programs, SayTheirVersion) {
  for (const char* program : {"belfry", "mnist", "peak_bench", "colocation"}) {
    const Finished done = run_built(program, {"--version"});
    EXPECT_EQ(done.status, 0) << program;
    EXPECT_THAT(done.output, testing::StartsWith(cat(program, " of Belfry "))) << program;
  }
}

// Whatever packages are there.
TEST(Scripts, SayWhatTheyDo) {
  const std::string scripts = cat(BELFRY_SOURCE_DIR, "/scripts/");
  for (const char* script : {"setup", "test", "compare_with_torch"}) {
    const Finished done = run_program(scripts + script, {"--help"});
    EXPECT_EQ(done.status, 0) << script << done.errors;
    EXPECT_NE(done.output, "") << script;
  }
  const Finished nowhere = run_program("sh", {"-c", "BELFRY_DATA_DIR=nope " + scripts + "test"});
  EXPECT_EQ(nowhere.status, 1);
  EXPECT_EQ(nowhere.errors, "test: BELFRY_DATA_DIR=nope is no folder that can be read\n");
}

// Of models that transformers and torchvision have saved, where these are installed.
TEST(Scripts, FindTheStepsOfPyTorch) {
  const Finished done = run_program(cat(BELFRY_SOURCE_DIR, "/scripts/compare_with_torch"),
                                    {"weights", BELFRY_BIN_DIR, "--only", "gpt2", "llama", "vit"});
  constexpr int kNoPackage = 77, kNoPython = 127;
  if (done.status == kNoPackage || done.status == kNoPython) GTEST_SKIP() << done.errors;
  EXPECT_EQ(done.status, 0) << done.output << done.errors;
}

TEST(Programs, SayWhatTheyAreAndRefuseTheRest) {
  for (const char* program : {"mnist", "linear_regression", "train_bench", "allreduce_bench",
                              "placement", "colocation", "loop", "gan", "inverse_problem"}) {
    for (const char* help : {"--help", "-h"}) {
      const Finished done = run_built(program, {help});
      EXPECT_EQ(done.status, 0) << program;
      EXPECT_EQ(done.errors, "") << program;
      EXPECT_THAT(done.output, HasSubstr(cat("Usage: ", program))) << program;
      for (const std::string_view line : split(done.output, '\n'))
        EXPECT_LE(line.size(), 100u) << program << ": " << line;
    }
    const Finished unknown = run_built(program, {"--hlep"});
    EXPECT_EQ(unknown.status, 2) << program;
    EXPECT_EQ(unknown.output, "") << program;
    EXPECT_EQ(unknown.errors, "error: unknown flag --hlep; did you mean --help?\n") << program;
  }
  const Finished foreign = run_built("allreduce_bench", {"--weight_decay=0.1"});
  EXPECT_EQ(foreign.status, 2);
  EXPECT_THAT(foreign.errors,
              HasSubstr("--weight_decay=0.1: nothing is trained here; leave it out"));
  EXPECT_THAT(run_built("colocation", {"--help"}).output, HasSubstr("[FOLDER]"));
  EXPECT_EQ(run_built("placement", {"x"}).status, 2);
  EXPECT_EQ(run_built("loop", {"x"}).errors, "error: 'x' is no flag (see --help)\n");
  for (const char* no_folder : {"", "--"})
    EXPECT_EQ(
        run_built("colocation", {no_folder}).errors,
        cat("error: '", no_folder, "' is neither a flag nor the argument FOLDER (see --help)\n"));
}

TEST(Programs, ListDevicesAsPeopleCount) {
  const Finished done = run_built("linear_regression", {"--devices=cpu:12", "--max_steps=1",
                                                        "--batch_size=2", "--json=/dev/stdout"});
  EXPECT_EQ(done.status, 0) << done.errors;
  std::size_t at = 0;
  const std::size_t peaks = done.output.find("peak_bytes");
  for (int i = 0; i < 12; ++i) {
    const std::size_t next = done.output.find(cat("CPU:", i, "\""), peaks);
    EXPECT_GT(next, at) << "CPU:" << i;
    at = next;
  }
  EXPECT_LT(done.errors.find("peak CPU:2 "), done.errors.find("peak CPU:10 "));
}

// The flags mean what they mean in tf_cnn_benchmarks. So does its sweep over numbers of GPUs.
TEST(Programs, TakeTheFlagsOfTfCnnBenchmarks) {
  for (const int k : {1, 2, 4}) {
    const std::string devices = cat("--num_gpus=", k);
    const Finished done =
        run_built("linear_regression", {devices, "--device=cpu", "--all_reduce_spec=xring",
                                        "--num_batches=3", "--json=/dev/stdout"});
    EXPECT_EQ(done.status, 0) << done.errors;
    const auto report = nlohmann::json::parse(done.output);
    EXPECT_EQ(report["devices"].size(), static_cast<std::size_t>(k));
    EXPECT_EQ(report["steps"], 3);
    EXPECT_THAT(done.errors, HasSubstr("epoch 1/1 "));
    EXPECT_EQ(report["trainer"], k == 1 ? "simple" : "replicated");
    EXPECT_EQ(report["allreduce"].is_null(), k == 1);
    EXPECT_EQ(done.errors.find("has no use for --num_gpus=1") != std::string::npos, k == 1)
        << done.errors;
  }
  const Finished cpu =
      run_built("linear_regression", {"--num_gpus=4", "--local_parameter_device=cpu", "--dry_run",
                                      "--variable_update=parameter_server", "--json=/dev/stdout"});
  EXPECT_EQ(cpu.status, 0) << cpu.errors;
  const auto devices = nlohmann::json::parse(cpu.output)["devices"];
  ASSERT_EQ(devices.size(), 5u);
  for (const auto& device : devices)
    EXPECT_EQ(device["variables"] != 0, device["device"].get<std::string>().ends_with("CPU:0"))
        << device;
}

// Loading takes a while, and much address space.
TEST(Programs, OnCpusDoNotLoadTheGpuModule) {
  const std::string run_dir = temporary_path(".run");
  for (const std::string& program :
       {std::string("mnist --devices=cpu:1 --max_steps=1"),
        std::string("allreduce_bench -b 8 -e 8 -n 1"),
        std::string(
            "train_bench --devices=cpu:1 --model=mlp --num_batches=2 --num_warmup_batches=1"),
        "linear_regression --devices=cpu:2 --max_steps=1 --run_dir=" + run_dir}) {
    const Finished done =
        run_program("sh", {"-c", cat("LD_DEBUG=files exec ", BELFRY_BIN_DIR, "/", program)});
    ASSERT_EQ(done.status, 0) << program;
    EXPECT_THAT(done.errors, HasSubstr("libbelfry")) << "the linker tells nothing";
    EXPECT_THAT(done.errors, testing::Not(HasSubstr("belfry_cuda"))) << program;
  }
  remove_tree(local_file_system(), run_dir);
}

}  // namespace programs_test
}  // namespace belfry
