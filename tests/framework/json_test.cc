#include "belfry/framework/json.h"

#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/framework/error.h"

namespace belfry {
namespace json_test {

using testing::HasSubstr;

std::string refusal(std::string_view text) {
  try {
    Json::parse(text);
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Json, PrintsMembersInTheOrderTheyWereSet) {
  Json json = Json::object();
  json.set("z", 1).set("a", Json::array(std::vector<int>{2, -3})).set("t", true).set("n", Json());
  json.set("z", "twice");
  EXPECT_EQ(json.str(), R"({"z":"twice","a":[2,-3],"t":true,"n":null})");
  EXPECT_EQ(json.str(2),
            "{\n  \"z\": \"twice\",\n  \"a\": [\n    2,\n    -3\n  ],\n"
            "  \"t\": true,\n  \"n\": null\n}");
  EXPECT_EQ(Json::object().str(2), "{}");
}

TEST(Json, NumbersThatAreNotFiniteBecomeNull) {
  EXPECT_EQ(Json(std::numeric_limits<double>::quiet_NaN()).str(), "null");
  EXPECT_EQ(Json(0.1).str(), "0.1");
  EXPECT_EQ(Json(std::numeric_limits<std::uint64_t>::max()).str(), "18446744073709551615");
}

TEST(Json, EscapesTextAndReplacesBytesThatAreNotUtf8) {
  EXPECT_EQ(Json("a\"\n").str(), R"("a\"\n")");
  EXPECT_EQ(Json(std::string("\xff")).str(), "\"\xef\xbf\xbd\"");
}

TEST(Json, ReadsWhatItPrints) {
  const std::string text = R"({"a":[1,2.5,"x",[true,null]],"b":{"c":-7},"d":18446744073709551615})";
  const Json json = Json::parse(text);
  EXPECT_EQ(json.str(), text);
  EXPECT_EQ(json.at("b").at("c").integer(), -7);
  EXPECT_EQ(json.at("a").items().size(), 4u);
  EXPECT_EQ(json.find("e"), nullptr);
}

TEST(Json, RefusesWhatIsNoJsonWithItsPlace) {
  EXPECT_THAT(refusal("{\"a\": }"), HasSubstr("byte 7"));
  EXPECT_THAT(refusal(""), HasSubstr("byte"));
  EXPECT_THAT(refusal(std::string_view("{}\0x", 4)), HasSubstr("byte 3 is zero"));
  EXPECT_THAT(refusal("1 2"), HasSubstr("byte"));
  EXPECT_THAT(refusal(R"({"a":1,"a":2})"), HasSubstr("two members 'a'"));
  EXPECT_THAT(refusal(std::string(100, '[')), HasSubstr("deeper than 64"));
  EXPECT_THAT(refusal("1e999"), Not(HasSubstr("accepted")));
}

TEST(Json, RefusesToGiveAnotherKindThanItHas) {
  const Json json = Json::parse(R"({"a":1.5,"b":18446744073709551615})");
  EXPECT_THROW(json.at("a").integer(), InvalidArgument);
  EXPECT_THROW(json.at("b").integer(), InvalidArgument);
  EXPECT_THROW(json.at("a").text(), InvalidArgument);
  EXPECT_THROW(json.at("c"), InvalidArgument);
  EXPECT_THROW(json.items(), InvalidArgument);
  EXPECT_EQ(json.at("a").number(), 1.5);
}

TEST(Json, UnsignedNumbersMayBeLargerThanSignedOnes) {
  EXPECT_EQ(Json::parse("18446744073709551615").unsigned_integer(), ~std::uint64_t{0});
  EXPECT_EQ(Json(3).unsigned_integer(), 3u);
  EXPECT_THROW(Json(-3).unsigned_integer(), InvalidArgument);
  EXPECT_THROW(Json(3.0).unsigned_integer(), InvalidArgument);
}

TEST(Json, ErrorsQuoteALittleOfLongInputs) {
  EXPECT_LT(refusal("\"" + std::string(10'000, 'x')).size(), 300u);
  const std::string key = "\"" + std::string(10'000, 'x') + "\":1";
  EXPECT_LT(refusal("{" + key + "," + key + "}").size(), 200u);
}

}  // namespace json_test
}  // namespace belfry
