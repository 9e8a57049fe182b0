// What is known of errors, and the sentence that is composed from it.
#include "belfry/framework/base/error.h"

#include <new>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/framework/base/error_json.h"
#include "belfry/framework/base/error_origin.h"
#include "belfry/framework/base/option_name.h"
#include "belfry/framework/base/require.h"

namespace belfry {
namespace error_test {

using testing::HasSubstr;

// Throws an exception with an origin, and catches it.
template <class E>
ErrorFields fields_from(const E& error, const ErrorOrigin& origin) {
  try {
    try {
      throw error;
    } catch (...) {
      rethrow_from(origin);
    }
  } catch (const std::exception& caught) {
    return fields_of(caught);
  }
}

const ErrorFields kAll{.kind = ErrorKind::kOp,
                       .is_mistake = true,
                       .rank = 1,
                       .host = "b",
                       .reporter = 0,
                       .reporter_host = "a",
                       .device = "cpu:0",
                       .op = "x",
                       .where = "Relu 'x'",
                       .names_where = true,
                       .variable = "w",
                       .step = 7,
                       .why = "it is \"odd\"\n",
                       .advice = "use less",
                       .option = "seed",
                       .kept = "step 6 is saved"};

TEST(Errors, ComposeTheirSentence) {
  EXPECT_STREQ(IoError(ErrorFields{.why = "no file"}).what(), "no file");
  EXPECT_STREQ(
      Error(ErrorFields{.where = "Relu 'x'", .why = "odd", .advice = "use less", .kept = "saved"})
          .what(),
      "Relu 'x': odd; use less; saved");
  EXPECT_STREQ(
      Error(ErrorFields{.where = "Relu 'x'", .names_where = true, .why = "odd 'x'"}).what(),
      "odd 'x'");
  EXPECT_STREQ(Error(ErrorFields{.rank = 1, .host = "b", .why = "odd"}).what(), "rank 1, b: odd");
  ErrorFields told{.rank = 1, .host = "b", .reporter = 0, .reporter_host = "a", .why = "odd"};
  EXPECT_STREQ(Error(told).what(), "[rank 0, a] rank 1, b: odd");
  told.reporter = 1;
  EXPECT_STREQ(Error(told).what(), "[rank 1, a] odd");
}

TEST(Errors, KnowTheirKindByTheirClass) {
  EXPECT_EQ(IoError("x").fields().kind, ErrorKind::kIo);
  EXPECT_EQ(IoError("x").fields().why, "x");
  EXPECT_EQ(CommError(ErrorFields{.why = "x"}).fields().kind, ErrorKind::kCollective);
  EXPECT_EQ(CommError(ErrorFields{.kind = ErrorKind::kOp, .why = "x"}).fields().kind,
            ErrorKind::kOp);
  EXPECT_EQ(fields_of(std::bad_alloc()).kind, ErrorKind::kOutOfMemory);
}

TEST(Errors, TakeWhatIsKnownOfTheirOrigin) {
  const ErrorFields fields = fields_from(
      std::runtime_error("boom"), {.what = "Relu 'x'", .op = "x", .device = "cpu:0", .step = 3});
  EXPECT_EQ(fields.kind, ErrorKind::kOp);
  EXPECT_EQ(fields.op, "x");
  EXPECT_EQ(fields.step, 3);
  EXPECT_EQ(error_text(fields), "Relu 'x': boom");
}

// Where this process heard of it is no origin.
TEST(Errors, OfOtherProcessesKeepTheirOrigin) {
  const ErrorFields fields =
      fields_from(CommError(ErrorFields{.rank = 1, .where = "Relu 'x'", .step = 3, .why = "odd"}),
                  {.what = "Evaluation"});
  EXPECT_EQ(fields.where, "Relu 'x'");
  EXPECT_EQ(fields.rank, 1);
}

// It has told so at once, and knew the callback no sooner than this process did.
TEST(Errors, OfOtherProcessesInAStepGetTheCallbackThatRanIt) {
  const ErrorFields fields =
      fields_from(CommError(ErrorFields{.rank = 1, .where = "Relu 'x'", .why = "odd"}),
                  {.what = "the callback Evaluation", .step = 4});
  EXPECT_EQ(fields.where, "Relu 'x', in the callback Evaluation");
  EXPECT_EQ(fields.step, 4);
}

TEST(Errors, ThatAreNestedAddWhatTheOuterOneLacks) {
  try {
    try {
      throw IoError(about_option("data_dir", "no file"));
    } catch (const Error& error) {
      std::throw_with_nested(Error("--load: no file"));
    }
  } catch (const Error& error) {
    const ErrorFields fields = fields_of(error);
    EXPECT_EQ(fields.why, "--load: no file");
    EXPECT_EQ(fields.kind, ErrorKind::kIo);
    EXPECT_EQ(fields.option, "data_dir");
  }
}

struct Silent : std::exception {
  const char* what() const noexcept override { return ""; }
};

TEST(Errors, WithoutATextAreNamedByTheirClass) {
  EXPECT_THAT(fields_of(Silent()).why, HasSubstr("error_test::Silent"));
  EXPECT_THAT(fields_of(Error("")).why, HasSubstr("belfry::Error"));
}

TEST(Errors, GoThroughJsonUnchanged) {
  const ErrorFields read = error_from(JsonValue::parse(to_json(kAll).str()));
  EXPECT_EQ(to_json(read).str(), to_json(kAll).str());
  EXPECT_EQ(read.why, kAll.why);
  EXPECT_EQ(read.kind, kAll.kind);
  EXPECT_EQ(to_json(ErrorFields{.why = "odd"}).str(), R"({"code":"FAILED","why":"odd"})");
}

TEST(Errors, FromStrangersChangeNoScreen) {
  const ErrorFields fields = error_from(JsonValue::parse(
      R"({"why":"a\u001b[2Jb","rank":-3,"step":"x","code":"ODD","reporter":99999999999,"op":7})"));
  EXPECT_EQ(fields.why, "a?[2Jb");
  EXPECT_EQ(fields.rank, -1);
  EXPECT_EQ(fields.step, 0);
  EXPECT_EQ(fields.kind, ErrorKind::kFailed);
  EXPECT_EQ(fields.op, "");
  EXPECT_THROW(error_from(JsonValue::parse("[]")), InvalidArgument);
}

TEST(OptionNames, AreFlagsWhileAProgramHasFlags) {
  EXPECT_EQ(the_option("seed"), "the option seed");
  {
    const FlagsNameOptions flags_name_options;
    EXPECT_EQ(the_option("seed"), "--seed");
    EXPECT_EQ(option_name("seed"), "--seed");
  }
  EXPECT_EQ(option_name("seed"), "seed");
}

}  // namespace error_test
}  // namespace belfry
