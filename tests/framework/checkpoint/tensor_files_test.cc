#include "belfry/framework/checkpoint/tensor_files.h"

#include <gmock/gmock.h>

#include "belfry/framework/base/text.h"
#include "belfry/tests/framework/framework_test_support.h"
#include "belfry/tests/support/programs.h"

namespace belfry {
namespace tensor_files_test {

using testing::AllOf;
using testing::HasSubstr;
using testing::SizeIs;

class TensorFilesTest : public testing::Test {
 protected:
  TensorFilesTest() : folder_(temporary_path(".files")) { files_.create_directory(folder_); }
  ~TensorFilesTest() override { remove_tree(files_, folder_); }

  std::string at(const std::string& name) const { return cat(folder_, "/", name); }

  // Each tensor has two bytes: its number, and 1.
  void write(const std::string& file, const std::map<std::string, char>& numbers) {
    std::vector<StoredTensor> tensors;
    for (const auto& [name, number] : numbers)
      tensors.push_back({.name = name, .dtype = DType::kU8, .shape = {2}});
    std::string text = lay_out_safetensors(tensors, {{"format", "pt"}});
    for (const StoredTensor& tensor : tensors) text += {numbers.at(tensor.name), 1};
    write_text_file(files_, at(file), text);
  }
  void write_index(const std::string& map) {
    write_text_file(files_, at("model.safetensors.index.json"),
                    cat(R"({"metadata": {"total_size": 6}, "weight_map": )", map, "}"));
  }
  std::string refusal() {
    return message_of<IoError>([&] { TensorFiles(folder_, files_); });
  }

  FileSystem& files_ = local_file_system();
  std::string folder_;
};

TEST_F(TensorFilesTest, ReadsOneFileTensorByTensor) {
  write("model.safetensors", {{"a", 7}, {"b", 8}});
  for (const std::string& path : {at("model.safetensors"), folder_}) {
    const TensorFiles read(path, files_);
    EXPECT_THAT(read.tensors(), SizeIs(2));
    EXPECT_EQ(read.metadata().at("format"), "pt");
    EXPECT_EQ(read.read("b"), (std::vector<std::byte>{std::byte{8}, std::byte{1}}));
    EXPECT_EQ(read.read("a"), (std::vector<std::byte>{std::byte{7}, std::byte{1}}));
    EXPECT_THAT(read.place_of("a"),
                AllOf(HasSubstr("model.safetensors: tensor 'a' at byte "), HasSubstr(folder_)));
  }
}

TEST_F(TensorFilesTest, ReadsShardsByTheirIndex) {
  write("one.safetensors", {{"a", 7}, {"b", 8}});
  write("two.safetensors", {{"c", 9}});
  write_index(R"({"a": "one.safetensors", "b": "one.safetensors", "c": "two.safetensors"})");
  for (const std::string& path : {at("model.safetensors.index.json"), folder_}) {
    const TensorFiles read(path, files_);
    EXPECT_THAT(read.tensors(), SizeIs(3));
    EXPECT_EQ(read.read("c"), (std::vector<std::byte>{std::byte{9}, std::byte{1}}));
    EXPECT_EQ(read.read("b"), (std::vector<std::byte>{std::byte{8}, std::byte{1}}));
    EXPECT_THAT(read.place_of("c"), HasSubstr("two.safetensors: tensor 'c'"));
  }
}

TEST_F(TensorFilesTest, RefusesWhatIsMissingOrDiffersFromTheIndex) {
  EXPECT_THAT(message_of<NotFoundError>([&] { TensorFiles(folder_, files_); }),
              HasSubstr("the folder has neither model.safetensors.index.json nor model."));
  write("one.safetensors", {{"a", 7}});
  write("two.safetensors", {{"c", 9}});
  write_index(R"({"a": "one.safetensors", "b": "two.safetensors", "c": "two.safetensors"})");
  EXPECT_THAT(refusal(), HasSubstr("two.safetensors: has no tensor 'b', which "));
  write_index(R"({"a": "two.safetensors", "c": "one.safetensors"})");
  EXPECT_THAT(refusal(), HasSubstr("has no tensor 'a', which "));
  write_index(R"({"a": "one.safetensors"})");
  EXPECT_NO_THROW(TensorFiles(folder_, files_)) << "a file that no tensor names is not read";
  write("one.safetensors", {{"a", 7}, {"d", 8}});
  EXPECT_THAT(refusal(), AllOf(HasSubstr("tensor 'd' at byte "), HasSubstr("does not list it")));
  write("two.safetensors", {{"a", 9}, {"c", 9}});
  write_index(R"({"a": "one.safetensors", "d": "one.safetensors", "c": "two.safetensors"})");
  EXPECT_THAT(refusal(),
              AllOf(HasSubstr("tensor 'a' at byte "), HasSubstr("one.safetensors, too")));
  write_index(R"({"a": "../one.safetensors"})");
  EXPECT_THAT(refusal(), HasSubstr("'../one.safetensors' is no name of a file beside the index"));
  write_index("[]");
  EXPECT_THAT(refusal(), HasSubstr("no index of safetensors files"));
  write_index(R"({"a": "three.safetensors"})");
  EXPECT_THROW(TensorFiles(folder_, files_), NotFoundError);
}

TEST_F(TensorFilesTest, NoticesAFileThatBecomesShorter) {
  write("model.safetensors", {{"a", 7}, {"b", 8}});
  const TensorFiles read(folder_, files_);
  files_.extend(at("model.safetensors"), 20)->close();
  EXPECT_THAT(message_of<IoError>([&] { read.read("b"); }), HasSubstr("was it written meanwhile?"));
}

}  // namespace tensor_files_test
}  // namespace belfry
