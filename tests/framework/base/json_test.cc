#include "belfry/framework/base/json.h"

#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/framework/base/error.h"

namespace belfry {
namespace json_test {

using testing::HasSubstr;

std::string refusal(std::string_view text) {
  try {
    JsonValue::parse(text);
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "accepted";
}

TEST(JsonValue, PrintsMembersInTheOrderTheyWereSet) {
  JsonValue json = JsonValue::object();
  json.set("z", 1)
      .set("a", JsonValue::array(std::vector<int>{2, -3}))
      .set("t", true)
      .set("n", JsonValue());
  json.set("z", "twice");
  EXPECT_EQ(json.str(), R"({"z":"twice","a":[2,-3],"t":true,"n":null})");
  EXPECT_EQ(json.str(2),
            "{\n  \"z\": \"twice\",\n  \"a\": [\n    2,\n    -3\n  ],\n"
            "  \"t\": true,\n  \"n\": null\n}");
  EXPECT_EQ(JsonValue::object().str(2), "{}");
}

TEST(JsonValue, NumbersThatAreNotFiniteBecomeNull) {
  EXPECT_EQ(JsonValue(std::numeric_limits<double>::quiet_NaN()).str(), "null");
  EXPECT_EQ(JsonValue(0.1).str(), "0.1");
  EXPECT_EQ(JsonValue(std::numeric_limits<std::uint64_t>::max()).str(), "18446744073709551615");
}

TEST(JsonValue, EscapesTextAndReplacesBytesThatAreNotUtf8) {
  EXPECT_EQ(JsonValue("a\"\n").str(), R"("a\"\n")");
  EXPECT_EQ(JsonValue(std::string("\xff")).str(), "\"\xef\xbf\xbd\"");
}

TEST(JsonValue, ReadsWhatItPrints) {
  const std::string text = R"({"a":[1,2.5,"x",[true,null]],"b":{"c":-7},"d":18446744073709551615})";
  const JsonValue json = JsonValue::parse(text);
  EXPECT_EQ(json.str(), text);
  EXPECT_EQ(json.at("b").at("c").integer(), -7);
  EXPECT_EQ(json.at("a").items().size(), 4u);
  EXPECT_EQ(json.find("e"), nullptr);
}

TEST(JsonValue, RefusesWhatIsNoJsonWithItsPlace) {
  const std::pair<std::string_view, const char*> refusals[] = {
      {"{\"a\": }", "line 1, column 7: unexpected '}'; expected '[', '{', or a literal"},
      {"{\n \"a\": 1,\n}", "line 3, column 1: unexpected '}'; expected string literal"},
      {"", "line 1, column 1: unexpected end of input; expected '[', '{', or a literal"},
      {std::string_view("{}\0x", 4), "line 1, column 3: unexpected zero byte"},
      {std::string_view("[\"a\0\"]", 6), "line 1, column 4: unexpected zero byte"},
      {"1 2", "line 1, column 3: unexpected number literal; expected end of input"},
      {"{", "line 1, column 2: unexpected end of input; expected string literal"},
      {"{a: 1}", "line 1, column 2: invalid literal at 'a: 1}'; expected string literal"},
      {"{\"a\" 1}", "line 1, column 6: unexpected number literal; expected ':'"},
      {"{\"a\"::1}", "line 1, column 6: unexpected ':'; expected "},
      {"{\"a\": 1 \"b\": 2}", "line 1, column 9: unexpected string literal; expected ',' or '}'"},
      {"{\"a\":1\"b\":2}", "line 1, column 7: unexpected string literal; expected ',' or '}'"},
      {"[1,\r\n2 3]", "line 2, column 3: unexpected number literal; expected ',' or ']'"},
      {"[1,2", "line 1, column 5: unexpected end of input; expected ',' or ']'"},
      {"[1,]", "line 1, column 4: unexpected ']'; expected '[', '{', or a literal"},
      {"[1,,2]", "line 1, column 4: unexpected ','; expected "},
      {"[true,\n nan]", "line 2, column 2: invalid literal at 'nan]'"},
      {"[01]", "line 1, column 3: unexpected number literal; expected ',' or ']'"},
      {"[0-1.5]", "line 1, column 3: unexpected number literal; expected ',' or ']'"},
      {"\xef\xbb\xbf[1,x]", "line 1, column 4: invalid literal at 'x]'"},
      {"-", "invalid number; expected digit after '-'"},
      {"1.", "invalid number; expected digit after '.'"},
      {"1e+", "invalid number; expected digit after exponent sign"},
      {"+1", "line 1, column 1: invalid literal at '+1'"},
      {"'a'", "line 1, column 1: invalid literal at ''a''"},
      {"\"a", "line 1, column 1: invalid string: missing closing quote at '\"a'"},
      {"[\"a\nb\"]",
       "line 1, column 2: invalid string: control character U+000A (LF) must be "
       "escaped to \\u000A or \\n at '\"a?b\"]'"},
      {"\"\\x\"", "invalid string: forbidden character after backslash at '\"\\x\"'"},
      {"\"\\u00g0\"", "invalid string: '\\u' must be followed by 4 hex digits"},
      {"\"\\ud800\"", "must be followed by U+DC00..U+DFFF"},
      {"[\"\xff\"]", "line 1, column 2: invalid string: ill-formed UTF-8 byte"},
      {"\"\xc0\xaf\"", "ill-formed UTF-8 byte"},
      {"\"\xed\xa0\x80\"", "ill-formed UTF-8 byte"},
      {R"({"a":1,"a":2})", "line 1, column 8: an object has two members 'a'"},
      {"[1e999]", "line 1, column 2: number overflow parsing '1e999'"}};
  for (const auto& [text, why] : refusals) EXPECT_THAT(refusal(text), HasSubstr(why)) << text;
  EXPECT_THAT(refusal(std::string(100, '[')), HasSubstr("column 65: nested deeper than 64"));
}

TEST(JsonValue, ReadsEveryFormOfNumbersAndTexts) {
  EXPECT_EQ(
      JsonValue::parse(" [ -0 , 1e2 , -1.5E-1 , 9223372036854775808, -9223372036854775808, 1e-400,"
                       " 18446744073709551616 ] ")
          .str(),
      "[0,100.0,-0.15,9223372036854775808,-9223372036854775808,0.0,1.8446744073709552e+19]");
  EXPECT_EQ(JsonValue::parse(R"("\"\\\/\b\f\n\r\t\u00e9\u20AC\ud83d\ude00\u0000")").text(),
            std::string("\"\\/\b\f\n\r\t\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\0", 18));
  EXPECT_EQ(JsonValue::parse("\xef\xbb\xbf\"\xf0\x9f\x98\x80\"").text(), "\xf0\x9f\x98\x80");
}

TEST(JsonValue, RefusesToGiveAnotherKindThanItHas) {
  const JsonValue json = JsonValue::parse(R"({"a":1.5,"b":18446744073709551615})");
  EXPECT_THROW(json.at("a").integer(), InvalidArgument);
  EXPECT_THROW(json.at("b").integer(), InvalidArgument);
  EXPECT_THROW(json.at("a").text(), InvalidArgument);
  EXPECT_THROW(json.at("c"), InvalidArgument);
  EXPECT_THROW(json.items(), InvalidArgument);
  EXPECT_EQ(json.at("a").number(), 1.5);
}

TEST(JsonValue, SaysWhereAValueOfAnotherKindIs) {
  const JsonValue json = JsonValue::parse("{\"a\": \"text\",\n  \"b\": [1.5, {}, -1]}");
  const auto refused = [](const auto& f) {
    try {
      f();
    } catch (const InvalidArgument& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  const std::list<JsonValue>& items = json.at("b").items();
  EXPECT_EQ(refused([&] { json.at("a").number(); }),
            "line 1, column 7: expected a number, found the text \"text\"");
  EXPECT_EQ(refused([&] { json.at("b").text(); }),
            "line 2, column 8: expected a string, found an array");
  EXPECT_EQ(refused([&] { items.front().integer(); }),
            "line 2, column 9: expected a whole number, found 1.5");
  EXPECT_EQ(refused([&] { std::next(items.begin())->at("c"); }),
            "line 2, column 14: there is no member 'c' in this object");
  EXPECT_EQ(refused([&] { items.back().unsigned_integer(); }),
            "line 2, column 18: expected a whole number that is not negative, found -1");
  EXPECT_EQ(refused([&] { JsonValue(true).items(); }), "JSON: expected an array, found true");
}

TEST(JsonValue, UnsignedNumbersMayBeLargerThanSignedOnes) {
  EXPECT_EQ(JsonValue::parse("18446744073709551615").unsigned_integer(), ~std::uint64_t{0});
  EXPECT_EQ(JsonValue(3).unsigned_integer(), 3u);
  EXPECT_THROW(JsonValue(-3).unsigned_integer(), InvalidArgument);
  EXPECT_THROW(JsonValue(3.0).unsigned_integer(), InvalidArgument);
}

TEST(JsonValue, ErrorsQuoteALittleOfLongInputs) {
  EXPECT_LT(refusal("\"" + std::string(10'000, 'x')).size(), 300u);
  const std::string key = "\"" + std::string(10'000, 'x') + "\":1";
  EXPECT_LT(refusal("{" + key + "," + key + "}").size(), 200u);
}

}  // namespace json_test
}  // namespace belfry
