#include "belfry/trainers/util/bar_chart.h"

#include <cmath>
#include <limits>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/framework/base/error.h"
#include "belfry/tests/trainers/util/xml.h"

namespace belfry {
namespace bar_chart_test {

using testing::HasSubstr;

TEST(XmlError, FindsWhatIsNotWellFormed) {
  EXPECT_EQ(xml_error("<?xml version=\"1.0\"?>\n<a b=\"1\"><c/>x &amp; y</a>\n"), "");
  for (const char* bad :
       {"<a>", "<a></b>", "<a/><b/>", "<a>&</a>", "<a b=1/>", "</a>", "<a>< </a>"})
    EXPECT_NE(xml_error(bad), "") << bad;
}

TEST(BarChart, IsWellFormedAndHasABarALabelAndAValuePerBar) {
  const std::string svg =
      bar_chart_svg({"resnet20, 4 devices", "images/s"},
                    std::vector<Bar>{{"naive", 100, 5}, {"ring", 150, 0}, {"collective", 200, 10}});
  EXPECT_EQ(xml_error(svg), "");
  EXPECT_THAT(svg, testing::StartsWith("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<svg xmlns="
                                       "\"http://www.w3.org/2000/svg\""));
  EXPECT_EQ(count(svg, "fill=\"#4878a8\""), 3u);
  // 200 and its error fill the plot of 520 pixels.
  EXPECT_THAT(svg, HasSubstr("width=\"495.2\""));
  EXPECT_THAT(svg, HasSubstr("width=\"247.6\""));
  EXPECT_EQ(count(svg, "stroke=\"black\""), 6u) << "two error bars of three strokes";
  for (const char* text : {">naive<", ">ring<", ">collective<", ">100<", ">150<", ">200<",
                           ">resnet20, 4 devices<", ">images/s<"})
    EXPECT_THAT(svg, HasSubstr(text));
}

TEST(BarChart, EscapesTextsAndReplacesWhatIsNotAscii) {
  const std::string svg =
      bar_chart_svg({"a<b & \"c\"", "x>y"}, std::vector<Bar>{{"tab\t\x7f\xc3", 1, 0}});
  EXPECT_EQ(xml_error(svg), "");
  EXPECT_THAT(svg, HasSubstr("a&lt;b &amp; &quot;c&quot;"));
  EXPECT_THAT(svg, HasSubstr("x&gt;y"));
  EXPECT_THAT(svg, HasSubstr(">tab" + std::string(3, '?') + "<"));
}

TEST(BarChart, DrawsValuesOfAnySize) {
  for (const double value : {0.0, 1e-12, 3.0, 1e15})
    EXPECT_EQ(xml_error(bar_chart_svg({}, std::vector<Bar>{{"x", value, value / 2}})), "") << value;
}

TEST(BarChart, HasFromOneToSevenTicks) {
  for (const double value : {1.0, 1.9, 2.1, 4.9, 5.1, 9.9, 123.0, 7e5}) {
    const std::size_t ticks =
        count(bar_chart_svg({}, std::vector<Bar>{{"x", value, 0}}), "stroke=\"#dddddd\"");
    EXPECT_GE(ticks, 3u) << value;
    EXPECT_LE(ticks, 7u) << value;
  }
}

TEST(BarChart, RefusesWhatCannotBeDrawn) {
  const auto draw = [](std::vector<Bar> bars) { return bar_chart_svg({}, bars); };
  EXPECT_THROW(draw({}), InvalidArgument);
  EXPECT_THROW(draw({{"x", -1, 0}}), InvalidArgument);
  EXPECT_THROW(draw({{"x", 1, -1}}), InvalidArgument);
  EXPECT_THROW(draw({{"x", std::nan(""), 0}}), InvalidArgument);
  EXPECT_THROW(draw({{"x", 1, std::numeric_limits<double>::infinity()}}), InvalidArgument);
}

}  // namespace bar_chart_test
}  // namespace belfry
