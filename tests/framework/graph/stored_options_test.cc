#include "belfry/framework/graph/stored_options.h"

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/framework/core_ops/no_op.h"
#include "belfry/ops/attention/attention.h"
#include "belfry/ops/convolution/conv2d.h"
#include "belfry/ops/pointwise/clip.h"
#include "belfry/ops/shapes/map_axes.h"
#include "belfry/tests/framework/framework_test_support.h"

namespace belfry {
namespace stored_options_test {

using testing::HasSubstr;

// What is read from the text of a file.
template <class T>
NodeOptions read_again(const Op& op, const T& value) {
  const OptionsForm& form = *options_form(op);
  return form.read(JsonValue::parse(form.write(NodeOptions(value)).str()));
}

NodeOptions read(const Op& op, const char* text) {
  return options_form(op)->read(JsonValue::parse(text));
}

TEST(StoredOptions, AreReadAsTheyWere) {
  const Conv2dOptions convolution{
      .stride = {2, 3}, .padding = Padding(1, 2, 3, 4), .dilation = 5, .groups = 7};
  const NodeOptions again = read_again(kConv2d, convolution);
  EXPECT_EQ(again.str(), NodeOptions(convolution).str());
  EXPECT_EQ(again.as<Conv2dOptions>().padding, convolution.padding);
  EXPECT_EQ(read_again(kConv2d, Conv2dOptions()).as<Conv2dOptions>().padding, Padding::kSame);
  const AttentionOptions attention{.heads = 4, .kv_heads = 2, .scale = 0.1, .causal = true};
  EXPECT_EQ(read_again(kAttention, attention).str(), NodeOptions(attention).str());
  const MapAxesOptions maps{.maps = {{.kind = AxisMap::Kind::kEdge, .a = 1, .b = 2}, {}},
                            .value = -0.0};
  const NodeOptions mapped = read_again(kMapAxes, maps);
  EXPECT_EQ(mapped.as<MapAxesOptions>().maps, maps.maps);
  EXPECT_TRUE(std::signbit(mapped.as<MapAxesOptions>().value));
}

TEST(StoredOptions, KeepEachNumber) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  for (const double number : {0.1, 1e-310, -kInfinity, 1.7976931348623157e308})
    EXPECT_EQ(read_again(kClip, ClipOptions{number, kInfinity}).as<ClipOptions>().low, number);
  EXPECT_TRUE(std::isnan(read_again(kClip, ClipOptions{NAN, 0}).as<ClipOptions>().low));
}

TEST(StoredOptions, HaveDefaultsWhereAnOlderFileLacksThem) {
  EXPECT_EQ(read(kConv2d, "[[2,2],[]]").str(), NodeOptions(Conv2dOptions{.stride = 2}).str());
}

TEST(StoredOptions, AreRefusedIfNoOpHasThem) {
  const auto message = [](const char* text) {
    return message_of<InvalidArgument>([&] { read(kConv2d, text); });
  };
  EXPECT_THAT(message("[[1,1],[],[1,1],1,0]"), HasSubstr("5 options"));
  EXPECT_THAT(message("[[1,1],[],[1,1],3000000000]"), HasSubstr("out of range"));
  EXPECT_THAT(message("[[1,1],[1,2]]"), HasSubstr("a padding has 2 numbers"));
  EXPECT_THAT(message("[[1,1,1]]"), HasSubstr("two axes have 3 numbers"));
  EXPECT_THAT(message("{}"), HasSubstr("array"));
  EXPECT_EQ(options_form(kNoOp), nullptr);
}

}  // namespace stored_options_test
}  // namespace belfry
