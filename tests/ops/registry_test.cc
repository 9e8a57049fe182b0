// The registry, the files that define ops, and the tests that name them must agree.
#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>

#include <gtest/gtest.h>

#include "belfry/framework/graph/op.h"

namespace belfry {
namespace registry_test {

namespace fs = std::filesystem;

std::string contents(const fs::path& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::vector<fs::path> sources_below(const char* folder) {
  std::vector<fs::path> result;
  for (const auto& entry : fs::recursive_directory_iterator(fs::path(BELFRY_SOURCE_DIR) / folder))
    if (entry.path().extension() == ".cc") result.push_back(entry.path());
  std::ranges::sort(result);
  return result;
}

struct Definition {
  std::string constant;  // "Relu" of kRelu
  std::string name;      // of .name = "Relu"
  std::string file;
};

std::vector<Definition> definitions() {
  const std::regex pattern(R"re(\bconst Op k(\w+)\s*(?:\{\s*\.name = |=\s+\w+\(\s*)"(\w+)")re");
  std::vector<Definition> result;
  for (const char* folder : {"ops", "framework/core_ops", "framework/graph"})
    for (const fs::path& path : sources_below(folder)) {
      const std::string text = contents(path);
      for (std::sregex_iterator match(text.begin(), text.end(), pattern), end; match != end;
           ++match)
        result.push_back({(*match)[1], (*match)[2], path.filename().string()});
    }
  return result;
}

// "ReduceSum" -> "reduce_sum", "Conv2dGrad" -> "conv2d_grad".
std::string snake_case(const std::string& name) {
  std::string result;
  for (const char c : name) {
    if (std::isupper(static_cast<unsigned char>(c)) && !result.empty()) result += '_';
    result += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return result;
}

TEST(Registry, HoldsExactlyTheOpsThatAreDefinedInFiles) {
  std::set<std::string> in_files, in_registry;
  for (const Definition& op : definitions()) in_files.insert(op.name);
  for (const Op* op : all_ops()) in_registry.insert(op->name);
  EXPECT_EQ(in_registry, in_files);
  EXPECT_GE(in_registry.size(), 40);
}

TEST(Registry, ConstantsAreNamedAfterTheirOps) {
  for (const Definition& op : definitions()) EXPECT_EQ(op.constant, op.name) << op.file;
}

// check_op covers the gradients of the op that a test names.
TEST(Registry, EveryOpHasATestThatNamesIt) {
  std::set<std::string> words;
  const std::regex word(R"re(\w+)re");
  for (const fs::path& path : sources_below("tests")) {
    const std::string text = contents(path);
    for (std::sregex_iterator match(text.begin(), text.end(), word), end; match != end; ++match)
      words.insert(match->str());
  }
  for (const Op* op : all_ops()) {
    const std::string whole = op->name, name = whole.substr(0, whole.find("Grad"));
    EXPECT_TRUE(words.contains(name) || words.contains("k" + name) ||
                words.contains(snake_case(name)) || words.contains(snake_case(whole)))
        << op->name << " is in no test";
  }
}

TEST(Registry, OpsOfInPlaceOrAliasKindHaveWhatTheyShare) {
  for (const Op* op : all_ops()) {
    const bool shares = op->alias || op->in_place != InPlace::kNo;
    EXPECT_FALSE(shares && op->inputs == 0) << op->name;
    EXPECT_FALSE(op->alias && op->writes > 0) << op->name;
  }
}

}  // namespace registry_test
}  // namespace belfry
