// How the error of a process reaches the others.
#include "belfry/framework/group/peer_error.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace belfry {
namespace peer_error_test {

using testing::HasSubstr;

// What a process knows that gets this reason of rank 1.
template <class E>
ErrorFields told(std::string_view reason) {
  try {
    throw_reason(1, "node1", reason);
  } catch (const E& error) {
    return error.fields();
  }
}

TEST(PeerErrors, KeepWhatIsKnown) {
  const ErrorFields fields = told<CommError>(reason_of({.kind = ErrorKind::kOp,
                                                        .device = "cpu:0",
                                                        .op = "x",
                                                        .where = "Relu 'x'",
                                                        .step = 3,
                                                        .why = "odd",
                                                        .option = "seed"}));
  EXPECT_EQ(fields.kind, ErrorKind::kOp);
  EXPECT_EQ(fields.op, "x");
  EXPECT_EQ(fields.step, 3);
  EXPECT_EQ(fields.option, "seed");
  EXPECT_EQ(error_text(fields), "rank 1, node1: Relu 'x': odd");
}

TEST(PeerErrors, OfNoKindAreOfNoneHere) {
  EXPECT_EQ(told<CommError>(reason_of({.why = "odd"})).kind, ErrorKind::kFailed);
}

TEST(PeerErrors, HaveAClassByTheirFields) {
  told<StallError>(reason_of({.kind = ErrorKind::kStalled, .why = "x"}));
  told<MistakeError>(reason_of({.is_mistake = true, .why = "x"}));
}

// The one that failed first, not the one that tells of it.
TEST(PeerErrors, NameTheProcessThatFailed) {
  const std::string reason = reason_of(
      {.rank = 2, .host = "node2", .reporter = 1, .reporter_host = "node1", .why = "odd"});
  EXPECT_EQ(error_text(told<CommError>(reason)), "rank 2, node2: odd");
  EXPECT_EQ(told<CommError>(reason_of({.rank = 1, .host = "lies", .why = "odd"})).host, "node1");
}

TEST(PeerErrors, MayBeText) {
  const ErrorFields fields = told<CommError>("the disk\x1b is full");
  EXPECT_EQ(fields.why, "the disk? is full");
  EXPECT_EQ(fields.rank, 1);
  EXPECT_EQ(told<CommError>("{}").why, "it gives no reason");
  // Bytes that are no UTF-8, and control characters of two bytes: CSI, say.
  EXPECT_EQ(told<CommError>("full\xff\x9b disk \xc2\x9b"
                            "31m \xc3\xa4")
                .why,
            "full\uFFFD\uFFFD disk ?31m \u00E4");
}

TEST(PeerErrors, AreCutToWhatAMessageTakes) {
  const std::string reason =
      reason_of({.op = "x", .why = std::string(1 << 20, '\x1b'), .option = "seed"});
  EXPECT_LE(reason.size(), kLongestReason);
  const ErrorFields fields = told<CommError>(reason);
  EXPECT_EQ(fields.op, "x");
  EXPECT_EQ(fields.option, "seed");
  EXPECT_GT(fields.why.size(), 1000u);
}

}  // namespace peer_error_test
}  // namespace belfry
