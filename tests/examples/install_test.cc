// A program outside the tree, made of nothing but what is installed, as README.md says.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "belfry/framework/base/file_system.h"
#include "belfry/framework/base/text.h"
#include "belfry/tests/support/programs.h"
#include "belfry/tests/support/sanitizers.h"

namespace belfry {
namespace install_test {

using testing::HasSubstr;
using testing::Not;

std::string text_of(const std::string& path) {
  const std::vector<std::byte> bytes = local_file_system().read(path);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::string source_of(const char* file) {
  return text_of(cat(BELFRY_SOURCE_DIR, "/examples/own_program/", file));
}

const std::string kBuildDir = cat(BELFRY_BIN_DIR, "/..");

// What this build was configured with.
std::string configured(std::string_view name) {
  const std::string cache = text_of(kBuildDir + "/CMakeCache.txt");
  for (const std::string_view line : split(cache, '\n'))
    if (line.starts_with(cat(name, ":"))) return std::string(line.substr(line.find('=') + 1));
  ADD_FAILURE() << "CMakeCache.txt has no " << name;
  return "";
}

// Runs a step that has to succeed.
void succeed(const std::string& program, const std::vector<std::string>& arguments) {
  const Finished done = run_program(program, arguments);
  ASSERT_EQ(done.status, 0) << program << " " << join(arguments, " ") << "\n"
                            << done.output << done.errors;
}

TEST(OwnProgram, IsShownWholeInTheReadme) {
  const std::string readme = text_of(cat(BELFRY_SOURCE_DIR, "/README.md"));
  EXPECT_THAT(readme, HasSubstr("```cmake\n" + source_of("CMakeLists.txt") + "```\n"));
  EXPECT_THAT(readme, HasSubstr("```cpp\n" + source_of("main.cc") + "```\n"));
}

TEST(OwnProgram, IsMadeOfWhatIsInstalledAlone) {
  if (kSanitized) GTEST_SKIP() << "the program would have to be built with the sanitizer, too";
  const std::string root = temporary_path(".own");
  const std::string prefix = root + "/prefix", source = root + "/source", build = root + "/build";
  FileSystem& files = local_file_system();
  files.create_directory(root);
  succeed("cp", {"-r", cat(BELFRY_SOURCE_DIR, "/examples/own_program"), source});
  const std::string cmake = configured("CMAKE_COMMAND");
  succeed(cmake, {"--install", kBuildDir, "--prefix", prefix});
  // A program may be made where this tree is not.
  const Finished mentions = run_program(
      "grep", {"-rlF", BELFRY_SOURCE_DIR, "--include=*.cmake", "--include=*.h", prefix});
  EXPECT_EQ(mentions.output, "");
  succeed(cmake, {"-S", source, "-B", build, "-G", configured("CMAKE_GENERATOR"),
                  "-DCMAKE_PREFIX_PATH=" + prefix,
                  cat("-DCMAKE_CXX_COMPILER=", configured("CMAKE_CXX_COMPILER"))});
  succeed(cmake, {"--build", build});
  const std::string json = root + "/result.json";
  succeed(build + "/circle", {"--devices=cpu:2", "--allreduce=ring", "--json=" + json});
  const auto report = nlohmann::json::parse(text_of(json));
  EXPECT_EQ(report["program"], "circle");
  EXPECT_EQ(report["allreduce"], "ring");
  EXPECT_GT(report["test_accuracy"].get<double>(), 0.95);
  remove_tree(files, root);
}

}  // namespace install_test
}  // namespace belfry
