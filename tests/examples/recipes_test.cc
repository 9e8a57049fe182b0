// The files of examples/recipes, which users give to --config.
#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "belfry/framework/base/text.h"
#include "belfry/tests/support/programs.h"

namespace belfry {
namespace recipes_test {

using testing::HasSubstr;

const std::string kFolder = cat(BELFRY_SOURCE_DIR, "/examples/recipes");

std::vector<std::string> recipes() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(kFolder))
    if (entry.path().extension() == ".json") names.push_back(entry.path().stem());
  std::ranges::sort(names);
  return names;
}

class Recipes : public testing::TestWithParam<std::string> {};

// Its program takes every flag, and makes a model of the published size.
TEST_P(Recipes, MakeModelsOfTheirSize) {
  const std::string file = cat(kFolder, "/", GetParam(), ".json");
  const auto recipe = nlohmann::json::parse(text_of_file(file));
  const auto& about = recipe.at("about");
  const Finished done = run_built(about.at("program"),
                                  {"--config=" + file, "--summary", "--devices=cpu:1", "--json=-"});
  ASSERT_EQ(done.status, 0) << done.errors;
  EXPECT_EQ(nlohmann::json::parse(done.output)["parameters"], about.at("parameters"));
  for (const auto& [name, value] : about.at("expected").items()) {
    EXPECT_GT(value, 0) << name;
    const auto& measured = about.at("measured");  // null: not yet
    if (!measured.is_null()) {
      EXPECT_GT(measured.at(name), 0) << name;
    }
  }
}

TEST_P(Recipes, AreInTheTable) {
  EXPECT_THAT(text_of_file(kFolder + "/README.md"),
              HasSubstr(cat("| [", GetParam(), "](", GetParam(), ".json) |")));
}

INSTANTIATE_TEST_SUITE_P(Each, Recipes, testing::ValuesIn(recipes()),
                         [](const auto& recipe) { return recipe.param; });

}  // namespace recipes_test
}  // namespace belfry
