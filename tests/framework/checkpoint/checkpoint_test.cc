#include "belfry/framework/checkpoint/checkpoint.h"

#include "belfry/framework/base/text.h"
#include "belfry/framework/checkpoint/safetensors.h"
#include "belfry/tests/framework/base/memory_file_system.h"
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
  EXPECT_FALSE(info.is_old);
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

TEST_F(CheckpointTest, IsFoundUnderItsOldNameWhereThereIsNoNewer) {
  save();
  files_.rename(path_, path_ + ".belfry-old");
  const Model model(1);
  Session session(model.graph);
  const CheckpointInfo info = restore_checkpoint(session, path_);
  EXPECT_TRUE(info.is_old);
  EXPECT_EQ(info.path, path_ + ".belfry-old");
  EXPECT_EQ(session.read(model.w[0]), kWeightValues);
  files_.create_directory(path_);  // empty: no newer one either
  EXPECT_TRUE(restore_checkpoint(session, path_).is_old);
  save();
  EXPECT_THAT(listed(folder_), ElementsAre("run"));
}

TEST_F(CheckpointTest, ReplacesTheOneBeforeAndWhatAKilledWriterLeft) {
  save();
  const std::string stale = path_ + ".tmp-1-2";
  files_.create_directory(stale);
  write(stale + "/model.safetensors", {});
  check_checkpoint_path(path_);
  EXPECT_THAT(listed(folder_), ElementsAre("run", "run.tmp-1-2"));
  save();
  EXPECT_THAT(listed(folder_), ElementsAre("run"));
}

TEST_F(CheckpointTest, TheRemovalOfLeftoversSparesWhatIsNotOurs) {
  for (const char* name :
       {"run.tmp-backup", "run.tmp-1", "run.tmp-1-", "run.tmp--1", "run.tmp-1-2-3", "run.tmp-1-2x",
        "other.tmp-1-2", "run.tmp-3-4", "precious"})
    files_.create_directory(cat(folder_, "/", name));
  write(folder_ + "/run.tmp-3-4/cat.jpg", {});
  write(folder_ + "/run.tmp-5-6", {});
  write(folder_ + "/precious/model.safetensors", {});
  std::filesystem::create_directory_symlink(folder_ + "/precious", path_ + ".tmp-7-8");
  std::vector<std::string> names = listed(folder_);
  save();
  names.insert(names.begin() + 2, "run");  // after other.tmp-1-2 and precious
  EXPECT_EQ(listed(folder_), names);
  EXPECT_THAT(listed(folder_ + "/precious"), ElementsAre("model.safetensors"));
}

// "cp -r run run.old" keeps a copy.
TEST_F(CheckpointTest, ASaveSparesTheCopyThatItsUserMade) {
  save();
  std::filesystem::copy(path_, path_ + ".old");
  check_checkpoint_path(path_);
  save();
  save();
  EXPECT_THAT(listed(folder_), ElementsAre("run", "run.old"));
  std::filesystem::remove_all(path_);
  EXPECT_EQ(inspect_checkpoint(path_ + ".old").step, 17u);
  const auto restore = [&] { inspect_checkpoint(path_); };
  EXPECT_THAT(message_of<NotFoundError>(restore), HasSubstr("there is no checkpoint " + path_));
}

TEST_F(CheckpointTest, PathsMayBeRelativeEndInASlashBeLinksAndExistEmpty) {
  const auto before = std::filesystem::current_path();
  std::filesystem::current_path(folder_);
  path_ = "./sub/../run//";
  files_.create_directory("sub");
  save();
  save();
  std::filesystem::current_path(before);
  EXPECT_THAT(listed(folder_), ElementsAre("run", "sub"));
  std::filesystem::create_directory_symlink(folder_ + "/sub", folder_ + "/link");
  path_ = folder_ + "/link";
  save();
  save();
  EXPECT_THAT(listed(folder_), ElementsAre("link", "run", "sub"));
  EXPECT_EQ(inspect_checkpoint(folder_ + "/sub").step, 17u);
  EXPECT_EQ(inspect_checkpoint(path_).path, folder_ + "/sub");
}

TEST_F(CheckpointTest, ALinkThatLeadsToNothingYetLeadsToItsCheckpoint) {
  files_.create_directory(folder_ + "/sub");
  std::filesystem::create_symlink("sub/real", path_);
  save();
  EXPECT_THAT(listed(folder_), ElementsAre("run", "sub"));
  EXPECT_TRUE(std::filesystem::is_symlink(path_));
  EXPECT_EQ(inspect_checkpoint(path_).path, folder_ + "/sub/real");
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
  save_checkpoint(session, path_);
  EXPECT_EQ(session.read(model.w[0]), kWeightValues);
}

TEST_F(CheckpointTest, NothingElseIsOverwritten) {
  write(path_, std::as_bytes(std::span("hello", 5)));
  EXPECT_THAT(refused(path_), HasSubstr(path_ + " is no directory, and a checkpoint"));
  EXPECT_EQ(files_.read(path_).size(), 5u);
  EXPECT_THAT(refused("/dev/null"), HasSubstr("/dev/null is no directory, and a checkpoint"));
  const std::string photos = folder_ + "/photos";
  files_.create_directory(photos);
  write(photos + "/manifest.json", {});
  EXPECT_THAT(refused(photos), HasSubstr("neither a whole checkpoint nor empty"));
  write(photos + "/cat.jpg", {});
  EXPECT_THAT(refused(photos), HasSubstr(photos + " is a directory with 'cat.jpg'"));
  std::filesystem::rename(photos, photos + ".belfry-old");
  EXPECT_THAT(refused(photos), HasSubstr(photos + ".belfry-old is a directory with 'cat.jpg'"));
  EXPECT_THAT(listed(folder_), ElementsAre("photos.belfry-old", "run"));
}

TEST_F(CheckpointTest, APlaceThatCannotBeWrittenIsRefusedEarly) {
  EXPECT_THAT(refused(folder_ + "/no/run"),
              HasSubstr(cat("cannot save a checkpoint at ", folder_, "/no/run: ", folder_,
                            "/no does not exist")));
  write(folder_ + "/file", {});
  EXPECT_THAT(refused(folder_ + "/file/run"), HasSubstr("/file"));
  EXPECT_THAT(message_of<IoError>([] { check_checkpoint_path("/proc/belfry"); }),
              AllOf(HasSubstr("/proc/belfry.lock: cannot lock: "),
                    HasSubstr("; let this process write to the folder /proc, or save elsewhere")));
  EXPECT_THROW(check_checkpoint_path(""), InvalidArgument);
  EXPECT_THROW(check_checkpoint_path("/"), IoError);
  check_checkpoint_path(path_);
  EXPECT_THAT(listed(folder_), ElementsAre("file"));
}

TEST_F(CheckpointTest, WhatIsNoCheckpointIsNotRestored) {
  const Model model(1);
  Session session(model.graph);
  const auto restore = [&] { restore_checkpoint(session, path_); };
  EXPECT_THAT(message_of<NotFoundError>(restore),
              HasSubstr(cat("there is no checkpoint ", path_, ", nor ", path_, ".belfry-old")));
  write(path_, {});
  EXPECT_THAT(message_of<IoError>(restore), HasSubstr("run is no directory; a checkpoint is"));
  files_.remove(path_);
  files_.create_directory(path_);
  EXPECT_THAT(message_of<IoError>(restore), HasSubstr("holds no manifest.json"));
  write(file("manifest.json"), std::as_bytes(std::span("{\"name\": \"app\"}", 15)));
  EXPECT_THAT(message_of<IoError>(restore), HasSubstr("no manifest of a checkpoint"));
}

// Saves beside them would use and delete these names.
TEST_F(CheckpointTest, NamesThatSavesUseAreRefused) {
  for (const char* name : {"run.belfry-old", "run.lock", "run.tmp-12-345"})
    EXPECT_THAT(refused(cat(folder_, "/", name)), HasSubstr("use another name")) << name;
  save();
  EXPECT_THAT(refused(path_ + "/inner"), HasSubstr(cat(path_, " is a checkpoint itself")));
  EXPECT_THAT(listed(folder_), ElementsAre("run"));
}

// The foreign file appears at any call of the save. The save is refused, or leaves the file where
// the old checkpoint is.
TEST(CheckpointFolder, KeepsAForeignFileThatAppearsDuringASave) {
  const Model model(1);
  Session session(model.graph);
  int kept = 0;
  for (int call = 0;; ++call) {
    MemoryFileSystem disk("/d");
    save_checkpoint(session, "/d/run", JsonValue::object(), disk);
    bool made = false;
    disk.at_call(call, [&](MemoryFileSystem& at) {
      if (!at.exists("/d/run")) return;
      at.create("/d/run/note")->close();
      made = true;
    });
    try {
      save_checkpoint(session, "/d/run", JsonValue::object(), disk);
    } catch (const IoError&) {
    }
    if (disk.waits()) break;
    if (!made) continue;
    ++kept;
    EXPECT_TRUE(disk.exists("/d/run/note") || disk.exists("/d/run.belfry-old/note")) << call;
  }
  EXPECT_GT(kept, 10);
}

}  // namespace checkpoint_test
}  // namespace belfry
