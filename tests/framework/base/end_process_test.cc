#include "belfry/framework/base/end_process.h"

#include <cstdlib>
#include <memory>

#include <gtest/gtest.h>

#include "belfry/framework/base/file_system.h"
#include "belfry/tests/support/programs.h"

namespace belfry {
namespace end_process_test {

// `belfry run` looks at the lock before it kills.
TEST(UnfinishedWrite, LocksTheFileThatTheLauncherNames) {
  const std::string path = temporary_path(".writing");
  FileSystem& files = local_file_system();
  ::setenv(kUnfinishedVariable, path.c_str(), 1);
  auto first = std::make_unique<UnfinishedWrite>();
  auto second = std::make_unique<UnfinishedWrite>();
  first.reset();
  EXPECT_TRUE(UnfinishedWrite::any());
  EXPECT_EQ(files.lock(path), nullptr);
  second.reset();
  EXPECT_FALSE(UnfinishedWrite::any());
  EXPECT_FALSE(files.exists(path));
  // A folder that is gone is no reason not to write.
  ::setenv(kUnfinishedVariable, (path + "/none/lock").c_str(), 1);
  const UnfinishedWrite third;
  EXPECT_TRUE(UnfinishedWrite::any());
  ::unsetenv(kUnfinishedVariable);
}

}  // namespace end_process_test
}  // namespace belfry
