// The example programs, run as people run them.
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

std::string text_of(const std::string& path) {
  const std::vector<std::byte> bytes = local_file_system().read(path);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Runs a program of the build.
Finished run(const std::string& program, const std::vector<std::string>& arguments) {
  return run_program(cat(BELFRY_BIN_DIR, "/", program), arguments);
}

TEST(Programs, MnistTrainsOnGeneratedDigitsAndWritesItsJson) {
  const std::string json = cat(testing::TempDir(), "programs_test.", getpid(), ".json");
  const Finished done =
      run("mnist", {"--devices=cpu:4", "--max_steps=2", "--batch_size=8", "--json=" + json});
  EXPECT_EQ(done.status, 0) << done.errors;
  const auto report = nlohmann::json::parse(text_of(json));
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
    const Finished done = run("mnist", flags);
    EXPECT_EQ(done.status, 0) << done.errors;
    return nlohmann::json::parse(text_of(json));
  };
  const auto plain = report({}), smooth = report({"--label_smoothing=0.1"});
  EXPECT_EQ(plain["flags"]["label_smoothing"], 0);
  EXPECT_EQ(smooth["flags"]["label_smoothing"], 0.1);
  EXPECT_NE(smooth["params_hash"], plain["params_hash"]);
  const auto clipped = report({"--clip_norm=0.01"});
  EXPECT_EQ(clipped["k_independent"], true);
  EXPECT_EQ(report({"--clip_norm=0.01", "--devices=cpu:4"})["state_hash"], clipped["state_hash"]);
  const Finished refused = run("mnist", {"--label_smoothing=2"});
  EXPECT_EQ(refused.status, 2);
  EXPECT_THAT(refused.errors, HasSubstr("--label_smoothing=2 is not a number from 0 to 1"));
  local_file_system().remove(json);
}

// Which units are zero depends on the row of the global batch alone.
TEST(Programs, MnistDropsTheSameUnitsOnAnyNumberOfDevices) {
  const std::string json = temporary_path(".json");
  const test::SmallDigits digits;
  const std::string steps = kSanitized ? "--max_steps=3" : "--max_steps=20";
  const auto hash = [&](std::vector<std::string> flags) {
    flags.insert(flags.end(), {"--data_dir=" + digits.path(), "--epochs=2",
                               "--global_batch_size=64", steps, "--json=" + json});
    const Finished done = run("mnist", flags);
    EXPECT_EQ(done.status, 0) << done.errors;
    const auto report = nlohmann::json::parse(text_of(json));
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

// The sources of programs that train: they call train(), or have its flags.
std::vector<std::string> training_programs() {
  std::vector<std::string> names;
  const std::string folder = cat(BELFRY_SOURCE_DIR, "/examples");
  for (const std::string& file : local_file_system().list(folder)) {
    if (!file.ends_with(".cc")) continue;
    const std::string text = text_of(cat(folder, "/", file));
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
      flags.emplace_back("--max_steps=2");
    if (program == "resnet50") flags.emplace_back("--image_size=32");
    const auto hash = [&](std::vector<std::string> arguments) {
      arguments.push_back("--json=" + json);
      const Finished done = run(program, arguments);
      EXPECT_EQ(done.status, 0) << done.errors;
      return nlohmann::json::parse(text_of(json))["state_hash"].get<std::string>();
    };
    const std::string first = hash(flags);
    flags.emplace_back("--print_config");
    const Finished printed = run(program, flags);
    ASSERT_EQ(printed.status, 0) << printed.errors;
    write_text_file(local_file_system(), config, printed.output);
    EXPECT_EQ(hash({"--config=" + config}), first);
    if (program == "linear_regression") {  // which takes no time
      EXPECT_NE(hash({"--config=" + config, "--seed=4"}), first);
    }
    EXPECT_EQ(run(program, {"--config=" + config, "--print_config"}).output, printed.output);
  }
  for (const std::string& path : {json, config}) local_file_system().remove(path);
}

TEST(Programs, LinearRegressionFindsItsLine) {
  const std::string json = cat(testing::TempDir(), "programs_test.", getpid(), ".line.json");
  const Finished done = run("linear_regression", {"--json", json});
  EXPECT_EQ(done.status, 0) << done.errors;
  const auto report = nlohmann::json::parse(text_of(json));
  local_file_system().remove(json);
  EXPECT_LT(report["loss"].get<double>(), 0.001);
  EXPECT_TRUE(report["test_accuracy"].is_null());
}

TEST(Programs, LinearRegressionThatDivergesKeepsItsCheckpointAndExitsWithOne) {
  const std::string json = temporary_path(".json"), checkpoint = temporary_path(".checkpoint");
  const std::string save = "--save_checkpoint=" + checkpoint;
  const std::string restore = "--restore_checkpoint=" + checkpoint;
  EXPECT_EQ(run("linear_regression", {save, "--json=" + json}).status, 0);
  const std::string hash = nlohmann::json::parse(text_of(json))["state_hash"];
  const Finished wild = run(
      "linear_regression", {restore, save, "--epochs=7", "--learning_rate=1e30", "--json=" + json});
  EXPECT_EQ(wild.status, 1);
  EXPECT_THAT(wild.errors,
              HasSubstr("the loss is not finite since step 322, so nothing was saved"));
  EXPECT_THAT(wild.errors, HasSubstr(checkpoint + " was kept; save to another path"));
  EXPECT_EQ(nlohmann::json::parse(text_of(json))["first_nonfinite_step"], 322);
  EXPECT_EQ(run("linear_regression", {restore, "--json=" + json}).status, 0);
  EXPECT_EQ(nlohmann::json::parse(text_of(json))["state_hash"], hash);
  local_file_system().remove(json);
  remove_tree(local_file_system(), checkpoint);
}

// The loss of the last step is finite, and that of all test data is not.
TEST(Programs, LinearRegressionWhoseTestLossIsNotFiniteWritesItsJsonAndExitsWithOne) {
  const Finished wild =
      run("linear_regression", {"--learning_rate=5", "--max_steps=17", "--json=-"});
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
  const Finished done = run("loop", {});
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

// Each optimizer trains its own part: the discriminator gets better than guessing, whose loss is
// 2 log 2, while the generator is trained, too.
TEST(Programs, GanTrainsTwoPartsOfTheVariablesInTurns) {
  const Finished done = run("gan", {});
  ASSERT_EQ(done.status, 0) << done.errors;
  EXPECT_THAT(done.output, HasSubstr("step 50: "));
  const std::size_t last = done.output.find("step 200: losses of discriminator ");
  ASSERT_NE(last, std::string::npos) << done.output;
  double disc = 0, gen = 0;
  ASSERT_EQ(std::sscanf(done.output.c_str() + last,
                        "step 200: losses of discriminator %lf, of generator %lf", &disc, &gen),
            2);
  EXPECT_GT(disc, 0);
  EXPECT_LT(disc, 1.38);
  EXPECT_GT(gen, 0);
  EXPECT_LT(gen, 20);
}

TEST(Programs, PlacementPlansForGpusAndPrintsValuesAsNumpy) {
  const Finished done = run("placement", {});
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
  const Finished done = run("mnist", {"--data_dir=/nowhere"});
  EXPECT_EQ(done.status, 1);
  EXPECT_THAT(done.errors, HasSubstr("/nowhere"));
}

TEST(Programs, WrongFlagsExitWithTwo) {
  EXPECT_EQ(run("linear_regression", {"--data_dir=x"}).status, 2);
  const Finished done = run("mnist", {"--alreduce=naive"});
  EXPECT_EQ(done.status, 2);
  EXPECT_THAT(done.errors, HasSubstr("--allreduce"));
}

// The closed forms: a, b and c cross either way (a to sin, b to cos, c to the sum). Colocated, the
// gradient of cos runs beside it, so that what it makes for the gradient of sin crosses too.
TEST(Programs, ColocationPrintsWhatCrossesDevicesAndWritesTwoTraces) {
  const std::string folder = temporary_path(".traces");
  local_file_system().create_directory(folder);
  const Finished done = run("colocation", {folder});
  EXPECT_EQ(done.status, 0) << done.errors;
  EXPECT_THAT(done.output, HasSubstr("colocate = true: 16000000 bytes"));
  EXPECT_THAT(done.output, HasSubstr("colocate = false: 12000000 bytes"));
  const std::vector<std::string> files{folder + "/true.json", folder + "/false.json"};
  const Finished checked = check_traces(files);
  EXPECT_EQ(checked.status, 0) << checked.errors;
  EXPECT_THAT(checked.output, HasSubstr("true.json: "));
  std::vector<std::size_t> arrows;
  for (const std::string& file : files) {
    const auto trace = nlohmann::json::parse(text_of(file));
    std::size_t starts = 0;
    for (const auto& event : trace["traceEvents"]) starts += event["ph"] == "s" ? 1 : 0;
    EXPECT_EQ(starts, trace["otherData"]["transfers"].size());
    arrows.push_back(starts);
  }
  EXPECT_THAT(arrows, testing::ElementsAre(4u, 3u));
  remove_tree(local_file_system(), folder);
}

TEST(Programs, ColocationRefusesFlagsAndNamesAFileThatCannotBeWritten) {
  EXPECT_EQ(run("colocation", {"a", "b"}).status, 2);
  const Finished done = run("colocation", {"/nowhere"});
  EXPECT_EQ(done.status, 1);
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

TEST(Programs, SayWhatTheyAreAndRefuseTheRest) {
  for (const char* program : {"mnist", "linear_regression", "train_bench", "allreduce_bench",
                              "placement", "colocation", "loop", "gan"}) {
    for (const char* help : {"--help", "-h"}) {
      const Finished done = run(program, {help});
      EXPECT_EQ(done.status, 0) << program;
      EXPECT_EQ(done.errors, "") << program;
      EXPECT_THAT(done.output, HasSubstr(cat("Usage: ", program))) << program;
      for (const std::string_view line : split(done.output, '\n'))
        EXPECT_LE(line.size(), 100u) << program << ": " << line;
    }
    const Finished unknown = run(program, {"--hlep"});
    EXPECT_EQ(unknown.status, 2) << program;
    EXPECT_EQ(unknown.output, "") << program;
    EXPECT_EQ(unknown.errors, "error: unknown flag --hlep; did you mean --help?\n") << program;
  }
  const Finished foreign = run("allreduce_bench", {"--weight_decay=0.1"});
  EXPECT_EQ(foreign.status, 2);
  EXPECT_THAT(foreign.errors,
              HasSubstr("--weight_decay=0.1: nothing is trained here; leave it out"));
  EXPECT_THAT(run("colocation", {"--help"}).output, HasSubstr("[FOLDER]"));
  EXPECT_EQ(run("placement", {"x"}).status, 2);
  EXPECT_EQ(run("loop", {"x"}).errors, "error: 'x' is no flag (see --help)\n");
  for (const char* no_folder : {"", "-"})
    EXPECT_EQ(run("colocation", {no_folder}).errors,
              cat("error: '", no_folder, "' is neither a flag nor a FOLDER (see --help)\n"));
}

TEST(Programs, ListDevicesAsPeopleCount) {
  const Finished done = run("linear_regression", {"--devices=cpu:12", "--max_steps=1",
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

// The meaning that these commands have for tf_cnn_benchmarks, and its sweep over numbers of GPUs.
TEST(Programs, TakeTheFlagsOfTfCnnBenchmarks) {
  for (const int k : {1, 2, 4}) {
    const std::string devices = cat("--num_gpus=", k);
    const Finished done =
        run("linear_regression", {devices, "--device=cpu", "--all_reduce_spec=xring",
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
      run("linear_regression", {"--num_gpus=4", "--local_parameter_device=cpu", "--dry_run",
                                "--variable_update=parameter_server", "--json=/dev/stdout"});
  EXPECT_EQ(cpu.status, 0) << cpu.errors;
  const auto devices = nlohmann::json::parse(cpu.output)["devices"];
  ASSERT_EQ(devices.size(), 5u);
  for (const auto& device : devices)
    EXPECT_EQ(device["variables"] != 0, device["device"].get<std::string>().ends_with("CPU:0"))
        << device;
}

TEST(Programs, AllreduceBenchPrintsItsTableAndWritesJsonAndCsv) {
  const std::string json = temporary_path(".json"), csv = temporary_path(".csv");
  const Finished done =
      run("allreduce_bench", {"-b", "8", "-e", "1K", "-f", "128", "-n5", "-w", "0", "--devices",
                              "cpu:3", "--strategies=all", "--json=" + json, "--csv=" + csv});
  EXPECT_EQ(done.status, 0) << done.errors;
  EXPECT_THAT(done.output, HasSubstr("\n        1024           256     float     sum      -1  "));
  EXPECT_THAT(done.output, HasSubstr("# hierarchical refused: hierarchical needs an "
                                     "even number of"));
  EXPECT_THAT(done.output, HasSubstr("# Out of bounds values : 0 OK\n# Avg bus bandwidth    : "));
  const auto records = nlohmann::json::parse(text_of(json));
  EXPECT_THAT(
      text_of(csv),
      testing::StartsWith("strategy,canonical,devices,processes,device_type,dtype,redop,bytes,"
                          "in_place,time_us,algbw,busbw,wrong,limit_us,agg_iters,"
                          "deterministic\n"));
  local_file_system().remove(json);
  local_file_system().remove(csv);
  ASSERT_GE(records.size(), 8u);
  for (const auto& record : records) {
    EXPECT_EQ(record["devices"], 3);
    EXPECT_EQ(record["device_type"], "cpu");
    EXPECT_EQ(record["wrong"], 0) << record;
    EXPECT_GT(record["time_us"].get<double>(), 0);
    EXPECT_GT(record["limit_us"].get<double>(), 0);
    EXPECT_DOUBLE_EQ(record["busbw"].get<double>(), record["algbw"].get<double>() * 4 / 3);
  }
}

TEST(Programs, AllreduceBenchRefusesWhatMakesNoSenseBeforeItMeasures) {
  const std::string half = cat(host_memory() / 2);
  const std::string dgx1 = cat("--links=", BELFRY_SOURCE_DIR, "/docs/links/dgx1.json");
  const std::pair<std::vector<std::string>, std::string> refusals[] = {
      {{"-b", "2"}, "less than one f32 of 4 bytes"},
      {{"-b", "2K", "-e", "1K"}, "-b 2K is more than -e 1K"},
      {{"-e", "1K"}, "--minbytes=32M, the default, is more than -e 1K"},
      {{"-d", "flaot"}, "did you mean 'float'?"},
      {{"-d", "i32", "-o", "avg"}, "the mean of integers is not defined"},
      {{"-o", "max"}, "neither sum nor avg"},
      {{"-f", "1"}, "-f 1 is not a whole number between 2"},
      {{"--strategies=rong"}, "unknown aggregation strategy 'rong'"},
      {{"--csv=a", "--json=./a"}, "would overwrite each other"},
      {{"--strategies=hierarchical", "--devices=cpu:3"}, "--strategies=hierarchical: "},
      {{"--strategies=naive,nccl"}, "--strategies=nccl: "},
      {{"--model=resnet5"}, "did you mean"},
      {{"--model=mlp", "-e", "8"}, "-e 8 has no use beside --model=mlp"},
      {{"--model=mlp", "-b", "1K"}, "-b 1K has no use beside --model=mlp"},
      {{"--model=mlp", "--minbytes=1K"}, "--minbytes=1K has no use beside --model=mlp"},
      {{"--maxbytes=x"}, "--maxbytes=x is no number of bytes"},
      {{"-n", "0"}, "-n 0 is not a whole number between 1"},
      {{"-c", "2"}, "-c 2 is neither true (or 1) nor false (or 0)"},
      {{"--num_gpus=2000", "--device=cpu"},
       "--num_gpus=2000 is not a whole number between 1 and 1024"},
      {{"--update=sgd"}, "say momentum"},
      {{"--update=momentum", "-d", "i32"}, "f32 or f64, not i32"},
      {{"--update=momentum", "--strategies=auto"}, "leave auto out"},
      {{"--strategies=ring,naive,ring"}, "ring is there twice"},
      {{"--strategies=all,naive"}, "naive is there twice"},
      {{"-d", "f16", "--strategies=collective,ring"}, "--strategies=ring: "},
      {{"-d", "bf16", "-o", "avg", "--strategies=collective:1k:naive"}, "no host kernel for bf16"},
      {{"-b", "0"}, "-b 0 leaves nothing to reduce"},
      {{"-b", "9223372036854775807"}, "-b 9223372036854775807 needs 8388608.00 TiB of memory"},
      {{"-b", half}, "-b " + half + " on --devices=cpu:2 needs "},
      {{"-b", "8", "-e", half, "-c0"}, "-e " + half + " on --devices=cpu:2 needs "},
      {{"-b", half, "-d", "f16", "--strategies=all"}, "use a smaller size"},
      {{"-b", half, "--update=momentum"}, "-b " + half + " on --devices=cpu:2 needs "},
      {{"--strategies=auto", "--devices=cpu:10", dgx1},
       dgx1 + ": the machine has 8 devices of type GPU, but 10 devices are asked for"},
      {{"--links=x"}, "without auto among --strategies there is none"},
      {{"--strategies=auto", "--links=x", "--remeasure"}, "no use for --remeasure"},
      {{"--devices=gpu:2", "--logical_gpus=0"},
       "--logical_gpus=0 is not a whole number between 1 and 1024"},
      {{"--logical_gpus=2"}, "--logical_gpus=2 has no use for --devices=cpu:2, which names no GPU"},
      {{"--devices=gpu:1000"}, "--devices: 'gpu:1000'"},
      {{"--precision=bf16"}, "--precision=bf16 changes no gradient"},
      {{"--precision=fp8"}, "--precision=fp8: unknown precision 'fp8'"},
      {{"-m", "0"}, "-m 0 is not a whole number between 1 and 1000"},
      {{"-m", "2", "--update=momentum"}, "-m 2 has no use beside --update"},
      {{"--allreduce=ring"}, "--allreduce=ring: name strategies by --strategies, such as"},
      {{"--all_reduce_spec=xring"}, "--all_reduce_spec=xring: name strategies by --strategies"},
      {{"--hierarchical_copy"}, "--hierarchical_copy: write --strategies=hierarchical"},
      {{"-g", "8"}, "'-g' is no flag"}};
  for (const auto& [flags, why] : refusals) {
    const Finished done = run("allreduce_bench", flags);
    EXPECT_EQ(done.status, 2) << why;
    EXPECT_EQ(done.output, "") << why;
    EXPECT_THAT(done.errors, HasSubstr(why));
  }
}

TEST(Programs, AllreduceBenchTimesSeveralReductionsAtOnce) {
  const std::string json = temporary_path(".json");
  const Finished done = run("allreduce_bench", {"-b", "1K", "-e", "1K", "-n", "2", "-m", "5",
                                                "--devices=cpu:2", "--json=" + json});
  EXPECT_EQ(done.status, 0) << done.errors;
  EXPECT_THAT(done.output, HasSubstr(" agg iters: 5 "));
  const auto records = nlohmann::json::parse(text_of(json));
  local_file_system().remove(json);
  for (const auto& record : records) {
    EXPECT_EQ(record["agg_iters"], 5);
    EXPECT_EQ(record["wrong"], 0);
  }
}

TEST(Programs, AllreduceBenchListsOnOneDeviceWhatItRefusesThere) {
  const Finished done = run(
      "allreduce_bench", {"-b", "8", "-e", "8", "-n", "1", "--devices=cpu:1", "--strategies=all"});
  EXPECT_EQ(done.status, 0) << done.errors;
  EXPECT_THAT(done.output, HasSubstr("# hierarchical refused: "));
  EXPECT_THAT(done.output, HasSubstr("# nccl refused: "));
  const Finished named = run("allreduce_bench", {"-b", "8", "-e", "8", "-n", "1", "--devices=cpu:1",
                                                 "--strategies=collective,hierarchical"});
  EXPECT_EQ(named.status, 0) << named.errors;
  EXPECT_THAT(named.output, HasSubstr("# hierarchical refused: "));
  const Finished update =
      run("allreduce_bench", {"-b", "8", "-e", "8", "-n", "1", "--devices=cpu:1",
                              "--strategies=all", "--update=momentum"});
  EXPECT_THAT(update.output, HasSubstr("# nccl refused: "));
}

TEST(Programs, AllreduceBenchChoosesAsIfTheDevicesOfAFileWereThere) {
  const Finished done = run(
      "allreduce_bench", {"-b", "1K", "-e", "1K", "-n", "2", "--devices=cpu:8", "--strategies=auto",
                          cat("--links=", BELFRY_SOURCE_DIR, "/docs/links/dgx1.json")});
  EXPECT_EQ(done.status, 0) << done.errors;
  EXPECT_THAT(done.output, HasSubstr("\n# auto: "));
  EXPECT_THAT(done.output, HasSubstr("  auto -> "));
  const Finished missing =
      run("allreduce_bench", {"--strategies=auto", "--links=/nowhere/links.json"});
  EXPECT_EQ(missing.status, 1);
  EXPECT_THAT(missing.errors, HasSubstr("--links=/nowhere/links.json: "));
}

// --help says where measurements are kept only if they are.
TEST(Programs, AllreduceBenchSaysWhereItKeepsMeasurements) {
  const std::string program = cat(BELFRY_BIN_DIR, "/allreduce_bench");
  const Finished kept = run_program("env", {"XDG_CACHE_HOME=/some/cache", program, "--help"});
  EXPECT_THAT(kept.output, HasSubstr("kept in /some/cache/belfry]"));
  const Finished lost =
      run_program("env", {"-u", "XDG_CACHE_HOME", "-u", "HOME", program, "--help"});
  EXPECT_THAT(lost.output, HasSubstr("[none: they are measured]"));
}

// It takes a while, and much address space.
TEST(Programs, OnCpusDoNotLoadTheGpuModule) {
  const std::string run_dir = temporary_path(".run");
  for (const std::string& program :
       {std::string("mnist --max_steps=1"), std::string("allreduce_bench -b 8 -e 8 -n 1"),
        std::string("train_bench --model=mlp --num_batches=2 --num_warmup_batches=1"),
        "linear_regression --max_steps=1 --run_dir=" + run_dir}) {
    const Finished done =
        run_program("sh", {"-c", cat("LD_DEBUG=files exec ", BELFRY_BIN_DIR, "/", program)});
    ASSERT_EQ(done.status, 0) << program;
    EXPECT_THAT(done.errors, HasSubstr("libbelfry")) << "the linker tells nothing";
    EXPECT_THAT(done.errors, testing::Not(HasSubstr("belfry_cuda"))) << program;
  }
  remove_tree(local_file_system(), run_dir);
}

TEST(Programs, AllreduceBenchPutsNothingButTheFileOnStdout) {
  const Finished done =
      run("allreduce_bench",
          {"-b", "8", "-e", "8", "-n", "1", "--json=/dev/stdout", "--strategies=halving-doubling"});
  EXPECT_EQ(done.status, 0) << done.errors;
  const auto records = nlohmann::json::parse(done.output);
  EXPECT_EQ(records.size(), 2u);
  EXPECT_EQ(records[0]["strategy"], "halving_doubling");
  EXPECT_THAT(done.errors, HasSubstr("# Avg bus bandwidth    : "));
}

// The second size does not fit into the address space that it may have.
TEST(Programs, AllreduceBenchKeepsWhatItMeasuredBeforeAnError) {
  if (kSanitized) GTEST_SKIP() << "sanitizers need the address space";
  const std::string json = temporary_path(".json"), csv = temporary_path(".csv");
  const Finished done = run_program(
      "sh", {"-c", cat("ulimit -v 700000; exec ", BELFRY_BIN_DIR,
                       "/allreduce_bench -b 1K -e 128M -f 131072 -c 0 -n 1 --devices=cpu:4 --json=",
                       json, " --csv=", csv)});
  EXPECT_EQ(done.status, 1) << done.errors;
  EXPECT_THAT(done.errors, HasSubstr("cannot allocate"));
  const auto records = nlohmann::json::parse(text_of(json));
  EXPECT_EQ(records.size(), 2u);
  EXPECT_EQ(records[0]["bytes"], 1024);
  EXPECT_THAT(text_of(csv), HasSubstr("\ncollective,true,4,1,cpu,f32,sum,1024,true,"));
  local_file_system().remove(json);
  local_file_system().remove(csv);
}

TEST(Programs, AllreduceBenchTimesTheUpdateInFourCells) {
  const std::string json = temporary_path(".update.json");
  const Finished done =
      run("allreduce_bench", {"-b", "4K", "-e", "4K", "-n", "3", "--devices=cpu:4",
                              "--update=momentum", "--json=" + json});
  EXPECT_EQ(done.status, 0) << done.errors;
  const auto records = nlohmann::json::parse(text_of(json));
  local_file_system().remove(json);
  ASSERT_EQ(records.size(), 4u);
  for (std::size_t c = 0; c < 4; ++c) {
    EXPECT_EQ(records[c]["fuse_updates"], c % 2 == 1);
    EXPECT_EQ(records[c]["share_replicas"], c >= 2);
    EXPECT_EQ(records[c]["wrong"], 0);
    EXPECT_EQ(records[c]["in_place"], true);
    EXPECT_GT(records[c]["limit_us"].get<double>(), 0);
    EXPECT_DOUBLE_EQ(records[c]["busbw"].get<double>(), records[c]["algbw"].get<double>() * 1.5);
  }
}

// 784 * 512 + 512, 512 * 512 + 512, 512 * 10 + 10 weights of four bytes.
TEST(Programs, AllreduceBenchReducesTheGradientsOfAModel) {
  const Finished done = run("allreduce_bench", {"--model=mlp", "-n", "2", "--devices=cpu:2"});
  EXPECT_EQ(done.status, 0) << done.errors;
  EXPECT_THAT(done.output, HasSubstr("# gradients of mlp\n"));
  EXPECT_THAT(done.output, HasSubstr("\n     2678824        669706     float"));
}

}  // namespace programs_test
}  // namespace belfry
