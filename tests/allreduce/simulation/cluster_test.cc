// Files of machines and workloads.
#include "belfry/allreduce/simulation/cluster.h"

#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/allreduce/simulation/workload.h"
#include "belfry/framework/base/error.h"
#include "belfry/framework/base/file_system.h"
#include "belfry/framework/base/text.h"

namespace belfry {
namespace cluster_test {

using testing::HasSubstr;

JsonValue json_of(const std::filesystem::path& path) {
  const std::vector<std::byte> bytes = local_file_system().read(path.string());
  return JsonValue::parse({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

template <class Visit>
int each_file(const std::string& folder, const Visit& visit) {
  int count = 0;
  for (const auto& file :
       std::filesystem::directory_iterator(std::string(BELFRY_SOURCE_DIR) + "/docs/" + folder)) {
    SCOPED_TRACE(file.path().string());
    visit(json_of(file.path()));
    ++count;
  }
  return count;
}

std::string refusal(const std::string& device, const std::string& host) {
  try {
    parse_cluster(JsonValue::parse(cat(R"({"name": "x", "sources": {"a": "a page"}, "device": {)",
                                       device, R"(}, "host": {)", host, "}}")));
  } catch (const Error& error) {
    return error.what();
  }
  return "(accepted)";
}

TEST(ClusterFiles, OfTheDocumentsAreRead) {
  const int machines = each_file("machines", [](const JsonValue& json) {
    const ClusterDescription cluster = parse_cluster(json);
    EXPECT_FALSE(cluster.flops.empty());
    EXPECT_TRUE(cluster.has_network());
    EXPECT_GT(cluster.link.rate.at(1e6), 1e9);
  });
  EXPECT_GE(machines, 10);
  const int workloads = each_file("workloads", [](const JsonValue& json) {
    const TrainingWorkload work = parse_workload(json);
    EXPECT_GT(work.parameters(), 1e6);
    EXPECT_GT(work.flops(), 1e8);
    EXPECT_GT(work.elements(), 1e5);
  });
  EXPECT_GE(workloads, 7);
}

TEST(ClusterFiles, AreThoseThatTablesName) {
  const std::filesystem::path docs = std::filesystem::path(BELFRY_SOURCE_DIR) / "docs";
  const JsonValue tables = json_of(docs / "tables/scaling.json");
  for (const JsonValue& table : tables.items()) {
    EXPECT_TRUE(
        std::filesystem::exists(docs / "machines" / cat(table.at("machine").text(), ".json")));
    EXPECT_TRUE(
        std::filesystem::exists(docs / "workloads" / cat(table.at("workload").text(), ".json")));
    EXPECT_FALSE(table.at("source").text().empty());
  }
}

TEST(ClusterFiles, WithoutASourceAreRefused) {
  const std::string host = R"("devices": {"is": 1, "from": "a"})";
  EXPECT_EQ(refusal("", host), "(accepted)");
  EXPECT_THAT(refusal(R"("launch_us": 3)", host), HasSubstr("object"));
  EXPECT_THAT(refusal(R"("launch_us": {"is": 3})", host), HasSubstr("no member 'from'"));
  EXPECT_THAT(refusal(R"("launch_us": {"is": 3, "from": "b"})", host),
              HasSubstr("the source \"b\" is not among \"sources\""));
  EXPECT_THAT(refusal(R"("lunch_us": {"is": 3, "from": "a"})", host),
              HasSubstr("unknown member \"lunch_us\"; did you mean 'launch_us'"));
  EXPECT_THAT(refusal(R"("launch_us": {"is": -3, "from": "a"})", host), HasSubstr("at least 0"));
}

TEST(ClusterFiles, NeedDevicesAndTheirLinks) {
  EXPECT_THAT(refusal("", ""), HasSubstr("no member 'devices'"));
  EXPECT_THAT(refusal("", R"("devices": {"is": 2, "from": "a"})"), HasSubstr("needs \"gbps\""));
  EXPECT_THAT(refusal("", R"("devices": {"is": 0, "from": "a"})"), HasSubstr("not between 1 and"));
  EXPECT_THAT(refusal("", R"("devices": {"is": 1, "from": "a"},
                            "bridge_gbps": {"is": 1, "from": "a"})"),
              HasSubstr("need each other"));
  EXPECT_THAT(refusal(R"("crowding": {"is": 0.9, "from": "a"})", ""), HasSubstr("at least 1"));
  EXPECT_THAT(refusal("", R"("devices": {"is": 2, "from": "a"},
                            "gbps": {"is": [[9, 1], [4, 1]], "from": "a"})"),
              HasSubstr("do not grow"));
}

TEST(WorkloadFiles, MayBeSummariesOfModels) {
  const TrainingWorkload work = parse_workload(JsonValue::parse(R"({"batch_size": 4, "layers": [
        {"name": "dense", "output": "f32[4,10]", "parameters": 70, "multiply_adds": 240,
         "bytes": 160}], "parameters": 70})"),
                                               "mine");
  EXPECT_EQ(work.name, "mine");
  ASSERT_EQ(work.layers.size(), 1u);
  EXPECT_EQ(work.layers[0].parameters, 70);
  EXPECT_EQ(work.layers[0].flops, 120);
  EXPECT_EQ(work.layers[0].elements, 10);
}

TEST(WorkloadFiles, MayBePlans) {
  const TrainingWorkload work{.sample_bytes = 8,
                              .launches = {{.name = "gradient", .parameters = 3, .flops = 4},
                                           {.name = "update", .after_sums = true, .bytes = 5}},
                              .batch = 16,
                              .device_bytes = 9};
  const JsonValue plan = JsonValue::object().set("work", to_json(work));
  const TrainingWorkload read = parse_workload(JsonValue::parse(plan.str()), "mine");
  EXPECT_EQ(read.name, "mine");
  EXPECT_EQ(to_json(read).str(), to_json(work).str());
  EXPECT_EQ(read.parameters(), 3);
}

TEST(WorkloadFiles, WithoutLayersAreRefused) {
  EXPECT_THROW(parse_workload(JsonValue::parse(
                   R"({"name": "x", "sample": "image", "sample_bytes": 4, "layers": []})")),
               InvalidArgument);
}

}  // namespace cluster_test
}  // namespace belfry
