#include "belfry/trainers/commands/run_table.h"

#include <cmath>

#include <gmock/gmock.h>

#include "belfry/framework/base/error.h"
#include "belfry/framework/base/text.h"
#include "belfry/tests/framework/base/memory_file_system.h"
#include "belfry/tests/support/programs.h"
#include "belfry/trainers/runs/run_directory.h"

namespace belfry {
namespace run_table_test {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

// A folder with runs of which only the files are there that `belfry runs` reads.
class RunTableTest : public testing::Test {
 protected:
  void SetUp() override { files().create_directory(folder_); }
  void TearDown() override { remove_tree(files(), folder_); }
  static FileSystem& files() { return local_file_system(); }

  std::string at(const std::string& name) const { return cat(folder_, "/", name); }
  void write(const std::string& run, const std::string& file, const std::string& text) const {
    write_text_file(files(), at(cat(run, "/", file)), text);
  }
  // A run that was killed: it has no summary. `options` are members of its config.json.
  void begin(const std::string& run, const std::string& options, double loss) const {
    files().create_directory(at(run));
    write(run, kConfigFile,
          cat(R"({"devices": "cpu:1", )", options,
              R"(, "chosen": {"program": "digits", "trainer": "simple", "learning_rate": 0.1}})"));
    write(run, kStatsFile,
          cat(R"({"step": 1, "loss": 9, "accuracy": 0.1})", "\n", R"({"step": 2, "loss": )", loss,
              R"(, "accuracy": 0.5})", "\n", R"({"step": 2, "validation_loss": )", loss,
              R"(, "validation_accuracy": 0.5})", "\n", R"({"step": 3, "loss": )", loss + 1,
              R"(, "accuracy": 0.4})", "\n", R"({"step": 3, "validation_loss": )", loss + 1,
              R"(, "validation_accuracy": 0.4})", "\n"));
  }
  void end(const std::string& run, const std::string& error = "null",
           const std::string& finished = "true") const {
    write(run, kSummaryFile,
          cat(R"({"program": "digits", "params_hash": "abc", "finished": )", finished,
              R"(, "error": )", error, "}"));
  }
  Listing listing(const std::vector<BestMetric>& metrics = {}) const {
    return tabulate_runs(runs_below(std::vector{folder_}), metrics,
                         [](std::string_view option) { return option != "keep"; });
  }

  const std::string folder_ = temporary_path(".runs");
};

std::vector<std::string> column(const JsonValue& program, const std::string& name) {
  std::vector<std::string> texts;
  for (const JsonValue& run : program.at("runs").items()) texts.push_back(run.at(name).str());
  return texts;
}

TEST_F(RunTableTest, ShowsOptionsThatDifferAndMeansOverSeeds) {
  begin("deep/a", R"("seed": 1, "keep": 1, "uneven": "drop")", 1);
  begin("deep/b", R"("seed": 2, "keep": 9, "uneven": "drop")", 2);
  begin("deep/c", R"("seed": 3, "keep": 1, "uneven": "drop")", 6);
  begin("deep/d", R"("seed": 3, "keep": 1, "uneven": "pad")", 5);
  for (const char* const run : {"deep/a", "deep/b", "deep/c", "deep/d"}) end(run);
  const Listing all = listing();
  const JsonValue& program = all.json.at("programs").items().front();
  EXPECT_EQ(program.at("program").text(), "digits");
  EXPECT_EQ(program.at("differ").str(), R"(["uneven","seed"])");
  const JsonValue& first = program.at("runs").items().front();
  EXPECT_EQ(first.at("steps").integer(), 3);
  EXPECT_EQ(first.at("options").at("learning_rate").text(), "0.1");
  EXPECT_EQ(first.at("metrics").at("validation_loss").str(),
            R"({"last":2.0,"best":1.0,"best_step":2})");
  EXPECT_EQ(first.at("metrics").at("validation_accuracy").at("best").number(), 0.5);
  EXPECT_EQ(first.at("metrics").find("loss"), nullptr);
  ASSERT_EQ(program.at("groups").items().size(), 1u);  // d is alone
  const JsonValue& group = program.at("groups").items().front();
  EXPECT_EQ(group.at("runs").items().size(), 3u);
  EXPECT_EQ(group.at("options").str(), R"({"uneven":"drop"})");
  EXPECT_EQ(group.at("metrics").at("validation_accuracy").at("best").str(),
            R"({"mean":0.5,"deviation":0.0})");
  const JsonValue& best = group.at("metrics").at("validation_loss").at("best");
  EXPECT_DOUBLE_EQ(best.at("mean").number(), 3);
  EXPECT_DOUBLE_EQ(best.at("deviation").number(), std::sqrt(7.0));  // (4 + 1 + 9) / 2
  EXPECT_THAT(all.text, AllOf(HasSubstr("digits: 4 runs\n"), HasSubstr("  3 +- 2.646  "),
                              HasSubstr("  abc\n"), Not(HasSubstr("keep"))));
}

TEST_F(RunTableTest, TellsStates) {
  begin("failed", R"("seed": 1)", 1);
  end("failed", R"({"what": "boom"})", "false");
  begin("finished", R"("seed": 1)", 1);
  end("finished");
  begin("killed", R"("seed": 1)", 1);
  write("killed", kRunLock, "");
  begin("running", R"("seed": 1)", 1);
  const auto lock = files().lock(at(cat("running/", kRunLock)));
  begin("stopped", R"("seed": 1)", 1);
  end("stopped", "null", "false");
  begin("unreadable", R"("seed": 1)", 1);
  write("unreadable", kSummaryFile, "{");
  const Listing all = listing();
  const JsonValue& program = all.json.at("programs").items().front();
  EXPECT_THAT(column(program, "state"),
              ElementsAre(R"("failed")", R"("finished")", R"("killed")", R"("running")",
                          R"("stopped")", R"("unreadable")"));
  EXPECT_EQ(program.at("runs").items().front().at("error").text(), "boom");
  EXPECT_TRUE(program.at("groups").items().empty());
  EXPECT_TRUE(files().exists(at(cat("killed/", kRunLock))));  // a listing changes nothing
}

// Whichever call on its files it ends before.
TEST_F(RunTableTest, ShowsNoRunAsKilledThatEndsMeanwhile) {
  const std::vector<std::string> run = {at("a")};
  files().create_directory(run[0]);
  for (int call = 0;; ++call) {
    MemoryFileSystem disk(folder_);
    disk.create_directory(run[0]);
    write_text_file(
        disk, cat(run[0], "/", kConfigFile),
        R"({"devices": "cpu:1", "chosen": {"program": "digits", "trainer": "simple"}})");
    auto lock = files().lock(cat(run[0], "/", kRunLock));
    disk.at_call(call, [&](MemoryFileSystem& now) {
      write_text_file(now, cat(run[0], "/", kSummaryFile),
                      R"({"program": "digits", "finished": true, "error": null})");
      lock.reset();
    });
    const Listing all = tabulate_runs(
        run, {}, [](std::string_view) { return true; }, disk);
    const JsonValue& program = all.json.at("programs").items().front();
    EXPECT_THAT(column(program, "state"), ElementsAre(R"("running")")) << call;
    if (disk.waits()) break;
  }
}

TEST_F(RunTableTest, TakesMetricsByName) {
  begin("a", R"("seed": 1)", 1);
  const Listing all = listing({{.name = "loss", .largest = true}});
  const JsonValue& run = all.json.at("programs").items().front().at("runs").items().front();
  EXPECT_EQ(run.at("metrics").str(), R"({"loss":{"last":2.0,"best":9.0,"best_step":1}})");
  EXPECT_THROW(listing({{.name = "lost"}}), NotFoundError);
}

TEST_F(RunTableTest, CountsEachRunAndEachSeedOnce) {
  begin("a", R"("seed": 1)", 1);
  begin("b", R"("seed": 2)", 2);
  begin("c", R"("seed": 1)", 4);
  for (const char* const run : {"a", "b", "c"}) end(run);
  EXPECT_THAT(runs_below(std::vector{folder_, at("b"), cat(at("a"), "/.")}),
              ElementsAre(at("a"), at("b"), at("c")));
  const Listing all = listing();
  const JsonValue& group = all.json.at("programs").items().front().at("groups").items().front();
  EXPECT_EQ(group.at("runs").str(), JsonValue::array(std::vector{at("b"), at("c")}).str());
  EXPECT_EQ(group.at("metrics").at("validation_loss").at("best").at("mean").number(), 3);
}

TEST_F(RunTableTest, ShowsAMetricThatHasBecomeNan) {
  begin("a", R"("seed": 1)", 1);
  write("a", kStatsFile, "{\"step\": 1, \"loss\": 9}\n{\"step\": 2, \"loss\": null}\n");
  const std::string text = listing({{.name = "loss"}}).text;
  EXPECT_THAT(text, HasSubstr("  nan   9"));
}

TEST_F(RunTableTest, OfAFolderWithoutRunsIsAnError) {
  EXPECT_THROW(runs_below(std::vector{folder_}), NotFoundError);
  EXPECT_THROW(runs_below(std::vector{at("none")}), NotFoundError);
}

}  // namespace run_table_test
}  // namespace belfry
