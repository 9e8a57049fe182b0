#include "belfry/framework/group/host_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/framework/base/error.h"
#include "belfry/tests/framework/framework_test_support.h"

namespace belfry {
namespace host_list_test {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

TEST(HostList, NamesAreSeparatedByCommas) {
  EXPECT_THAT(read_host_list("n1"), ElementsAre("n1"));
  EXPECT_THAT(read_host_list("login,node-7.example.org,gpu_2"),
              ElementsAre("login", "node-7.example.org", "gpu_2"));
}

TEST(HostList, RangesKeepTheirZeros) {
  EXPECT_THAT(read_host_list("a[01-03,7]-ib"), ElementsAre("a01-ib", "a02-ib", "a03-ib", "a7-ib"));
  EXPECT_THAT(read_host_list("n[9-11]"), ElementsAre("n9", "n10", "n11"));
  EXPECT_THAT(read_host_list("n[09-11]"), ElementsAre("n09", "n10", "n11"));
  EXPECT_THAT(read_host_list("n[099-101]"), ElementsAre("n099", "n100", "n101"));
  EXPECT_THAT(read_host_list("n[5]"), ElementsAre("n5"));
  EXPECT_THAT(read_host_list("[0-1]"), ElementsAre("0", "1"));
  EXPECT_THAT(read_host_list("b[2,1],a"), ElementsAre("b2", "b1", "a")) << "in their order";
}

TEST(HostList, TheLastOfSeveralBracketsVariesFastest) {
  EXPECT_THAT(read_host_list("r[1-2]n[08-09]-x,z"),
              ElementsAre("r1n08-x", "r1n09-x", "r2n08-x", "r2n09-x", "z"));
  EXPECT_THAT(read_host_list("r[1-2][3-4]"), ElementsAre("r13", "r14", "r23", "r24"));
}

TEST(HostList, WhatIsNoListIsRefusedWithTheReason) {
  for (const auto& [text, why] : {std::pair("", "a name is empty"),
                                  {"a,,b", "a name is empty"},
                                  {"a,", "a name is empty"},
                                  {"a[1", "a '[' has no ']'"},
                                  {"a[1,b[2]", "'b[2' is no number"},
                                  {"a1]", "'a1]' cannot be in the name"},
                                  {"a[]", "'' is no number"},
                                  {"a[1,]", "'' is no number"},
                                  {"a[1-]", "'' is no number"},
                                  {"a[-1]", "'' is no number"},
                                  {"a[1-2-3]", "'2-3' is no number"},
                                  {"a[x]", "'x' is no number"},
                                  {"a[1234567890]", "'1234567890' is no number"},
                                  {"a[3-1]", "the range '3-1' ends before it begins"},
                                  {"a[1-99999999]", "the range '1-99999999' has too many hosts"},
                                  {"a[1-999]b[1-999]", "it has more than 65536 hosts"},
                                  {"(null)", "'(null)' cannot be in the name"},
                                  {"a b", "'a b' cannot be in the name"}})
    EXPECT_THAT(message_of<InvalidArgument>([&, text = text] { read_host_list(text); }),
                AllOf(HasSubstr("is no list of hosts: "), HasSubstr(why)));
  EXPECT_THAT(read_host_list("a[1-65536]"), SizeIs(65536));
  EXPECT_THAT(read_host_list("a[1-9]" + std::string(253, 'b')), SizeIs(9));
  EXPECT_THAT(
      message_of<InvalidArgument>([] { read_host_list("[1-65536]" + std::string(120'000, 'b')); }),
      HasSubstr("the name of a host is longer than 255 characters"));
}

}  // namespace host_list_test
}  // namespace belfry
