// Each fault of numerics, in a process of its own and in two.
#include "belfry/tests/trainers/core/faults.h"

#include <map>
#include <regex>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/framework/base/file_system.h"
#include "belfry/framework/base/text.h"
#include "belfry/tests/support/programs.h"

namespace belfry {
namespace faults_test {

using testing::AllOf;
using testing::HasSubstr;

// How each training ended, by the name of its fault, ", good" or ", bad".
std::map<std::string, std::string> ends_in(const std::string& output) {
  std::map<std::string, std::string> ends;
  for (const std::string_view line : split(output, '\n')) {
    const std::size_t colon = line.find(": ");
    if (colon != line.npos) ends[std::string(line.substr(0, colon))] = line.substr(colon + 2);
  }
  return ends;
}

void expect_faults(const std::map<std::string, std::string>& ends) {
  for (const faults::Fault& fault : faults::kFaults) {
    SCOPED_TRACE(fault.name);
    const auto good = ends.find(cat(fault.name, ", good")),
               bad = ends.find(cat(fault.name, ", bad"));
    ASSERT_TRUE(good != ends.end() && bad != ends.end());
    EXPECT_EQ(good->second, "ended well");
    EXPECT_THAT(
        bad->second,
        AllOf(HasSubstr("training diverged: "), HasSubstr(" of step 1 "),
              HasSubstr(cat(*fault.of ? "a gradient of " : "", *fault.of ? fault.of : fault.kind)),
              HasSubstr("(training sample "), HasSubstr("; this step changed no variable")));
    std::smatch line;
    ASSERT_TRUE(std::regex_search(bad->second, line, std::regex("built at faults.h:([0-9]+)")));
    EXPECT_GE(std::stoi(line[1]), static_cast<int>(fault.line));
    EXPECT_LE(std::stoi(line[1]), static_cast<int>(fault.line) + 6);
  }
}

TEST(FaultsOfNumerics, AreNamedInOneProcess) {
  const Finished done = run_built("faults", {});
  EXPECT_EQ(done.status, 0) << done.errors;
  expect_faults(ends_in(done.output));
}

TEST(FaultsOfNumerics, AreNamedAlikeByTwoProcesses) {
  const std::string logs = temporary_path(".logs");
  const Finished done = run_built(
      "belfry", {"run", "-n", "2", "--log_dir=" + logs, "--", cat(BELFRY_BIN_DIR, "/faults")});
  EXPECT_EQ(done.status, 0) << done.errors;
  const auto first = ends_in(text_of_file(logs + "/rank_0.log"));
  expect_faults(first);
  EXPECT_EQ(ends_in(text_of_file(logs + "/rank_1.log")), first);
  remove_tree(local_file_system(), logs);
}

}  // namespace faults_test
}  // namespace belfry
