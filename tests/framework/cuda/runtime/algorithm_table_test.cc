#include "belfry/framework/cuda/runtime/algorithm_table.h"

#include <gtest/gtest.h>

#include "belfry/framework/base/error.h"
#include "belfry/framework/cuda/kernels/variants.h"

namespace belfry::cuda {
namespace algorithm_table_test {

constexpr const char* kFile = R"({
  "belfry_algorithms": 1,
  "choices": {
    "Conv2d f32 x on NVIDIA H200, cuDNN 9.19.0": {
      "algorithm": 1,
      "workspace_bytes": 4096,
      "deterministic": true
    },
    "Conv2d f64 x on NVIDIA H200, cuDNN 9.19.0": {
      "algorithm": null
    },
    "Conv2dGradFilter f32 x on NVIDIA H200, cuDNN 9.19.0": {
      "algorithm": 0,
      "workspace_bytes": 3000000000,
      "deterministic": false
    }
  }
}
)";

TEST(AlgorithmTable, IsWrittenAsDocumented) {
  AlgorithmTable table;
  table.add("Conv2dGradFilter f32 x on NVIDIA H200, cuDNN 9.19.0",
            CudnnAlgorithm{0, 3000000000, false});
  table.add("Conv2d f64 x on NVIDIA H200, cuDNN 9.19.0", {});
  table.add("Conv2d f32 x on NVIDIA H200, cuDNN 9.19.0", CudnnAlgorithm{1, 4096, true});
  EXPECT_EQ(table.str(), kFile);
  EXPECT_EQ(AlgorithmTable().str(), "{\n  \"belfry_algorithms\": 1,\n  \"choices\": {}\n}\n");
}

TEST(AlgorithmTable, IsReadAsWritten) {
  AlgorithmTable table;
  table.read(kFile, "a.json");
  EXPECT_EQ(table.str(), kFile);
  const auto* found = table.find("Conv2d f32 x on NVIDIA H200, cuDNN 9.19.0");
  ASSERT_NE(found, nullptr);
  EXPECT_EQ(*found, (CudnnAlgorithm{1, 4096, true}));
  found = table.find("Conv2d f64 x on NVIDIA H200, cuDNN 9.19.0");
  ASSERT_NE(found, nullptr);
  EXPECT_EQ(*found, std::nullopt);
  EXPECT_EQ(table.find("Conv2d f32 x on NVIDIA H100, cuDNN 9.19.0"), nullptr);
}

TEST(AlgorithmTable, KeepsTheFirstChoice) {
  AlgorithmTable table;
  const auto& first = table.add("a", CudnnAlgorithm{1, 64, true});
  EXPECT_EQ(&table.add("a", CudnnAlgorithm{2, 128, true}), &first);
  EXPECT_EQ(first->number, 1);
  table.read(R"({"belfry_algorithms": 1, "choices": {"a": {"algorithm": null},
                 "b": {"algorithm": null}}})",
             "a.json");
  EXPECT_EQ(first->number, 1);
  EXPECT_NE(table.find("b"), nullptr);
}

std::string refusal(const std::string& text) {
  AlgorithmTable table;
  table.add("a", {});
  try {
    table.read(text, "/tmp/a.json");
  } catch (const InvalidArgument& error) {
    EXPECT_EQ(table.find("b"), nullptr) << "something of it was taken";
    return error.what();
  }
  return "(nothing thrown)";
}

// A file with entry b, which is right, and entry c.
std::string with(const std::string& entry) {
  return R"({"belfry_algorithms": 1, "choices": {"b": {"algorithm": null}, "c": )" + entry + "}}";
}

TEST(AlgorithmTable, RefusesFilesThatAreNone) {
  const std::string none = "/tmp/a.json: no file of algorithms: ";
  const std::string so = "; remove it, and it is written anew";
  EXPECT_EQ(refusal("").substr(0, none.size()), none);
  EXPECT_EQ(refusal("[]").substr(0, none.size()), none);
  EXPECT_EQ(refusal("{}"),
            none + "line 1, column 1: there is no member 'belfry_algorithms' in this object" + so);
  EXPECT_EQ(refusal(R"({"belfry_algorithms": 2, "choices": {}})"),
            none + "\"belfry_algorithms\" is not 1" + so);
  EXPECT_EQ(refusal(R"({"belfry_algorithms": 1})"),
            none + "line 1, column 1: there is no member 'choices' in this object" + so);
}

TEST(AlgorithmTable, RefusesWrongEntriesByName) {
  const std::string none = "/tmp/a.json: no file of algorithms: ";
  const std::string so = " of 'c'; remove it, and it is written anew";
  EXPECT_EQ(refusal(with("{}")),
            none + "line 1, column 69: there is no member 'algorithm' in this object" + so);
  EXPECT_EQ(refusal(with(R"({"algorithm": 1, "deterministic": true})")),
            none + "line 1, column 69: there is no member 'workspace_bytes' in this object" + so);
  EXPECT_EQ(refusal(with(R"({"algorithm": 1, "workspace_bytes": 0})")),
            none + "line 1, column 69: there is no member 'deterministic' in this object" + so);
  EXPECT_EQ(refusal(with(R"({"algorithm": -1, "workspace_bytes": 0, "deterministic": true})")),
            none + "\"algorithm\" is -1" + so);
  EXPECT_EQ(
      refusal(with(R"({"algorithm": 3000000000, "workspace_bytes": 0, "deterministic": true})")),
      none + "\"algorithm\" is 3000000000" + so);
  EXPECT_EQ(refusal(with(R"({"algorithm": 1, "workspace_bytes": -64, "deterministic": true})")),
            none + "\"workspace_bytes\" is -64" + so);
  EXPECT_EQ(refusal(with(R"({"algorithm": 1, "workspace_bytes": 64, "deterministic": 1})")),
            none + "\"deterministic\" is 1" + so);
  EXPECT_EQ(refusal(with(R"({"algorithm": "1", "workspace_bytes": 64, "deterministic": true})")),
            none + "line 1, column 83: expected a whole number, found the text \"1\"" + so);
}

TEST(AlgorithmTable, SwitchesVariants) {
  constexpr const char* kOff =
      "{\n  \"belfry_algorithms\": 1,\n  \"choices\": {},\n  "
      "\"variants\": {\n    \"batch_norm.mask_from_x\": false\n  }\n}\n";
  AlgorithmTable table;
  table.read(kOff, "a.json");
  EXPECT_FALSE(Variant::all().at("batch_norm.mask_from_x"));
  EXPECT_EQ(table.str(), kOff);
  table.read(R"({"belfry_algorithms": 1, "choices": {}})", "b.json");
  EXPECT_TRUE(Variant::all().at("batch_norm.mask_from_x")) << "what a file leaves out is on";
  const std::string unknown =
      refusal(R"({"belfry_algorithms": 1, "choices": {}, "variants": {"x": false}})");
  EXPECT_NE(unknown.find("\"variants\": no kernel has a variant 'x'"), unknown.npos) << unknown;
  EXPECT_NE(refusal(R"({"belfry_algorithms": 1, "choices": {}, "variant": {}})")
                .find("\"variant\" is no member of it"),
            std::string::npos);
  EXPECT_EQ(refusal(R"({"belfry_algorithms": 1, "choices": {},
                        "variants": {"batch_norm.mask_from_x": 0}})"),
            "/tmp/a.json: no file of algorithms: \"batch_norm.mask_from_x\" is 0; remove it, and "
            "it is written anew");
}

TEST(AlgorithmTable, KnowsWhatTheLogHasHeard) {
  AlgorithmTable table;
  EXPECT_TRUE(table.first("a"));
  EXPECT_FALSE(table.first("a"));
  EXPECT_TRUE(table.first("b"));
}

}  // namespace algorithm_table_test
}  // namespace belfry::cuda
