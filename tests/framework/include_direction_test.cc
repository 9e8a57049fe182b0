#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/framework/base/text.h"
#include "belfry/tests/framework/source_files.h"

namespace belfry::test {
namespace include_direction_test {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::IsSupersetOf;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::UnorderedElementsAreArray;

// The rooms of the library, the lowest first. A file includes files of its own room and of lower
// ones. Examples and tests may include all.
const std::vector<std::string> kRooms = {"framework/base",
                                         "framework/group",
                                         "framework/graph",
                                         "framework/kernels",
                                         "framework/core_ops",
                                         "framework/gradients",
                                         "framework/device",
                                         "framework/plan",
                                         "framework/placement",
                                         "framework/plan_kernels",
                                         "framework/passes",
                                         "framework/trace",
                                         "framework/run",
                                         "framework/checkpoint",
                                         "framework/mpi",
                                         "framework/cuda/kernels",
                                         "framework/cuda/runtime",
                                         "ops/kernels",
                                         "ops/convolution",
                                         "ops",
                                         "ops/pointwise",
                                         "ops/indexing",
                                         "ops/shapes",
                                         "ops/attention",
                                         "ops/linear_algebra",
                                         "ops/recurrent",
                                         "ops/normalization",
                                         "ops/losses",
                                         "ops/updates",
                                         "towers",
                                         "allreduce/verify",
                                         "allreduce",
                                         "allreduce/strategies",
                                         "allreduce/prediction",
                                         "allreduce/simulation",
                                         "trainers/util",
                                         "trainers/options",
                                         "trainers/data",
                                         "trainers/machine",
                                         "trainers/optimizers",
                                         "trainers/core",
                                         "trainers/models",
                                         "trainers/callbacks",
                                         "trainers/kinds",
                                         "trainers/runs",
                                         "trainers/onnx",
                                         "trainers/names",
                                         "trainers/modes",
                                         "trainers/flags",
                                         "trainers/program",
                                         "trainers/commands"};

// The place of a folder in kRooms; past its end if it is no room.
std::ptrdiff_t height(const std::string& folder) {
  return std::ranges::find(kRooms, folder) - kRooms.begin();
}

// Towers know no strategy, and strategies know no tower.
bool strangers(const std::string& a, const std::string& b) {
  return a.starts_with("allreduce") && b == "towers";
}

// Headers of ops are above the rooms of kernels that they use.
std::string advice(const std::string& folder, const std::string& target) {
  return folder.starts_with("ops") && target == "ops"
             ? "; what ops/x.cc and ops/x.cu share goes into ops/x_impl.h"
             : "";
}

// One line for each include of `file` that does not point down.
std::vector<std::string> wrong_includes(const SourceFile& file) {
  std::vector<std::string> wrong;
  const std::string folder = file.folder();
  for (const std::string& include : includes(file.text)) {
    const std::string name = include.substr(1);
    const bool ours = name.starts_with("belfry/");
    if (!ours && include.starts_with('<')) continue;
    if (!ours) {
      wrong.push_back(cat(file.path, " includes ", include, "; write it as \"belfry/...\""));
      continue;
    }
    // "belfry/ops.h" is the generated list of all ops; "belfry/belfry.h", the public face, is above
    // every room.
    const std::string rest = name.substr(std::string("belfry/").size());
    const std::string target = rest.starts_with("ops.h") ? "ops" : rest.substr(0, rest.rfind('/'));
    if (height(target) > height(folder) || strangers(folder, target))
      wrong.push_back(
          cat(file.path, " includes ", include, ", which is not below it", advice(folder, target)));
    else if (name.ends_with("_impl.h") && target != folder)
      wrong.push_back(cat(file.path, " includes ", include, ", which is for its own room alone"));
  }
  return wrong;
}

TEST(Includes, PointDownOnly) {
  std::set<std::string> seen;
  for (const SourceFile& file :
       source_files({"framework", "ops", "towers", "allreduce", "trainers"})) {
    seen.insert(file.folder());
    EXPECT_THAT(wrong_includes(file), IsEmpty());
  }
  EXPECT_THAT(seen, UnorderedElementsAreArray(kRooms)) << "each folder is a room, and has a place";
}

// Folders whose tests belong to no single room. Every other folder has the name of the room it
// tests.
const std::set<std::string> kTestsOfNoRoom = {
    "tests/framework",       // rules over all sources and documents
    "tests/cuda",            // the names of the tests in cuda_tests
    "tests/recorder",        // the GPU module as a whole, above functions of CUDA that record calls
    "tests/examples",        // whole programs
    "tests/examples/bench",  // what their benchmarks share
    "tests/allocations",     // whole steps, in a program that replaces malloc
    "tests/fuzz",            // parsers of all rooms
    "tests/support"};        // none: op_test.cc has checks for tests of ops

// The rooms of `layer` that have a header or source of this name, "relu" for ops/relu.cc.
std::set<std::string> rooms_with(const std::string& name, const std::string& layer,
                                 const std::vector<SourceFile>& sources) {
  std::set<std::string> rooms;
  for (const SourceFile& source : sources) {
    const std::filesystem::path path = source.path;
    if (path.extension() == ".cu" || path.stem() != name || *path.begin() != layer) continue;
    rooms.insert(source.folder());
  }
  return rooms;
}

// Why a test does not belong where it is; empty if it does.
std::string misplaced(const SourceFile& test, const std::vector<SourceFile>& sources) {
  if (kTestsOfNoRoom.contains(test.folder())) return "";
  const SourceFile mirrored{test.path.substr(std::string("tests/").size()), ""};
  const std::string room = mirrored.folder();
  if (height(room) == std::ssize(kRooms)) return cat(test.path, " is in the folder of no room");
  const std::filesystem::path path = mirrored.path;
  std::string name = path.stem();
  name.resize(name.size() - std::string("_test").size());
  const std::set<std::string> rooms = rooms_with(name, *path.begin(), sources);
  if (rooms.empty() || rooms.contains(room)) return "";
  return cat(test.path, " has the name of a source in ", *rooms.begin());
}

TEST(Rooms, HaveTheirTestsInFoldersOfTheirNames) {
  const std::vector<SourceFile> sources =
      source_files({"framework", "ops", "towers", "allreduce", "trainers"});
  std::set<std::string> seen;
  for (const SourceFile& file : source_files({"tests"})) {
    if (!file.path.ends_with("_test.cc")) continue;
    seen.insert(file.folder());
    EXPECT_EQ(misplaced(file, sources), "");
  }
  EXPECT_THAT(seen, IsSupersetOf(kTestsOfNoRoom)) << "an exception without tests";
}

TEST(Rooms, TestsThatLieElsewhereAreFound) {
  const auto found = [](const std::string& path) {
    return misplaced(
        {path, ""}, {{"ops/updates/sgd_update.h", ""}, {"ops/relu.cc", ""}, {"ops/copies.cu", ""}});
  };
  EXPECT_EQ(found("tests/ops/relu_test.cc"), "");
  EXPECT_EQ(found("tests/ops/kernels/copies_test.cc"), "");
  EXPECT_EQ(found("tests/towers/relu_test.cc"), "");
  EXPECT_EQ(found("tests/ops/updates/any_test.cc"), "");
  EXPECT_EQ(found("tests/ops/sgd_update_test.cc"),
            "tests/ops/sgd_update_test.cc has the name of a source in ops/updates");
  EXPECT_THAT(found("tests/ops/new/any_test.cc"), HasSubstr("the folder of no room"));
  EXPECT_THAT(found("tests/any_test.cc"), HasSubstr("the folder of no room"));
}

TEST(Includes, ThatPointUpOrSidewaysAreFound) {
  const auto wrong = [](const std::string& path, const std::string& text) {
    return wrong_includes({path, text});
  };
  EXPECT_THAT(
      wrong("framework/graph/a.h", "#include \"belfry/ops/relu.h\"\n"),
      ElementsAre("framework/graph/a.h includes \"belfry/ops/relu.h\", which is not below it"));
  EXPECT_THAT(wrong("ops/kernels/a.h", "#include \"belfry/ops/relu.h\"\n"),
              ElementsAre(HasSubstr("not below it; what ops/x.cc and ops/x.cu share goes into ")));
  EXPECT_THAT(wrong("framework/core_ops/a.cc", "  #  include <belfry/ops/relu.h>"),
              ElementsAre(HasSubstr("not below it")));
  EXPECT_THAT(wrong("towers/a.cc",
                    "#include \"belfry/allreduce/strategy.h\"\n"
                    "#include \"belfry/trainers/core/trainer.h\"\n"),
              ElementsAre(HasSubstr("strategy.h"), HasSubstr("trainer.h")));
  EXPECT_THAT(wrong("trainers/core/a.cc", "#include \"belfry/trainers/program/flags.h\"\n"),
              ElementsAre(HasSubstr("not below it")));
  EXPECT_THAT(wrong("allreduce/a.cc", "#include \"belfry/towers/tower.h\"\n"),
              ElementsAre(HasSubstr("not below it")));
  EXPECT_THAT(wrong("trainers/core/a.cc", "#include \"belfry/belfry.h\"\n"),
              ElementsAre(HasSubstr("not below it")));
  EXPECT_THAT(wrong("framework/run/a.cc", "#include \"belfry/ops.h\"\n"),
              ElementsAre(HasSubstr("not below it")));
  EXPECT_THAT(wrong("trainers/core/a.cc", "#include \"belfry/tests/support/x.h\"\n"),
              ElementsAre(HasSubstr("not below it")));
  EXPECT_THAT(wrong("ops/a.cc", "#include \"../towers/tower.h\"\n"),
              ElementsAre(HasSubstr("write it as")));
}

TEST(Includes, ThatPointDownAreAccepted) {
  EXPECT_THAT(
      wrong_includes({"trainers/core/a.cc",
                      "#include <vector>\n#include <dnnl.hpp>\n"
                      "#include \"belfry/allreduce/strategy.h\"\n"
                      "#include \"belfry/framework/core_ops/fill.h\"\n"
                      "#include \"belfry/ops.h\"\n#include \"belfry/trainers/core/trainer.h\"\n"
                      "// #include \"belfry/belfry.h\"\n"}),
      IsEmpty());
}

// Whether `file` is part of the GPU module alone.
bool in_gpu_module(const SourceFile& file) {
  return file.path.starts_with("framework/cuda/") || file.path.ends_with(".cu") ||
         file.path.ends_with(".cuh");
}

// Includes in `file` of CUDA, its libraries or the GPU module.
std::vector<std::string> gpu_includes(const SourceFile& file) {
  std::vector<std::string> found;
  for (const std::string& include : includes(file.text)) {
    const std::string name = include.substr(1);
    for (const char* start : {"cuda", "cudnn", "cublas", "nccl", "belfry/framework/cuda/"})
      if (name.starts_with(start)) found.push_back(cat(file.path, " includes ", include));
  }
  return found;
}

// The library starts where CUDA is not installed, and reaches the GPU module by dlopen.
TEST(Includes, OfCudaAreInTheGpuModuleOnly) {
  bool blind = true;
  for (const SourceFile& file : source_files(kShipped)) {
    if (in_gpu_module(file))
      blind = blind && gpu_includes(file).empty();
    else
      EXPECT_THAT(gpu_includes(file), IsEmpty());
  }
  EXPECT_FALSE(blind) << "the module has moved";
  EXPECT_THAT(
      gpu_includes({"ops/a.cc",
                    "#include <cudnn.h>\n#include \"belfry/framework/cuda/runtime/handles.h\"\n"}),
      SizeIs(2));
  EXPECT_FALSE(in_gpu_module({"ops/relu.cc", ""}));
  EXPECT_TRUE(in_gpu_module({"ops/relu.cu", ""}));
}

TEST(Includes, OfCudaSourcesPointDownToo) {
  EXPECT_THAT(wrong_includes({"framework/cuda/kernels/a.cu", "#include \"belfry/ops/relu.h\"\n"}),
              ElementsAre(HasSubstr("not below it")));
  EXPECT_THAT(
      wrong_includes({"ops/relu.cu", "#include \"belfry/framework/cuda/runtime/handles.h\"\n"}),
      IsEmpty());
}

// Each of these costs 4 to 11 seconds in a file that includes it.
TEST(Includes, OfSlowLibrariesAreInOneSourceFileEach) {
  std::map<std::string, std::vector<std::string>> users = {{"<spdlog/", {}}, {"<nlohmann/", {}}};
  for (const SourceFile& file : source_files(kShipped)) {
    for (auto& [library, paths] : users) {
      const auto names = includes(file.text);
      if (std::ranges::any_of(names, [&](auto& name) { return name.starts_with(library); })) {
        paths.push_back(file.path);
      }
    }
  }
  for (const auto& [library, paths] : users) {
    ASSERT_EQ(paths.size(), 1u) << library << " is included by: " << join(paths);
    EXPECT_TRUE(paths[0].ends_with(".cc")) << library << " is included by " << paths[0];
  }
}

}  // namespace include_direction_test
}  // namespace belfry::test
