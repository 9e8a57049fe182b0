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
using ::testing::Not;
using ::testing::SizeIs;

// What a folder may include besides itself: what lies below it. Examples and tests may use all.
const std::map<std::string, std::set<std::string>> kBelow = {
    {"framework", {}},
    {"ops", {"framework"}},
    {"towers", {"framework", "ops"}},
    {"allreduce", {"framework", "ops"}},
    {"trainers", {"framework", "ops", "towers", "allreduce"}},
};

// One line for each include of `file` that does not point down.
std::vector<std::string> wrong_includes(const SourceFile& file) {
  std::vector<std::string> wrong;
  for (const std::string& include : includes(file.text)) {
    const std::string name = include.substr(1);
    const bool ours = name.starts_with("belfry/");
    if (!ours && include.starts_with('<')) continue;
    if (!ours) {
      wrong.push_back(cat(file.path, " includes ", include, "; write it as \"belfry/...\""));
      continue;
    }
    // "belfry/ops.h" is the generated list of all ops; "belfry/belfry.h", of everything, is above
    // every folder.
    const std::string rest = name.substr(std::string("belfry/").size());
    const std::string target = rest.starts_with("ops.h") ? "ops" : rest.substr(0, rest.find('/'));
    if (target == file.folder() || kBelow.at(file.folder()).contains(target)) continue;
    wrong.push_back(cat(file.path, " includes ", include, ", which is not below it"));
  }
  return wrong;
}

TEST(Includes, PointDownOnly) {
  for (const auto& [folder, below] : kBelow) {
    const std::vector<SourceFile> files = source_files({folder});
    EXPECT_THAT(files, Not(IsEmpty())) << folder;
    for (const SourceFile& file : files) EXPECT_THAT(wrong_includes(file), IsEmpty());
  }
}

TEST(Includes, ThatPointUpOrSidewaysAreFound) {
  const auto wrong = [](const std::string& path, const std::string& text) {
    return wrong_includes({path, text});
  };
  EXPECT_THAT(wrong("framework/a.h", "#include \"belfry/ops/relu.h\"\n"),
              ElementsAre("framework/a.h includes \"belfry/ops/relu.h\", which is not below it"));
  EXPECT_THAT(wrong("framework/core_ops/a.cc", "  #  include <belfry/ops/relu.h>"),
              ElementsAre(HasSubstr("not below it")));
  EXPECT_THAT(wrong("towers/a.cc",
                    "#include \"belfry/allreduce/strategy.h\"\n"
                    "#include \"belfry/trainers/core/trainer.h\"\n"),
              ElementsAre(HasSubstr("strategy.h"), HasSubstr("trainer.h")));
  EXPECT_THAT(wrong("allreduce/a.cc", "#include \"belfry/towers/tower.h\"\n"),
              ElementsAre(HasSubstr("not below it")));
  EXPECT_THAT(wrong("trainers/a.cc", "#include \"belfry/belfry.h\"\n"),
              ElementsAre(HasSubstr("not below it")));
  EXPECT_THAT(wrong("framework/a.cc", "#include \"belfry/ops.h\"\n"),
              ElementsAre(HasSubstr("not below it")));
  EXPECT_THAT(wrong("trainers/a.cc", "#include \"belfry/tests/support/x.h\"\n"),
              ElementsAre(HasSubstr("not below it")));
  EXPECT_THAT(wrong("ops/a.cc", "#include \"../towers/tower.h\"\n"),
              ElementsAre(HasSubstr("write it as")));
}

TEST(Includes, ThatPointDownAreAccepted) {
  EXPECT_THAT(
      wrong_includes({"trainers/a.cc",
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

// What `file` includes of CUDA, its libraries or the GPU module.
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
  EXPECT_THAT(wrong_includes({"framework/cuda/a.cu", "#include \"belfry/ops/relu.h\"\n"}),
              ElementsAre(HasSubstr("not below it")));
  EXPECT_THAT(
      wrong_includes({"ops/relu.cu", "#include \"belfry/framework/cuda/runtime/handles.h\"\n"}),
      IsEmpty());
}

// Each of these costs 4 to 11 seconds in a file that includes it.
TEST(Includes, OfSlowLibrariesAreInOneSourceFileEach) {
  std::map<std::string, std::vector<std::string>> users = {
      {"<spdlog/", {}}, {"<CLI/", {}}, {"<nlohmann/", {}}};
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
