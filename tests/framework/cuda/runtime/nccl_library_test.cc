#include "belfry/framework/cuda/runtime/nccl_library.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/framework/device/gpus.h"

namespace belfry::cuda {
namespace nccl_library_test {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

TEST(NcclLibrary, KnowsItsVersion) {
  const NcclLibrary& nccl = nccl_library();
  if (nccl.version == 0) GTEST_SKIP() << nccl.why_not;
  int version = 0;
  BELFRY_GPU_CALL(nccl.ncclGetVersion(&version), "in a test");
  EXPECT_EQ(version, nccl.version);
  EXPECT_GE(version, 21800);
  EXPECT_EQ(nccl.why_not, "");
}

TEST(NcclLibrary, ThatIsMissingIsNamed) {
  const NcclLibrary none = open_nccl({"libnccl_not_here.so.2", "libnor_this.so"});
  EXPECT_EQ(none.version, 0);
  EXPECT_EQ(none.ncclAllReduce, nullptr);
  EXPECT_THAT(none.why_not, AllOf(StartsWith("NCCL cannot be loaded: libnccl_not_here.so.2"),
                                  HasSubstr("cannot open shared object file")));
}

TEST(NcclLibrary, IsTheFirstThatOpens) {
  if (nccl_library().version == 0) GTEST_SKIP() << nccl_library().why_not;
  EXPECT_EQ(open_nccl({"libnccl_not_here.so.2", "libnccl.so.2"}).version, nccl_library().version);
}

TEST(NcclLibrary, ThatLacksACallIsRefused) {
  const NcclLibrary none = open_nccl({"libc.so.6"});
  EXPECT_EQ(none.version, 0);
  EXPECT_THAT(none.why_not, StartsWith("NCCL cannot be used: it has no nccl"));
}

TEST(NcclCall, ThatFailsNamesItselfTheErrorAndTheContext) {
  const NcclLibrary& nccl = nccl_library();
  if (nccl.version == 0) GTEST_SKIP() << nccl.why_not;
  try {
    BELFRY_GPU_CALL(nccl.ncclGetVersion(nullptr), "for the first bucket");
    FAIL() << "a null pointer was taken";
  } catch (const CommError& error) {
    EXPECT_THAT(error.what(), AllOf(StartsWith("ncclGetVersion failed: invalid argument"),
                                    HasSubstr(" (4)"), HasSubstr(", for the first bucket")));
  }
}

TEST(NcclCall, ThatIsInProgressIsNoFailure) {
  EXPECT_NO_THROW(BELFRY_GPU_CALL(ncclInProgress, "in a test"));
  EXPECT_THROW(BELFRY_GPU_CALL(ncclRemoteError, "in a test"), CommError);
}

TEST(NcclCall, WithoutAGpuMakesNoCommunicator) {
  const NcclLibrary& nccl = nccl_library();
  if (nccl.version == 0) GTEST_SKIP() << nccl.why_not;
  if (gpus().count() > 0) GTEST_SKIP() << "there is a GPU";
  ncclComm_t comm = nullptr;
  EXPECT_THROW(BELFRY_GPU_CALL(nccl.ncclCommInitAll(&comm, 1, nullptr), "on gpu:0"), CommError);
}

}  // namespace nccl_library_test
}  // namespace belfry::cuda
