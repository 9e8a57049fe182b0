#include "belfry/framework/checkpoint/stored_checkpoint.h"

#include "belfry/tests/framework/checkpoint/checkpoint_test_support.h"

namespace belfry {
namespace stored_checkpoint_test {

using ::testing::AllOf;
using ::testing::HasSubstr;

using StoredCheckpointTest = CheckpointTest;

TEST_F(StoredCheckpointTest, HasTheValuesThatWereSavedWithoutASession) {
  save();
  const StoredCheckpoint stored = read_checkpoint(path_);
  EXPECT_EQ(stored.head.directory, path_);
  EXPECT_EQ(stored.head.manifest.step, 17u);
  ASSERT_EQ(stored.head.manifest.tensors.size(), 3u);
  const auto weights = stored.values("fc/w");
  EXPECT_TRUE(std::ranges::equal(weights, std::span(kWeightValues.raw(), kWeightValues.bytes())));
  EXPECT_EQ(stored.values("flag").size(), 2u);
}

TEST_F(StoredCheckpointTest, HasAHeadThatTellsWeightsFromState) {
  save();
  const CheckpointHead head = read_checkpoint_head(path_);
  EXPECT_EQ(head.manifest.step, 17u);
  EXPECT_EQ(head.manifest.tensors.at("fc/w").role, VariableRole::kWeight);
  EXPECT_TRUE(head.manifest.tensors.at("fc/w").trainable);
  EXPECT_EQ(head.manifest.tensors.at("count").role, VariableRole::kState);
  EXPECT_FALSE(head.manifest.tensors.at("count").trainable);
}

TEST_F(StoredCheckpointTest, ThatIsDamagedIsRefusedByFileTensorAndByte) {
  save();
  std::vector<std::byte> bytes = files_.read(file("model.safetensors"));
  bytes.back() ^= std::byte{1};
  write(file("model.safetensors"), bytes);
  EXPECT_THAT(message_of<IoError>([&] { read_checkpoint(path_); }),
              AllOf(HasSubstr(file("model.safetensors")), HasSubstr("tensor 'fc/w' at byte ")));
  EXPECT_EQ(read_checkpoint_head(path_).manifest.step, 17u) << "which reads no values";
  EXPECT_THROW(read_checkpoint(path_ + "x"), NotFoundError);
}

TEST_F(StoredCheckpointTest, ThatListsAnotherFileIsRefused) {
  save();
  CheckpointHead head = read_checkpoint_head(path_);
  head.manifest.files["other.safetensors"] = {};
  const std::string text = head.manifest.str();
  write(file("manifest.json"), std::as_bytes(std::span(text)));
  EXPECT_THAT(message_of<IoError>([&] { read_checkpoint_head(path_); }),
              HasSubstr("lists the file 'other.safetensors'"));
}

}  // namespace stored_checkpoint_test
}  // namespace belfry
