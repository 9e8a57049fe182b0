// What kernels of the GPU module take, against the table of docs/kernel_resources.md, by
// scripts/kernel_resources.
#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/framework/base/file_system.h"
#include "belfry/framework/base/text.h"
#include "belfry/tests/support/programs.h"

namespace belfry {
namespace kernel_resources_test {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;

const std::string kTable = BELFRY_SOURCE_DIR "/docs/kernel_resources.md";

class KernelResources : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(kModule)) GTEST_SKIP() << "the GPU module was not built";
    if (compare_row("| `Cast<BF16>` | | 255 | 0 | 0 | 0 |").status == 77)
      GTEST_SKIP() << "needs code for an H100, and cuobjdump and nvdisasm: "
                      "scripts/kernel_resources --install";
  }

  static Finished compare(const std::string& table) {
    return run_program(
        "python3", {BELFRY_SOURCE_DIR "/scripts/kernel_resources", "--table=" + table, kModule});
  }
  // Compares with a table of one row.
  static Finished compare_row(const std::string& row) {
    const std::string path = temporary_path(".md");
    write_text_file(local_file_system(), path, row + "\n");
    const Finished done = compare(path);
    local_file_system().remove(path);
    return done;
  }

  static inline const std::string kModule = BELFRY_BIN_DIR "/../lib/libbelfry_cuda.so";
};

TEST_F(KernelResources, AreAtMostThoseOfTheTable) {
  const Finished done = compare(kTable);
  EXPECT_EQ(done.status, 0) << done.output << done.errors;
}

TEST_F(KernelResources, BeyondTheTableAreNamed) {
  Finished done = compare_row("| `Cast<BF16>` | | 8 | 0 | 99 | 0 |");
  EXPECT_EQ(done.status, 1);
  EXPECT_THAT(done.output, ContainsRegex("Cast<BF16>: [0-9]+ registers, and "));
  EXPECT_THAT(done.output, HasSubstr(" allows 8 at most"));
  EXPECT_THAT(done.output, HasSubstr(" wants 99 at least"));
  done = compare_row("| `Cast<BF17>` | | 8 | 0 | 0 | 0 |");
  EXPECT_EQ(done.status, 1);
  EXPECT_THAT(done.output, HasSubstr("Cast<BF17>: the module has no such kernel"));
  EXPECT_EQ(compare_row("nothing").status, 1);
}

}  // namespace kernel_resources_test
}  // namespace belfry
