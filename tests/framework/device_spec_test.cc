#include "belfry/framework/device_spec.h"

#include "belfry/tests/framework/framework_test_support.h"

namespace belfry {
namespace {

using ::testing::HasSubstr;

std::string canonical(std::string_view text) { return DeviceSpec(text).str(); }

TEST(DeviceSpec, PrintsTheCanonicalForm) {
  EXPECT_EQ(canonical(""), "");
  EXPECT_EQ(canonical("/"), "");
  EXPECT_EQ(canonical("/gpu:0"), "/device:GPU:0");
  EXPECT_EQ(canonical("gpu:0"), "/device:GPU:0");
  EXPECT_EQ(canonical("/GpU:0"), "/device:GPU:0");
  EXPECT_EQ(canonical("/gpu"), "/device:GPU:*");
  EXPECT_EQ(canonical("/cpu:*"), "/device:CPU:*");
  EXPECT_EQ(canonical("/device:gpu:0"), "/device:GPU:0");
  EXPECT_EQ(canonical("/device:Gpu:0"), "/device:Gpu:0");
  EXPECT_EQ(canonical("/device:XLA_GPU:1"), "/device:XLA_GPU:1");
  EXPECT_EQ(canonical("/device:GPU"), "/device:GPU:*");
  EXPECT_EQ(canonical("/gpu:01"), "/device:GPU:1");
  EXPECT_EQ(canonical("/job:worker/replica:1/task:2/device:CPU:3"),
            "/job:worker/replica:1/task:2/device:CPU:3");
  EXPECT_EQ(DeviceSpec::local("CPU", 3).str(), "/job:localhost/replica:0/task:0/device:CPU:3");
}

TEST(DeviceSpec, TakesPiecesInAnyOrderWithAnySlashes) {
  EXPECT_EQ(canonical("/gpu:2/job:worker"), "/job:worker/device:GPU:2");
  EXPECT_EQ(canonical("gpu:2//job:worker/"), "/job:worker/device:GPU:2");
  EXPECT_EQ(canonical("/task:1/replica:2"), "/replica:2/task:1");
}

TEST(DeviceSpec, TheLastOfARepeatedFieldWins) {
  EXPECT_EQ(canonical("/job:a/job:b"), "/job:b");
  EXPECT_EQ(canonical("/task:1/task:2"), "/task:2");
}

TEST(DeviceSpec, AStarLeavesAFieldOpen) {
  EXPECT_EQ(canonical("/task:*"), "");
  EXPECT_EQ(canonical("/job:*/replica:*/cpu:0"), "/device:CPU:0");
  EXPECT_EQ(canonical("/device:*:3"), "/device:*:3");
}

TEST(DeviceSpec, RefusesWhatItDoesNotUnderstandAndNamesIt) {
  const auto refusal = [](const char* text) {
    return message_of<InvalidArgument>([&] { DeviceSpec spec(text); });
  };
  EXPECT_THAT(refusal("/foo:1"), HasSubstr("device '/foo:1': unknown attribute: 'foo'"));
  EXPECT_THAT(refusal("/gpu:0/cpu:0"), HasSubstr("cannot specify multiple device types"));
  EXPECT_THAT(refusal("/gpu:-1"), HasSubstr("not '-1'"));
  EXPECT_THAT(refusal("/gpu:1x"), HasSubstr("not '1x'"));
  EXPECT_THAT(refusal("/gpu:"), HasSubstr("index must be a number"));
  EXPECT_THAT(refusal("/gpu:4294967296"), HasSubstr("not '4294967296'"));
  EXPECT_THAT(refusal("/task:a"), HasSubstr("task must be a number"));
  EXPECT_THAT(refusal("/job"), HasSubstr("unknown attribute: 'job'"));
  EXPECT_THAT(refusal("/job:"), HasSubstr("the job is empty"));
  EXPECT_THAT(refusal("/device::1"), HasSubstr("the device type is missing"));
  EXPECT_THAT(refusal("/gpu:0:1"), HasSubstr("unknown attribute: 'gpu'"));
}

TEST(DeviceSpec, MergesFieldByFieldAndTheInnerWins) {
  const auto merged = [](const char* outer, const char* inner) {
    return DeviceSpec(outer).merged_with(inner).str();
  };
  EXPECT_EQ(merged("/gpu:3", "/job:worker"), "/job:worker/device:GPU:3");
  EXPECT_EQ(merged("/job:ps/cpu:0", "/gpu:0"), "/job:ps/device:GPU:0");
  EXPECT_EQ(merged("/gpu:1", "/cpu"), "/device:CPU:1");
  EXPECT_EQ(merged("", "/cpu:1"), "/device:CPU:1");
  EXPECT_EQ(merged("/cpu:1", ""), "/device:CPU:1");
}

TEST(DeviceSpec, MatchesDevicesThatHaveEveryFieldPresent) {
  const DeviceSpec device = DeviceSpec::local("CPU", 1);
  for (const char* text : {"", "/cpu", "cpu:1", "/job:localhost", "/device:*:1", "/task:0/cpu:1"})
    EXPECT_TRUE(DeviceSpec(text).matches(device)) << text;
  for (const char* text : {"/cpu:0", "/gpu", "/job:ps", "/task:1", "/device:Cpu:1"})
    EXPECT_FALSE(DeviceSpec(text).matches(device)) << text;
  EXPECT_FALSE(DeviceSpec("cpu:0").matches("/cpu"));
}

DeviceSpec random_spec(std::mt19937& random) {
  DeviceSpec spec;
  if (draw(random, 2)) spec.job = draw(random, 2) ? "worker" : "ps_1";
  if (draw(random, 2)) spec.replica = draw(random, 4);
  if (draw(random, 2)) spec.task = draw(random, 1000);
  const char* const types[] = {"CPU", "GPU", "XLA_GPU", "Gpu"};
  if (draw(random, 2)) spec.type = types[draw(random, 4)];
  if (draw(random, 2)) spec.index = draw(random, 20);
  return spec;
}

TEST(DeviceSpec, ReadsBackWhatItPrints) {
  std::mt19937 random(1);
  for (int i = 0; i < 2000; ++i) {
    const DeviceSpec spec = random_spec(random);
    EXPECT_EQ(DeviceSpec(spec.str()), spec) << spec.str();
  }
}

TEST(DeviceSpec, MergingIsAssociative) {
  std::mt19937 random(2);
  for (int i = 0; i < 2000; ++i) {
    const DeviceSpec a = random_spec(random), b = random_spec(random), c = random_spec(random);
    EXPECT_EQ(a.merged_with(b).merged_with(c), a.merged_with(b.merged_with(c)));
    EXPECT_EQ(a.merged_with(a), a);
    EXPECT_TRUE(a.merged_with(b).empty() == (a.empty() && b.empty()));
  }
}

TEST(DeviceSpec, RefusesTextsOfAbsurdLength) {
  EXPECT_EQ(*DeviceSpec("/job:" + std::string(4091, 'a')).job, std::string(4091, 'a'));
  EXPECT_THROW(DeviceSpec("/job:" + std::string(4092, 'a')), InvalidArgument);
}

}  // namespace
}  // namespace belfry
