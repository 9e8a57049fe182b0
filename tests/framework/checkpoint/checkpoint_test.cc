#include "belfry/framework/checkpoint/checkpoint.h"

#include "belfry/framework/base/text.h"
#include "belfry/framework/checkpoint/safetensors.h"
#include "belfry/tests/framework/checkpoint/checkpoint_test_support.h"

namespace belfry {
namespace checkpoint_test {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST_F(CheckpointTest, BringsBackVariablesStepAndTheCallersNumbers) {
  {
    const Model model(1);
    Session session(model.graph);
    fill(session, model);
    save_checkpoint(session, path_,
                    JsonValue::object().set("samples", 1'234'567'890'123).set("rate", 0.1));
  }
  const Model model(1);
  Session session(model.graph);
  const CheckpointInfo info = restore_checkpoint(session, path_);
  EXPECT_EQ(session.read(model.w[0]), kWeightValues);
  EXPECT_EQ(session.read(model.count[0]).item<std::int64_t>(), 42);
  EXPECT_EQ(session.read(model.flag), Tensor({2}, std::vector<bool>{false, true}));
  EXPECT_EQ(session.read(model.local), floats({0}));
  EXPECT_EQ(session.step(), 17u);
  EXPECT_EQ(info.path, path_);
  EXPECT_EQ(info.step, 17u);
  EXPECT_EQ(info.extra.str(), R"({"samples":1234567890123,"rate":0.1})");
  EXPECT_EQ(inspect_checkpoint(path_).extra.str(), info.extra.str());
}

// Training that accumulates gradients runs a session several times for a step.
TEST_F(CheckpointTest, ARestoreTellsTheStepsThatTheCallerCounts) {
  const Model model(1);
  Session session(model.graph);
  fill(session, model);
  save_checkpoint(session, path_, JsonValue::object().set("steps", 4));
  testing::internal::CaptureStderr();
  restore_checkpoint(session, path_);
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr(" (step 4)"));
  EXPECT_EQ(session.step(), 17u);
}

TEST_F(CheckpointTest, GoesOnToTheSameRandomNumbers) {
  const Model model(1);
  Session straight(model.graph), first(model.graph), second(model.graph);
  for (int i = 0; i < 4; ++i) straight.run({*model.step});
  for (int i = 0; i < 2; ++i) first.run({*model.step});
  save_checkpoint(first, path_);
  restore_checkpoint(second, path_);
  for (int i = 0; i < 2; ++i) second.run({*model.step});
  EXPECT_EQ(second.read(model.w[0]), straight.read(model.w[0]));
}

TEST_F(CheckpointTest, KeepsWeightsApartFromTheRestAndNoCopies) {
  save(3);
  EXPECT_THAT(listed(folder_), ElementsAre("run"));
  EXPECT_THAT(listed(path_),
              ElementsAre("manifest.json", "model.safetensors", "state.safetensors"));
  const auto names = [&](const char* name) {
    std::vector<std::string> result;
    const Safetensors content(files_.read(file(name)), name);
    for (const auto& [key, tensor] : content.tensors()) result.push_back(key);
    return result;
  };
  EXPECT_THAT(names("model.safetensors"), ElementsAre("fc/w"));
  EXPECT_THAT(names("state.safetensors"), ElementsAre("count", "flag"));
  const auto text = files_.read(file("manifest.json"));
  const JsonValue manifest =
      JsonValue::parse({reinterpret_cast<const char*>(text.data()), text.size()});
  EXPECT_EQ(manifest.at("version").integer(), 1);
  EXPECT_EQ(manifest.at("step").integer(), 17);
  const JsonValue& weight = manifest.at("tensors").at("fc/w");
  EXPECT_EQ(weight.at("file").text(), "model.safetensors");
  EXPECT_EQ(weight.at("shape").str(), "[2,3]");
  EXPECT_EQ(weight.at("dtype").text(), "F32");
  EXPECT_EQ(weight.at("device").text(), "/job:localhost/replica:0/task:0/device:CPU:0");
  // zlib.crc32(struct.pack("<6f", 1, 2, 3, 4, 5, 6))
  EXPECT_EQ(weight.at("crc32").text(), "1939e524");
}

TEST_F(CheckpointTest, FitsAnotherNumberOfTowersAndOtherDevices) {
  for (const int saved : {1, 3}) {
    remove_tree(files_, path_);
    save(saved);
    for (const int towers : {1, 2, 4}) {
      const Model model(towers, towers - 1);
      Session session(model.graph, cpus(towers));
      restore_checkpoint(session, path_);
      for (int t = 0; t < towers; ++t) {
        EXPECT_EQ(session.read(model.w[static_cast<std::size_t>(t)]), kWeightValues);
        EXPECT_EQ(session.read(model.count[static_cast<std::size_t>(t)]).item<std::int64_t>(), 42);
      }
      EXPECT_EQ(session.placement(model.w[0].ref()), cpu(towers - 1));
    }
  }
}

TEST_F(CheckpointTest, PathsMayBeRelativeEndInASlashBeLinksAndExistEmpty) {
  const auto before = std::filesystem::current_path();
  std::filesystem::current_path(folder_);
  path_ = "./sub/../run//";
  files_.create_directory("sub");
  save();
  std::filesystem::current_path(before);
  EXPECT_THAT(listed(folder_), ElementsAre("run", "sub"));
  std::filesystem::create_directory_symlink(folder_ + "/sub", folder_ + "/link");
  path_ = folder_ + "/link";
  save();
  EXPECT_THAT(listed(folder_), ElementsAre("link", "run", "sub"));
  EXPECT_EQ(inspect_checkpoint(folder_ + "/sub").step, 17u);
  EXPECT_EQ(inspect_checkpoint(path_).path, folder_ + "/sub");
}

KernelRun failing_kernel(KernelPlan&) {
  return [](const KernelPointers&) { throw DeviceError("failed"); };
}
const Op kFailTest{.name = "FailTest",
                   .inputs = 1,
                   .shape = same_as_input,
                   .no_gradient = "it is for tests",
                   .reference = failing_kernel};

TEST_F(CheckpointTest, IsNotTakenOfASessionThatARunLeftHalfWritten) {
  save();
  Model model(1);
  const Output written = model.step->output();
  Node& fails = model.graph.add(kFailTest, {written}, "fails");
  Session session(model.graph);
  EXPECT_THROW(session.run({fails}), DeviceError);
  ASSERT_FALSE(session.intact());
  EXPECT_THAT(message_of<InvalidArgument>([&] { save_checkpoint(session, path_); }),
              HasSubstr("restore the session before saving it to " + path_));
  EXPECT_THAT(listed(folder_), ElementsAre("run"));
  EXPECT_EQ(inspect_checkpoint(path_).step, 17u);
  restore_checkpoint(session, path_);
  save_checkpoint(session, path_ + "2");
  EXPECT_EQ(session.read(model.w[0]), kWeightValues);
}

TEST_F(CheckpointTest, NothingIsOverwritten) {
  save();
  EXPECT_THAT(refused(path_), HasSubstr(path_ + " is there already, and a checkpoint replaces "
                                                "nothing; save elsewhere, or remove it first"));
  EXPECT_EQ(inspect_checkpoint(path_).step, 17u);
  write(folder_ + "/file", std::as_bytes(std::span("hello", 5)));
  EXPECT_THAT(refused(folder_ + "/file"), HasSubstr("/file is there already"));
  EXPECT_THAT(refused("/dev/null"), HasSubstr("/dev/null is there already"));
  EXPECT_THAT(listed(folder_), ElementsAre("file", "run"));
}

TEST_F(CheckpointTest, APlaceThatCannotBeWrittenIsRefused) {
  EXPECT_THAT(refused(folder_ + "/no/run"),
              HasSubstr(cat("cannot save a checkpoint at ", folder_, "/no/run: ", folder_,
                            "/no is no directory")));
  write(folder_ + "/file", {});
  EXPECT_THAT(refused(folder_ + "/file/run"), HasSubstr("/file is no directory"));
  EXPECT_THAT(refused("/proc/belfry"), HasSubstr("/proc/belfry.tmp-"));
  EXPECT_THAT(listed(folder_), ElementsAre("file"));
}

TEST_F(CheckpointTest, WhatIsNoCheckpointIsNotRestored) {
  const Model model(1);
  Session session(model.graph);
  const auto restore = [&] { restore_checkpoint(session, path_); };
  EXPECT_THAT(message_of<NotFoundError>(restore), HasSubstr("there is no checkpoint " + path_));
  write(path_, {});
  EXPECT_THAT(message_of<IoError>(restore), HasSubstr("run is no directory; a checkpoint is"));
  files_.remove(path_);
  files_.create_directory(path_);
  EXPECT_THAT(message_of<IoError>(restore), HasSubstr("holds no manifest.json"));
  write(file("manifest.json"), std::as_bytes(std::span("{\"name\": \"app\"}", 15)));
  EXPECT_THAT(message_of<IoError>(restore), HasSubstr("no manifest of a checkpoint"));
}

}  // namespace checkpoint_test
}  // namespace belfry
