#include "belfry/framework/graph/device_spec.h"

#include "belfry/framework/base/text.h"
#include "belfry/tests/framework/framework_test_support.h"

namespace belfry {
namespace device_spec_test {

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
  EXPECT_EQ(canonical("/device:GPU"), "/device:GPU:*");  // TensorFlow's runtime; Python refuses it
  EXPECT_EQ(canonical("/gpu"), "/device:GPU:*");
  EXPECT_EQ(canonical("/gpu:01"), "/device:GPU:1");
  EXPECT_EQ(canonical("/job:worker/replica:1/task:2/device:CPU:3"),
            "/job:worker/replica:1/task:2/device:CPU:3");
  EXPECT_EQ(DeviceSpec::local("CPU", 3).str(), "/job:localhost/replica:0/task:0/device:CPU:3");
}

TEST(DeviceSpec, PrintsTypeAndIndexAloneInShort) {
  EXPECT_EQ(DeviceSpec::local("CPU", 3).short_str(), "CPU:3");
  EXPECT_EQ(DeviceSpec("/job:worker/gpu").short_str(), "GPU:*");
  EXPECT_EQ(DeviceSpec("/device:*:1").short_str(), "*:1");
  EXPECT_EQ(DeviceSpec("/job:worker").short_str(), "");
}

// TensorFlow 1.15.5: tf.DeviceSpec(device_type=t, device_index=1), or device_type set later, prints
// /device:CPU:1 for cpu and CPU, /device:GPU:1 for gpu and GPU, and Cpu, Gpu and gPu as they are.
TEST(DeviceSpec, TakesTypesThatAreSetByHandAsThoseItReads) {
  for (const char* type : {"cpu", "CPU", "gpu", "GPU", "Cpu", "Gpu", "gPu", "XLA_GPU", "tpu"}) {
    DeviceSpec spec;
    spec.type = type;
    spec.index = 1;
    const DeviceSpec read(cat("/device:", type, ":1"));
    EXPECT_EQ(spec, read);
    EXPECT_EQ(spec.str(), read.str());
    EXPECT_TRUE(spec.matches(DeviceSpec::local(type, 1)));
    EXPECT_EQ(DeviceSpec("/job:a").merged_with(spec),
              DeviceSpec(cat("/job:a/device:", type, ":1")));
  }
  DeviceSpec spec;
  spec.type = "cpu";
  EXPECT_EQ(spec.str(), "/device:CPU:*");
  EXPECT_TRUE(spec.matches("/job:localhost/replica:0/task:0/device:CPU:3"));
  spec.type = std::string("gpu");
  EXPECT_TRUE(spec.is_gpu());
  EXPECT_EQ(spec.type, "gpu");
  EXPECT_EQ(spec.type, "GPU");
  EXPECT_NE(spec.type, "Gpu");
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

// TensorFlow's runtime does the same. Its Python takes a job's star as a letter, and refuses
// others.
TEST(DeviceSpec, AStarLeavesAFieldOpen) {
  EXPECT_EQ(canonical("/task:*"), "");
  EXPECT_EQ(canonical("/job:*/replica:*/cpu:0"), "/device:CPU:0");
  EXPECT_EQ(canonical("/device:*:3"), "/device:*:3");
}

TEST(DeviceSpec, RefusesWhatItDoesNotUnderstandAndNamesIt) {
  const auto refusal = [](const char* text) {
    return message_of<InvalidArgument>([&] { DeviceSpec spec(text); });
  };
  EXPECT_THAT(refusal("/foo:1"), HasSubstr("Unknown attribute: 'foo' in '/foo:1'"));
  EXPECT_THAT(refusal("/gpu:0/cpu:0"),
              HasSubstr("Cannot specify multiple device types: /gpu:0/cpu:0"));
  EXPECT_THAT(refusal("/gpu:0/gpu:0"), HasSubstr("Cannot specify multiple device types"));
  EXPECT_THAT(refusal("/device:*:3/gpu:1"), HasSubstr("Cannot specify multiple device types"));
  EXPECT_THAT(refusal("/gpu:-1"), HasSubstr("not '-1'"));  // TensorFlow checks no range
  EXPECT_THAT(refusal("/gpu:1x"), HasSubstr("not '1x'"));
  EXPECT_THAT(refusal("/gpu:"), HasSubstr("index must be a number"));
  EXPECT_THAT(refusal("/gpu:4294967296"), HasSubstr("not '4294967296'"));
  EXPECT_THAT(refusal("/task:a"), HasSubstr("task must be a number"));
  EXPECT_THAT(refusal("/job"), HasSubstr("Unknown attribute: 'job' in '/job'"));
  EXPECT_THAT(refusal("/job:a:b"), HasSubstr("Unknown attribute: 'job'"));
  EXPECT_THAT(refusal("/job:"), HasSubstr("the job is empty"));
  EXPECT_THAT(refusal("/device::1"), HasSubstr("the device type is missing"));
  EXPECT_THAT(refusal("/gpu:0:1"), HasSubstr("Unknown attribute: 'gpu'"));
  EXPECT_THAT(refusal("/replica:-1"), HasSubstr("replica must be a number"));
  EXPECT_THAT(refusal("/task:2147483648"), HasSubstr("not '2147483648'"));
  EXPECT_EQ(canonical("/task:2147483647"), "/task:2147483647");
  EXPECT_EQ(canonical("/cpu"), "/device:CPU:*");
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

TEST(DeviceSpec, FullNamesAnswerToTheLegacySpelling) {
  EXPECT_EQ(DeviceSpec("/job:localhost/replica:0/task:0/cpu:0"),
            DeviceSpec("/job:localhost/replica:0/task:0/device:CPU:0"));
  EXPECT_EQ(DeviceSpec("/job:localhost/replica:0/task:0/cpu:0"), DeviceSpec::local("cpu", 0));
}

// Matches [A-Za-z][A-Za-z0-9_]*.
std::string random_word(std::mt19937& random) {
  const std::string_view letters =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_";
  std::string word(1, letters[static_cast<std::size_t>(draw(random, 52))]);
  for (int i = draw(random, 8); i > 0; --i)
    word += letters[static_cast<std::size_t>(draw(random, 63))];
  return word;
}

std::string random_type(std::mt19937& random) {
  const char* const common[] = {"CPU", "GPU", "XLA_GPU", "Gpu"};
  const std::string type = draw(random, 2) ? common[draw(random, 4)] : random_word(random);
  return type == "cpu" || type == "gpu" ? "CPU" : type;  // as parsing has them
}

DeviceSpec random_spec(std::mt19937& random) {
  DeviceSpec spec;
  if (draw(random, 2)) spec.job = random_word(random);
  if (draw(random, 2)) spec.replica = draw(random, 4);
  if (draw(random, 2)) spec.task = draw(random, 2) ? draw(random, 1000) : 2147483647;
  if (draw(random, 2)) spec.type = random_type(random);
  if (draw(random, 2)) spec.index = draw(random, 20);
  return spec;
}

TEST(DeviceSpec, ReadsBackWhatItPrints) {
  std::mt19937 random(1);
  for (int i = 0; i < 5000; ++i) {
    const DeviceSpec spec = random_spec(random);
    EXPECT_EQ(DeviceSpec(spec.str()), spec) << spec.str();
    EXPECT_EQ(DeviceSpec(spec.str()).str(), spec.str());
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

}  // namespace device_spec_test
}  // namespace belfry
