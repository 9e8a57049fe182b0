// Input: the text of the graph in a graph file. The file has a correct checksum, and the value 0
// for the constant c. What is read is written and read again.
#include <map>
#include <string>

#include "belfry/framework/base/crc32.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/checkpoint/checkpoint_manifest.h"
#include "belfry/framework/checkpoint/graph_file.h"
#include "belfry/tests/fuzz/target.h"

namespace {

using namespace belfry;

Safetensors file_with(const std::string& graph) {
  std::vector<StoredTensor> tensors{{.name = "c", .dtype = DType::kF32, .shape = {1}}};
  const std::string value(sizeof(float), '\0');
  std::uint32_t crc = crc32_of(std::as_bytes(std::span(graph)));
  crc = crc32_of(std::as_bytes(std::span(value)), crc);
  const std::map<std::string, std::string> metadata{
      {"format", "belfry graph"}, {"version", "1"}, {"graph", graph}, {"crc32", hex(crc, 8)}};
  const std::string file = lay_out_safetensors(tensors, metadata) + value;
  const auto bytes = std::as_bytes(std::span(file));
  return Safetensors({bytes.begin(), bytes.end()}, "graph");
}

}  // namespace

// Nodes take more than their text.
std::size_t belfry::test::largest_allowed(const std::uint8_t*, std::size_t size) {
  return mib_or_twice(16 * size);
}

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  test::may_refuse([&] {
    const GraphInFile read = read_graph(file_with({reinterpret_cast<const char*>(data), size}));
    if (read.ends.outputs.empty()) return;
    const std::string file = write_graph(read.ends);
    const auto bytes = std::as_bytes(std::span(file));
    const GraphInFile again = read_graph(Safetensors({bytes.begin(), bytes.end()}, "again"));
    test::check(again.ends.outputs.size() == read.ends.outputs.size(), "other outputs");
  });
  return 0;
}
