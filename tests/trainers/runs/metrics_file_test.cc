#include "belfry/trainers/runs/metrics_file.h"

#include <limits>

#include "belfry/framework/base/text.h"
#include "belfry/tests/support/programs.h"
#include "belfry/tests/trainers/program/train_support.h"

namespace belfry {
namespace metrics_file_test {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

TEST(PrometheusLine, EscapesItsLabels) {
  EXPECT_EQ(prometheus_line("a_total", {}, 3), "a_total 3\n");
  EXPECT_EQ(prometheus_line("m", {{"run", "a\\b\"c\nd"}, {"name", "loss"}}, 0.1),
            "m{run=\"a\\\\b\\\"c\\nd\",name=\"loss\"} 0.1\n");
}

TEST(PrometheusLine, NamesNumbersThatAreNotFinite) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(prometheus_line("m", {}, kInfinity), "m +Inf\n");
  EXPECT_EQ(prometheus_line("m", {}, -kInfinity), "m -Inf\n");
  EXPECT_EQ(prometheus_line("m", {}, std::numeric_limits<double>::quiet_NaN()), "m NaN\n");
}

// Every line is a comment, or a name with labels and a number; each family is described once.
void expect_well_formed(const std::string& text) {
  std::set<std::string> described;
  std::string family;
  for (const std::string_view line : split(text, '\n')) {
    if (line.empty()) continue;
    if (line.starts_with("# TYPE ")) {
      family = std::string(split(line, ' ')[2]);
      EXPECT_TRUE(described.insert(family).second) << line;
    } else if (!line.starts_with("# HELP ")) {
      EXPECT_THAT(std::string(line), StartsWith(family + "{program=\"program\""));
    }
  }
}

class MetricsFileTest : public TrainTest {
 protected:
  ~MetricsFileTest() override { std::filesystem::remove(file_); }
  std::string text() const { return text_of_file(file_); }

  const std::string file_ = path(".prom");
};

TEST_F(MetricsFileTest, HasTheEndOfATraining) {
  ASSERT_EQ(run_train({"--max_steps=7", "--metrics_file=" + file_}).code, 0);
  const std::string found = text();
  expect_well_formed(found);
  EXPECT_THAT(found,
              AllOf(HasSubstr("# TYPE belfry_steps_total counter\n"
                              "belfry_steps_total{program=\"program\"} 7\n"),
                    HasSubstr("belfry_running{program=\"program\"} 0\n"),
                    HasSubstr("belfry_planned_steps{program=\"program\"} 7\n"),
                    HasSubstr("belfry_skipped_steps_total{program=\"program\"} 0\n"),
                    HasSubstr("belfry_metric{program=\"program\",name=\"loss\"} "),
                    HasSubstr("belfry_metric{program=\"program\",name=\"validation_loss\"} "),
                    HasSubstr("belfry_learning_rate{program=\"program\",name=\"learning_rate\"} "
                              "0.1\n"),
                    HasSubstr("belfry_device_bytes{program=\"program\",device=\"CPU:1\"} ")));
}

// Looks at the file while the training runs.
TEST_F(MetricsFileTest, IsThereFromTheBeginning) {
  struct Look final : Callback {
    explicit Look(std::string path) : file(std::move(path)) {}
    void before_step(Trainer&, const StepInfo& info) override {
      if (info.step == 0) seen = text_of_file(file);
    }
    std::string file, seen;
  };
  const auto look = std::make_shared<Look>(file_);
  Recipe recipe = small_recipe();
  recipe.callbacks = {look};
  ASSERT_EQ(run_train({"--max_steps=2", "--metrics_file=" + file_}, recipe).code, 0);
  EXPECT_THAT(look->seen, AllOf(HasSubstr("belfry_running{program=\"program\"} 1\n"),
                                HasSubstr("belfry_steps_total{program=\"program\"} 0\n"),
                                Not(HasSubstr("} -nan"))));
}

TEST_F(MetricsFileTest, IsNoPipe) {
  const TrainResult result = run_train({"--max_steps=1", "--metrics_file=-"});
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.error, HasSubstr("--metrics_file=- is replaced again and again"));
}

}  // namespace metrics_file_test
}  // namespace belfry
