// Runs the commands of docs/training_runs.md, in order.
#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "belfry/framework/base/file_system.h"
#include "belfry/framework/base/text.h"
#include "belfry/tests/support/programs.h"
#include "belfry/tests/support/sanitizers.h"

namespace belfry {
namespace docs_test {

using testing::HasSubstr;
using testing::SizeIs;

// The lines of the document's code blocks.
std::vector<std::string> commands(const std::string& document) {
  std::vector<std::string> lines;
  bool inside = false;
  for (const std::string_view line : split(document, '\n')) {
    if (line.starts_with("```"))
      inside = !inside;
    else if (inside)
      lines.emplace_back(line);
  }
  return lines;
}

TEST(TrainingRuns, DoWhatTheirDocumentSays) {
  if (kSanitized) GTEST_SKIP() << "sanitizers run these programs in other tests";
  const std::string document = text_of_file(cat(BELFRY_SOURCE_DIR, "/docs/training_runs.md"));
  const std::string folder = temporary_path(".runs");
  std::vector<std::string> outputs;
  for (std::string command : commands(document)) {
    std::vector<std::string> words;
    for (std::string_view word : split(command, ' ')) {
      std::string text(word);
      if (const std::size_t at = text.find("runs/"); at != text.npos) text.insert(at, folder + "/");
      words.push_back(std::move(text));
    }
    const std::string program = words[0].substr(words[0].rfind('/') + 1);
    words.erase(words.begin());
    if (program == "mnist") std::filesystem::create_directories(folder + "/runs");
    const Finished done = run_program(cat(BELFRY_BIN_DIR, "/", program), words);
    ASSERT_EQ(done.status, 0) << command << "\n" << done.errors;
    outputs.push_back(done.output);
  }
  ASSERT_THAT(outputs, SizeIs(testing::Ge(4u)));
  const auto results = [&](const char* run) {
    return nlohmann::json::parse(text_of_file(cat(folder, "/runs/", run, "/summary.json")));
  };
  EXPECT_EQ(results("first")["resumed_from_step"], 30);
  EXPECT_EQ(results("first")["steps"], 60);
  EXPECT_EQ(results("second")["steps"], 60);
  EXPECT_EQ(results("second")["state_hash"], results("first")["state_hash"]);
  EXPECT_THAT(outputs.back(), HasSubstr("of 1000 images are classified rightly"));
  std::filesystem::remove_all(folder);
}

}  // namespace docs_test
}  // namespace belfry
