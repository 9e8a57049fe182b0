#include "belfry/trainers/util/line_chart.h"

#include <cmath>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/framework/base/error.h"
#include "belfry/tests/trainers/util/xml.h"

namespace belfry {
namespace line_chart_test {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

LineChart chart_of(std::vector<ChartPoint> points, ChartLine::Look look = ChartLine::Look::kPlain) {
  return {
      .title = "loss of a & b",
      .x_title = "step",
      .names = {"a"},
      .looks = {{ChartLine::Look::kPlain, "training"}, {ChartLine::Look::kDotted, "validation"}},
      .panels = {{.title = "loss", .lines = {{0, look, std::move(points)}}}}};
}

TEST(LineChart, IsWellFormedWithTitleTicksAndLegend) {
  const std::string svg = line_chart_svg(chart_of({{0, 1}, {100, 2}, {200, 1.5}}));
  EXPECT_EQ(xml_error(svg), "");
  EXPECT_THAT(svg, AllOf(HasSubstr(">loss of a &amp; b<"), HasSubstr(">a<"), HasSubstr(">step<"),
                         HasSubstr(">200<"), HasSubstr(">1.2<"), HasSubstr(">training<")));
  EXPECT_THAT(svg, Not(HasSubstr("validation"))) << "no line looks so";
  EXPECT_EQ(count(svg, "<path"), 2u) << "the line, and its sample in the legend";
}

TEST(LineChart, BreaksALineWhereAValueIsNotFinite) {
  const std::string svg =
      line_chart_svg(chart_of({{0, 1}, {1, 2}, {2, kNan}, {3, 1}, {4, 1}, {5, INFINITY}}));
  EXPECT_EQ(xml_error(svg), "");
  EXPECT_THAT(svg, AllOf(HasSubstr(">not finite<"), Not(HasSubstr("nan")), Not(HasSubstr("inf"))));
  const std::size_t path = svg.find("fill=\"none\"");
  const std::string steps = svg.substr(svg.rfind("d=\"", path), path - svg.rfind("d=\"", path));
  EXPECT_EQ(count(steps, "M"), 2u) << steps;
  EXPECT_EQ(count(steps, "L"), 2u) << steps;
}

TEST(LineChart, DrawsAnyValues) {
  const std::vector<std::vector<ChartPoint>> lines = {{{1, 2.3}},
                                                      {{1, kNan}},
                                                      {{1, 0}, {2, 0}},
                                                      {{1, -1e308}, {2, 1e308}},
                                                      {{1, 1e-320}, {2, 1}},
                                                      {{5, -3}},
                                                      {{1e18, 1}, {1e18 + 1e6, 2}}};
  for (const auto& points : lines)
    for (const auto scale : {Axis::Scale::kLinear, Axis::Scale::kLog}) {
      LineChart chart = chart_of(points, ChartLine::Look::kDotted);
      chart.panels[0].scale = scale;
      const std::string svg = line_chart_svg(chart);
      EXPECT_EQ(xml_error(svg), "");
      EXPECT_THAT(svg, AllOf(Not(HasSubstr("nan")), Not(HasSubstr("inf"))));
    }
}

TEST(LineChart, PutsLongLegendsIntoRowsOfTheirOwn) {
  LineChart chart = chart_of({{0, 1}});
  const std::string low = line_chart_svg(chart);
  chart.names.assign(30, "a run with a long name");
  EXPECT_GT(line_chart_svg(chart).find("height=\""), 0u);
  const auto height = [](const std::string& svg) {
    return std::stod(svg.substr(svg.find("height=\"") + 8));
  };
  EXPECT_GT(height(line_chart_svg(chart)), height(low) + 100);
}

TEST(LineChart, RefusesWhatHasNoPoints) {
  EXPECT_THROW(line_chart_svg(chart_of({})), InvalidArgument);
  EXPECT_THROW(line_chart_svg({}), InvalidArgument);
}

TEST(Thinned, KeepsSpikesAndWhatIsNotFinite) {
  const Axis x(0, 100000, Axis::Scale::kLinear, 0, 100);
  std::vector<ChartPoint> points;
  for (int i = 0; i < 100000; ++i) points.push_back({static_cast<double>(i), 1 + i % 7 * 0.01});
  points[54321].y = 99;
  points[54322].y = kNan;
  points[60000].y = -5;
  const std::vector<ChartPoint> kept = thinned(points, x);
  EXPECT_LE(kept.size(), 101 * 5u);
  EXPECT_GE(kept.size(), 101u);
  const auto has = [&](double step) {
    return std::ranges::any_of(kept, [&](const ChartPoint& point) { return point.x == step; });
  };
  EXPECT_TRUE(has(54321) && has(54322) && has(60000) && has(0) && has(99999));
  EXPECT_TRUE(std::ranges::is_sorted(kept, {}, &ChartPoint::x));
}

TEST(Thinned, KeepsFewPointsAsTheyAre) {
  const Axis x(0, 3, Axis::Scale::kLinear, 0, 100);
  EXPECT_EQ(thinned(std::vector<ChartPoint>{{0, 1}, {1, kNan}, {3, 2}}, x).size(), 3u);
  EXPECT_TRUE(thinned({}, x).empty());
}

}  // namespace line_chart_test
}  // namespace belfry
