#include "belfry/trainers/machine/machine_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/tests/framework/base/memory_file_system.h"
#include "belfry/tests/trainers/data/idx_files.h"
#include "belfry/trainers/util/option_error.h"

namespace belfry {
namespace machine_file_test {

using test::message_of;
using testing::StartsWith;

class MachineFile : public testing::Test {
 protected:
  void write(const std::string& text) { write_text_file(files_, kPath, text); }

  static constexpr const char* kPath = "/files/machine.json";
  MemoryFileSystem files_{"/files"};
};

TEST_F(MachineFile, DescribesLinksOfDevices) {
  write(R"({"devices": ["gpu:0"], "launch_us": 7})");
  EXPECT_EQ(read_machine(files_, kPath).launch_us, 7);
  EXPECT_FALSE(read_cluster(files_, kPath));
}

TEST_F(MachineFile, DescribesAHostOfACluster) {
  write(R"({"name": "two", "sources": {"a": "a page"}, "device": {},
            "host": {"devices": {"is": 2, "from": "a"}, "gbps": {"is": 20, "from": "a"}}})");
  const MachineDescription machine = read_machine(files_, kPath);
  ASSERT_EQ(machine.devices.size(), 3u);
  EXPECT_EQ(machine.links[0][1].gbps, 20);
  EXPECT_EQ(read_cluster(files_, kPath)->name, "two");
}

TEST_F(MachineFile, IsNamedIfItIsWrong) {
  const auto why_not = [&] {
    return message_of<OptionMistake>([&] { read_machine(files_, kPath); });
  };
  EXPECT_THAT(why_not(), StartsWith("links=/files/machine.json: "));
  write("{}");
  EXPECT_THAT(why_not(), StartsWith("links=/files/machine.json: "));
}

}  // namespace machine_file_test
}  // namespace belfry
