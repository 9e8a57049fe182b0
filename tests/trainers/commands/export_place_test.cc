#include "belfry/trainers/commands/export_place.h"

#include <gmock/gmock.h>

#include "belfry/framework/base/text.h"
#include "belfry/tests/framework/framework_test_support.h"
#include "belfry/tests/support/programs.h"
#include "belfry/trainers/util/flag_values.h"

namespace belfry {
namespace export_place_test {

using testing::AllOf;
using testing::HasSubstr;

class ExportPlaceTest : public testing::Test {
 protected:
  ExportPlaceTest() : folder_(temporary_path(".place")) {
    files_.create_directory(at("there"));
    write_text_file(files_, at("file"), "old");
  }
  ~ExportPlaceTest() override { remove_tree(files_, folder_); }

  std::string at(const std::string& name) const { return cat(folder_, "/", name); }
  std::string file_of(const std::string& out, bool in_shards) {
    return export_place(out, in_shards, files_).file;
  }

  const std::string folder_;
  FileSystem& files_ = local_file_system();
};

TEST_F(ExportPlaceTest, IsAFileOrAFileInAFolder) {
  EXPECT_EQ(file_of(at("new.safetensors"), false), at("new.safetensors"));
  EXPECT_EQ(file_of(at("file"), false), at("file"));
  EXPECT_EQ(file_of("/dev/null", false), "/dev/null");
  EXPECT_EQ(file_of("-", false), "-");
  EXPECT_EQ(file_of(at("there"), false), at("there/model.safetensors"));
  EXPECT_EQ(file_of(at("new/"), false), at("new/model.safetensors"));
  EXPECT_EQ(export_place(at("new/"), false, files_).folder, at("new/"));
  EXPECT_EQ(export_place(at("file"), false, files_).folder, "");
  EXPECT_EQ(file_of(at("there"), true), at("there/model.safetensors.index.json"));
  EXPECT_EQ(file_of(at("new"), true), at("new/model.safetensors.index.json"));
  EXPECT_FALSE(files_.exists(at("new")));
}

TEST_F(ExportPlaceTest, IsNoNameThatCouldBeEither) {
  const auto refusal = [&](const std::string& name, bool in_shards) {
    return message_of<FlagError>([&] { file_of(at(name), in_shards); });
  };
  EXPECT_EQ(refusal("new", false), cat("OUT=", at("new"), ": is it a file or a folder? Name ",
                                       at("new"), ".safetensors or ", at("new"), "/"));
  EXPECT_THAT(refusal("model.safetensors", true),
              HasSubstr("is a file, but shards and their index go into a folder"));
  EXPECT_THAT(refusal("file", true), HasSubstr("leave --max_shard_mb out"));
  EXPECT_THAT(message_of<FlagError>([&] { file_of("-", true); }), HasSubstr("OUT=- is a file"));
}

TEST_F(ExportPlaceTest, LeavesTheOtherFormAlone) {
  write_text_file(files_, at("there/model.safetensors"), "old");
  EXPECT_EQ(file_of(at("there"), false), at("there/model.safetensors"));
  EXPECT_THAT(message_of<IoError>([&] { file_of(at("there"), true); }),
              HasSubstr("/model.safetensors is there, and programs may read"));
}

}  // namespace export_place_test
}  // namespace belfry
