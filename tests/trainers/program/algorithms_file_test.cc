#include "belfry/trainers/program/algorithms_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/framework/base/require.h"
#include "belfry/tests/framework/base/memory_file_system.h"
#include "belfry/tests/framework/device/fake_gpus.h"
#include "belfry/trainers/util/flag_values.h"

namespace belfry {
namespace algorithms_file_test {

// Keeps given choices as its own. It accepts texts that begin with "choices".
class Chooser final : public test::FakeGpus {
 public:
  Chooser() : FakeGpus(1) {}
  std::string algorithms(bool deterministic) const override { return chosen[deterministic]; }
  void give_algorithms(bool deterministic, std::string_view text,
                       const std::string& path) const override {
    require(text.starts_with("choices"), path, ": no file of algorithms");
    chosen[deterministic] = text;
  }

  mutable std::string chosen[2];
};

std::string content_of(FileSystem& files, const std::string& path) {
  const std::vector<std::byte> bytes = files.read(path);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

class AlgorithmsFileTest : public testing::Test {
 protected:
  const Chooser chooser;
  const Gpus gpus{chooser};
  MemoryFileSystem files{"/m"};
  OutputFiles outputs{files};
};

TEST_F(AlgorithmsFileTest, IsWrittenOnceThereAreChoices) {
  AlgorithmsFile file(files, outputs, "/m/chosen", true, &gpus);
  EXPECT_FALSE(files.exists("/m/chosen"));
  file.write();
  EXPECT_FALSE(files.exists("/m/chosen"));
  chooser.chosen[true] = "choices of this run";
  chooser.chosen[false] = "choices of others";
  file.write();
  EXPECT_EQ(content_of(files, "/m/chosen"), "choices of this run");
}

TEST_F(AlgorithmsFileTest, GivesItsChoicesToTheRunAndKeepsThem) {
  write_text_file(files, "/m/chosen", "choices of yesterday");
  AlgorithmsFile file(files, outputs, "/m/chosen", false, &gpus);
  EXPECT_EQ(chooser.chosen[false], "choices of yesterday");
  EXPECT_EQ(chooser.chosen[true], "");
  chooser.chosen[false] += " and of today";
  file.write();
  EXPECT_EQ(content_of(files, "/m/chosen"), "choices of yesterday and of today");
}

TEST_F(AlgorithmsFileTest, IsNamedWhereItIsNone) {
  write_text_file(files, "/m/other", "{}");
  try {
    AlgorithmsFile file(files, outputs, "/m/other", true, &gpus);
    FAIL() << "it was taken";
  } catch (const InvalidArgument& error) {
    EXPECT_STREQ(error.what(), "--algorithms=/m/other: no file of algorithms");
  }
  EXPECT_EQ(content_of(files, "/m/other"), "{}");
}

TEST_F(AlgorithmsFileTest, ThatCannotBeWrittenIsRefusedAtOnce) {
  EXPECT_THROW(AlgorithmsFile(files, outputs, "/nowhere/chosen", true, &gpus), FlagError);
}

TEST_F(AlgorithmsFileTest, ChangesNothingWithoutAPath) {
  chooser.chosen[true] = "choices of this run";
  const Gpus none("there is no module");
  AlgorithmsFile(files, outputs, "", true, &none).write();
}

}  // namespace algorithms_file_test
}  // namespace belfry
