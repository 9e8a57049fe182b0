// Reads files of a run directory.
#pragma once
#include <fstream>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace belfry::test {

inline nlohmann::json summary_of(const std::string& run) {
  std::ifstream file(run + "/summary.json");
  return nlohmann::json::parse(file);
}

// The lines of stats.jsonl without values that depend on time and on the process.
inline std::vector<std::string> course_of(const std::string& run) {
  std::ifstream file(run + "/stats.jsonl");
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) {
    auto json = nlohmann::json::parse(line);
    json.erase("seconds");
    json.erase("examples_per_second");
    json.erase("host_bytes");
    lines.push_back(json.dump());
  }
  return lines;
}

}  // namespace belfry::test
