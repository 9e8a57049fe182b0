// Checks the installed files, and builds programs outside the tree with them alone, as README.md
// says.
#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "belfry/framework/base/file_system.h"
#include "belfry/framework/base/text.h"
#include "belfry/tests/framework/source_files.h"
#include "belfry/tests/support/programs.h"
#include "belfry/tests/support/sanitizers.h"

namespace belfry {
namespace install_test {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsSupersetOf;
using testing::Not;

std::string example(const char* path) { return cat(BELFRY_SOURCE_DIR, "/examples/", path); }

const std::string kBuildDir = cat(BELFRY_BIN_DIR, "/..");

// A value of the configuration of this build.
std::string configured(std::string_view name) {
  const std::string cache = text_of_file(kBuildDir + "/CMakeCache.txt");
  for (const std::string_view line : split(cache, '\n'))
    if (line.starts_with(cat(name, ":"))) return std::string(line.substr(line.find('=') + 1));
  ADD_FAILURE() << "CMakeCache.txt has no " << name;
  return "";
}

// Runs a step that must succeed.
void succeed(const std::string& program, const std::vector<std::string>& arguments) {
  const Finished done = run_program(program, arguments);
  ASSERT_EQ(done.status, 0) << program << " " << join(arguments, " ") << "\n"
                            << done.output << done.errors;
}

// Only a comment of a precompiled header changes, and a source that includes the header, too.
TEST(CompilerCache, TakesNoPrecompiledHeaderOfOtherComments) {
  if (configured("BELFRY_CCACHE").ends_with("-NOTFOUND")) GTEST_SKIP() << "no ccache here";
  const std::string folder = temporary_path(".precompiled");
  local_file_system().create_directory(folder);
  const auto write = [&](const char* file, std::string_view text) {
    std::ofstream(cat(folder, "/", file)) << text;
  };
  write("CMakeLists.txt",
        cat("cmake_minimum_required(VERSION 3.25)\n"
            "project(precompiled LANGUAGES CXX)\n"
            "set(BELFRY_SANITIZE none)\n"
            "include(",
            BELFRY_SOURCE_DIR,
            "/scripts/cmake/tools.cmake)\n"
            "add_library(one one.cc)\n"
            "target_precompile_headers(one PRIVATE one.h)\n"
            "target_compile_options(one PRIVATE ${belfry_precompiled_options})\n"));
  const auto build = [&](const std::string& options = "") {
    const std::string cmake = configured("CMAKE_COMMAND");
    return cat("export CCACHE_DIR=", folder, "/cache; rm -rf ", folder, "/build; ", cmake, " -S ",
               folder, " -B ", folder, "/build -G ", configured("CMAKE_GENERATOR"), options,
               " -DCMAKE_CXX_COMPILER=", configured("CMAKE_CXX_COMPILER"), " && ", cmake,
               " --build ", folder, "/build");
  };
  // A cache that others use too, which compare what the preprocessor makes of a header.
  const std::string others =
      cat(build(" '-DCMAKE_CXX_COMPILER_LAUNCHER=env;CCACHE_SLOPPINESS=pch_defines,time_macros,"
                "include_file_mtime,include_file_ctime;ccache'"),
          " || true");
  write("one.h", "#pragma once\n// Before.\nstruct One {};\n");
  write("one.cc", "#include \"one.h\"\nOne one;\n");
  succeed("sh", {"-c", others});
  succeed("sh", {"-c", build()});
  write("one.h", "#pragma once\n// After.\nstruct One {};\n");
  write("one.cc", "#include \"one.h\"\nOne two;\n");
  succeed("sh", {"-c", others});
  succeed("sh", {"-c", build()});
  remove_tree(local_file_system(), folder);
}

// The library, installed in a folder of its own.
class Installed : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    root_ = temporary_path(".installed");
    local_file_system().create_directory(root_);
    succeed(configured("CMAKE_COMMAND"), {"--install", kBuildDir, "--prefix", prefix()});
  }
  static void TearDownTestSuite() { remove_tree(local_file_system(), root_); }

  static std::string prefix() { return folder("prefix"); }
  static std::string folder(const char* name) { return cat(root_, "/", name); }

  // Builds the program of a folder that was copied out of the tree, with another source if one is
  // given. Returns its path.
  static std::string make(const char* folder, const std::string& program,
                          const std::string& main = "main.cc") {
    const std::string source = cat(root_, "/", main, ".", folder), build = source + ".build";
    succeed("cp", {"-r", example(folder), source});
    if (main != "main.cc") succeed("cp", {example(main.c_str()), source + "/main.cc"});
    const std::string cmake = configured("CMAKE_COMMAND");
    succeed(cmake, {"-S", source, "-B", build, "-G", configured("CMAKE_GENERATOR"),
                    "-DCMAKE_PREFIX_PATH=" + prefix(),
                    cat("-DCMAKE_CXX_COMPILER=", configured("CMAKE_CXX_COMPILER"))});
    succeed(cmake, {"--build", build});
    return cat(build, "/", program);
  }

  static nlohmann::json run(const std::string& program, std::vector<std::string> arguments) {
    const std::string json = root_ + "/result.json";
    arguments.push_back("--json=" + json);
    succeed(program, arguments);
    return nlohmann::json::parse(text_of_file(json));
  }

  // --config must make the same run from the file that --print_config gives.
  static void expect_run_again(const std::string& program, std::vector<std::string> arguments,
                               const nlohmann::json& first) {
    arguments.emplace_back("--print_config");
    const Finished printed = run_program(program, arguments);
    ASSERT_EQ(printed.status, 0) << printed.errors;
    const std::string config = root_ + "/config.json";
    write_text_file(local_file_system(), config, printed.output);
    EXPECT_EQ(run(program, {"--config=" + config})["state_hash"], first["state_hash"]) << program;
  }

  // Checks a source without generating code.
  static Finished compile(std::vector<std::string> arguments) {
    arguments.insert(arguments.end(),
                     {"-std=c++20", "-fsyntax-only", cat("-I", prefix(), "/include")});
    return run_program(configured("CMAKE_CXX_COMPILER"), arguments);
  }

 private:
  static inline std::string root_;
};

// The headers that programs include: the first for all, the last for published models, the others
// for C, and for data, ops and strategies of their own.
const std::vector<std::string> kPublic = {"belfry.h",
                                          "predict.h",
                                          "framework/device/gpu_kernels.h",
                                          "framework/graph/op.h",
                                          "framework/graph/kernel.h",
                                          "framework/graph/shards.h",
                                          "framework/kernels/counter.h",
                                          "ops/kernels/pointwise_op.h",
                                          "allreduce/pieces.h",
                                          "trainers/data/decode_image.h",
                                          "trainers/models/models.h"};
// The one that tests of ops include.
const std::string kOpTest = "op_test.h";

// The headers of ours that a header below `folder` includes, without "belfry/".
std::vector<std::string> included_by(const std::string& folder, const std::string& header) {
  std::vector<std::string> names;
  for (const std::string& include : test::includes(text_of_file(cat(folder, "/", header))))
    if (include.starts_with("\"belfry/")) names.push_back(include.substr(8, include.size() - 9));
  return names;
}

// The headers below `folder` that these include, and these.
std::set<std::string> reached_from(const std::string& folder, std::vector<std::string> todo) {
  std::set<std::string> reached(todo.begin(), todo.end());
  while (!todo.empty()) {
    const std::string header = todo.back();
    todo.pop_back();
    for (const std::string& next : included_by(folder, header))
      if (reached.insert(next).second) todo.push_back(next);
  }
  return reached;
}

// The sources of all examples and the headers that they share, as they are installed: the files of
// these kinds below a folder, in order.
std::vector<std::string> sources_in(const std::string& examples,
                                    const std::set<std::string>& kinds = {".cc", ".h"}) {
  std::vector<std::string> sources;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(examples))
    if (kinds.contains(entry.path().extension()))
      sources.push_back(entry.path().lexically_relative(examples));
  std::ranges::sort(sources);
  return sources;
}

TEST_F(Installed, HeadersAreThoseThatPublicOnesAndExamplesInclude) {
  const std::string folder = prefix() + "/include/belfry";
  const std::set<std::string> face = reached_from(folder, kPublic);
  std::vector<std::string> included = kPublic;
  included.push_back(kOpTest);
  for (const char* shared : {"examples", "op_test"}) {
    const std::string sources = cat(prefix(), "/share/belfry/", shared);
    for (const std::string& source : sources_in(sources, {".cc", ".cu", ".h"}))
      for (const std::string& header : included_by(sources, source)) included.push_back(header);
  }
  const std::string tools = "framework/cuda/kernels";  // for GPU kernels of one's own
  for (const std::string& tool : sources_in(cat(BELFRY_SOURCE_DIR, "/", tools), {".h", ".cuh"}))
    included.push_back(cat(tools, "/", tool));
  std::set<std::string> reached = reached_from(folder, included);
  reached.insert("belfry_build_identity.h");  // by which GPU kernels of programs are known
  std::set<std::string> installed;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder))
    if (!entry.is_directory()) installed.insert(entry.path().lexically_relative(folder));
  EXPECT_EQ(installed, reached);
  EXPECT_THAT(installed, IsSupersetOf({"ops/relu.h", "trainers/program/train.h",
                                       "allreduce/verify/gradient_table.h"}));
  for (const char* hidden : {"framework/plan/plan.h", "framework/device/gpu_backend.h",
                             "framework/core_ops/transfer.h", "trainers/util/console.h"})
    EXPECT_THAT(face, Not(Contains(hidden)));
}

TEST_F(Installed, ProgramsAndExamplesAreThere) {
  const auto names = [](const std::string& folder) {
    return local_file_system().list(cat(prefix(), "/", folder));
  };
  EXPECT_THAT(names("bin"), ElementsAre("allreduce_bench", "belfry", "gpt", "linear_regression",
                                        "mnist", "peak_bench", "predict", "resnet", "resnet20",
                                        "resnet50", "train_bench", "vit"));
  EXPECT_THAT(names("share/belfry/examples"),
              IsSupersetOf({"CMakeLists.txt", "README.md", "gan.cc", "gpt.cc", "own_program"}));
  EXPECT_THAT(names("share/belfry/python"), ElementsAre("torch_step.py"));
  EXPECT_THAT(names("share/doc/belfry"), ElementsAre("LICENSE"));
  // As docs/several_machines.md has it, with nothing on PATH.
  const Finished done =
      run_program("sh", {"-c", cat("cd ", folder(""), " && PATH=/usr/bin:/bin ", prefix(),
                                   "/bin/belfry run -n 2 -- mnist --devices=cpu:1 --max_steps=2 "
                                   "--global_batch_size=64")});
  EXPECT_EQ(done.status, 0) << done.errors;
  EXPECT_THAT(done.output, HasSubstr("params_hash"));
}

// Whether this machine has what an example includes of others.
bool can_compile(const std::string& source) {
#if __has_include(<httplib.h>)
  return !source.empty();
#else
  return source != "serve.cc";
#endif
}

// All programs in one source, each in a namespace of its own: a compiler needs seconds for the
// headers alone.
TEST_F(Installed, ExamplesCompile) {
  const std::string examples = prefix() + "/share/belfry/examples";
  const std::regex include("#include ([<\"])(.*)[>\"]");
  std::set<std::string> headers, wholes;
  std::string programs;
  for (const std::string& source : sources_in(examples, {".cc"})) {
    if (!can_compile(source)) continue;
    const std::string path = cat(examples, "/", source);
    std::istringstream lines(text_of_file(path));
    std::smatch match;
    for (std::string line; std::getline(lines, line);)
      if (std::regex_match(line, match, include))
        headers.insert(match[1] == "<" || match[2].str().starts_with("belfry/")
                           ? line
                           : cat("#include \"", std::filesystem::path(path).parent_path().string(),
                                 "/", match[2].str(), "\""));
    const std::string whole = cat("#include \"", path, "\"\n");
    if (source.starts_with("bench/"))
      wholes.insert(whole);
    else
      programs += cat("namespace ", std::regex_replace(source, std::regex("\\W"), "_"), " {\n",
                      whole, "}\n");
  }
  const std::string all = folder("examples.cc");
  write_text_file(local_file_system(), all,
                  cat(join(headers, "\n"), "\n", join(wholes, ""), programs));
  const Finished done = compile({all});
  EXPECT_EQ(done.status, 0) << done.errors;
}

// Each takes some seconds.
TEST_F(Installed, ExamplesCompileLong) {
  const std::string examples = prefix() + "/share/belfry/examples";
  for (const std::string& source : sources_in(examples)) {
    if (!can_compile(source)) continue;
    const Finished done = compile({cat(examples, "/", source)});
    EXPECT_EQ(done.status, 0) << source << "\n" << done.errors;
  }
}

// Another machine has neither this tree nor the libraries that Belfry is built with.
TEST_F(Installed, FilesNameNeitherThisTreeNorPrivateLibraries) {
  const Finished mentions = run_program(
      "grep", {"-rlE", cat(BELFRY_SOURCE_DIR, "|include <(spdlog|CLI|nlohmann|dnnl|oneapi)"),
               "--include=*.cmake", "--include=*.h", prefix()});
  EXPECT_EQ(mentions.output, "");
}

// Each takes a second.
TEST_F(Installed, PublicHeadersCompileAloneLong) {
  std::vector<std::string> headers = kPublic;
  headers.push_back(kOpTest);
  for (const std::string& header : included_by(prefix() + "/include/belfry", "belfry.h"))
    headers.push_back(header);
  for (const std::string& header : headers) {
    const Finished done = compile(
        {"-Wall", "-Wextra", "-Werror", "-include", "belfry/" + header, "-x", "c++", "/dev/null"});
    EXPECT_EQ(done.status, 0) << header << "\n" << done.errors;
  }
}

TEST_F(Installed, TheCommandFindsTheLibraryBesideIt) {
  const Finished done = run_program(prefix() + "/bin/belfry", {"checkpoint", "--help"});
  EXPECT_EQ(done.status, 0) << done.errors;
  EXPECT_THAT(done.output, HasSubstr("Usage: belfry checkpoint COMMAND"));
}

TEST_F(Installed, NamesOfProgramsAreNotTaken) {
  const Finished done =
      compile({"-Wall", "-Wextra", "-Werror", cat(BELFRY_SOURCE_DIR, "/tests/examples/names.cc")});
  EXPECT_EQ(done.status, 0) << done.errors;
}

// The types of namespace belfry that a header declares by one word, such as Graph.
std::set<std::string> types_of_one_word(const std::string& text) {
  static const std::regex kType("(class|struct|enum class) ([A-Z][a-z0-9]+)( final)?( :.*)? \\{.*");
  std::set<std::string> types;
  std::istringstream lines(text);
  bool inner = false;  // in a namespace that `using namespace belfry` does not open
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("namespace ")) inner = line != "namespace belfry {";
    if (line.starts_with("}  // namespace")) inner = false;
    std::smatch match;
    if (!inner && std::regex_match(line, match, kType)) types.insert(match[2]);
  }
  return types;
}

// Programs keep all words that are no terms of Belfry. So a new type has a name of two words, or is
// a term that users need and belongs to this list.
TEST_F(Installed, TypesOfOneWordAreTermsOfBelfry) {
  const std::set<std::string> terms = {
      "Allocator", "Arithmetics", "At",        "Autocast",  "Backoff",  "Callback", "Dataset",
      "Division",  "Error",       "Fetch",     "Fnv1a",     "Gradient", "Graph",    "Node",
      "Op",        "Operand",     "Optimizer", "Output",    "Packing",  "Padding",  "Precision",
      "Predictor", "Processes",   "Recipe",    "Reduction", "Session",  "Shape",    "Sharding",
      "Strategy",  "Suspects",    "Tensor",    "Tower",     "Trace",    "Trainer",  "Uneven",
      "Unscaling", "Variable",    "Vocabulary"};
  const std::string folder = prefix() + "/include/belfry";
  std::set<std::string> found;
  for (const std::string& header : reached_from(folder, kPublic))
    found.merge(types_of_one_word(text_of_file(cat(folder, "/", header))));
  EXPECT_EQ(found, terms);
  EXPECT_THAT(types_of_one_word("namespace belfry {\nnamespace detail {\nclass Guard {\n"
                                "}  // namespace detail\nstruct Task final : Other {\n"
                                "class Later;\nstruct TwoWords {\n"),
              ElementsAre("Task"));
}

TEST(OwnProgram, IsShownWholeInTheReadme) {
  const std::string readme = text_of_file(cat(BELFRY_SOURCE_DIR, "/README.md"));
  const auto source = [](const char* file) { return text_of_file(example(file)); };
  EXPECT_THAT(readme, HasSubstr("```cmake\n" + source("own_program/CMakeLists.txt") + "```\n"));
  EXPECT_THAT(readme, HasSubstr("```cpp\n" + source("own_program/main.cc") + "```\n"));
}

// The files there are good for an installation alone. A bin/ on the PATH makes its parent a prefix.
TEST(BuildFolder, IsNoPackageForWhoHasItsProgramsOnThePath) {
  const std::string script = temporary_path(".find.cmake");
  write_text_file(local_file_system(), script,
                  "find_package(belfry CONFIG QUIET)\nmessage(\"found in ${belfry_DIR}\")\n");
  const Finished done = run_program("sh", {"-c", cat("PATH=", BELFRY_BIN_DIR, ":$PATH ",
                                                     configured("CMAKE_COMMAND"), " -P ", script)});
  local_file_system().remove(script);
  EXPECT_EQ(done.status, 0) << done.errors;
  const std::string build = std::filesystem::canonical(kBuildDir);
  EXPECT_THAT(done.errors, testing::AllOf(HasSubstr("found in "), Not(HasSubstr(build))));
}

TEST_F(Installed, LibraryIsEnoughForAProgram) {
  if (kSanitized) GTEST_SKIP() << "the program would have to be built with the sanitizer, too";
  const std::string program = make("own_program", "circle");
  const std::vector<std::string> flags{"--devices=cpu:2", "--allreduce=ring"};
  const auto report = run(program, flags);
  EXPECT_EQ(report["program"], "circle");
  EXPECT_EQ(report["allreduce"], "ring");
  EXPECT_GT(report["validation_accuracy"].get<double>(), 0.95);
  expect_run_again(program, flags, report);
}

TEST_F(Installed, PkgConfigSaysHowToBuildAProgram) {
  if (kSanitized) GTEST_SKIP() << "the program would have to be built with the sanitizer, too";
  const std::string source = folder("small.cc"), program = folder("small");
  write_text_file(local_file_system(), source,
                  "#include \"belfry/framework/graph/graph.h\"\n"
                  "int main() { return static_cast<int>(belfry::Graph().size()); }\n");
  succeed("sh", {"-c", cat("export PKG_CONFIG_PATH=", prefix(), "/lib/pkgconfig; ",
                           configured("CMAKE_CXX_COMPILER"), " ", source, " -o ", program,
                           " $(pkg-config --cflags --libs belfry) -Wl,-rpath,", prefix(), "/lib")});
  succeed(program, {});
}

// Types of this library and of those that it is built with must not meet in a program.
TEST_F(Installed, LibraryExportsNamesOfBelfryAlone) {
  const Finished done =
      run_program("nm", {"--dynamic", "--defined-only", prefix() + "/lib/libbelfry.so"});
  ASSERT_EQ(done.status, 0) << done.errors;
  int count = 0;
  for (const std::string_view line : split(done.output, '\n')) {
    if (line.empty()) continue;
    ++count;
    const bool is_of_c = line.find(" belfry_") != line.npos;  // of predict.h
    const bool is_shared =                                    // exports.map says why
        line.find("ZZNSt") != line.npos || line.find("ZZNKSt") != line.npos ||
        line.find("ZGVZNSt") != line.npos || line.find("ZGVZNKSt") != line.npos;
    EXPECT_TRUE(is_of_c || is_shared || line.find("6belfry") != line.npos) << line;
  }
  EXPECT_GT(count, 1000);
}

TEST_F(Installed, LibraryIsEnoughToPredictByARun) {
  if (kSanitized) GTEST_SKIP() << "the program would have to be built with the sanitizer, too";
  const std::string run_dir = folder("run");
  succeed(cat(BELFRY_BIN_DIR, "/mnist"), {"--max_steps=60", "--run_dir=" + run_dir});
  const Finished done =
      run_program(make("own_program", "circle", "predict.cc"), {run_dir, "--images=200"});
  EXPECT_EQ(done.status, 0) << done.errors;
  EXPECT_GT(std::stoi(done.output), 150) << done.output;
  EXPECT_THAT(done.output, HasSubstr(" of 200 images"));
}

// On a machine without GPUs, too: the module and the kernels are loaded to look for them.
TEST_F(Installed, LibraryIsEnoughForAGpuKernel) {
  if (!std::filesystem::exists(std::filesystem::path(prefix()) / "lib/libbelfry_cuda.so"))
    GTEST_SKIP() << "this build has no GPU module";
  const std::string program = make("own_parts", "own_parts");
  const std::string kernels = std::filesystem::path(program).parent_path() / "own_parts_gpu.so";
  ASSERT_TRUE(std::filesystem::exists(kernels)) << "nvcc has built the GPU module, but not these";
  const Finished done = run_program(program, {"--devices=gpu:1", "--max_steps=2"});
  if (done.errors.find("the GPU module cannot be loaded") != done.errors.npos)
    GTEST_SKIP() << "the libraries of CUDA are gone since the build";
  EXPECT_THAT(done.errors, Not(HasSubstr("GPU kernels")));
  std::filesystem::rename(kernels, kernels + ".gone");
  const Finished without = run_program(program, {"--devices=gpu:1", "--max_steps=2"});
  EXPECT_NE(without.status, 0);
  EXPECT_THAT(without.errors, HasSubstr("the program's GPU kernels cannot be loaded: "));
}

TEST_F(Installed, LibraryIsEnoughForAnOpAndAStrategy) {
  if (kSanitized) GTEST_SKIP() << "the program would have to be built with the sanitizer, too";
  const std::string program = make("own_parts", "own_parts");
  // Its op has a rule for shards.
  const auto hash = [&](const char* devices) {
    return run(program,
               {cat("--devices=", devices), "--shards=4", "--max_steps=20"})["params_hash"];
  };
  const auto of_one = hash("cpu:1");
  for (const char* devices : {"cpu:2", "cpu:4"}) EXPECT_EQ(hash(devices), of_one) << devices;
  // Its test, beside it, calls check_op(). CMake leaves it out where it finds no GoogleTest.
  const std::string test = std::filesystem::path(program).parent_path() / "own_parts_test";
  if (std::filesystem::exists(test)) succeed(test, {});
  const auto own = run(program, {"--devices=cpu:3", "--batch_size=32", "--allreduce=on_first"});
  EXPECT_EQ(own["allreduce"], "on_first");
  EXPECT_EQ(own["canonical"], true);
  EXPECT_EQ(own["replicas_equal"], true);
  EXPECT_GE(own["validation_accuracy"].get<double>(), 0.99);
  EXPECT_LT(own["epochs"].get<int>(), 20) << "the callback stops before";
  expect_run_again(program, {"--devices=cpu:3", "--batch_size=32", "--allreduce=on_first"}, own);
  const auto naive = run(program, {"--devices=cpu:3", "--batch_size=32", "--allreduce=naive"});
  EXPECT_EQ(naive["allreduce"], "naive");
  EXPECT_EQ(naive["params_hash"], own["params_hash"]);
  // The user's strategy is like any other: in lists, and in specs.
  const Finished wrong =
      run_program(program, {"--devices=cpu:3", "--batch_size=32", "--allreduce=on_furst"});
  EXPECT_EQ(wrong.status, 2);
  EXPECT_THAT(wrong.errors, HasSubstr("on_first"));
}

}  // namespace install_test
}  // namespace belfry
