// Input: the stats.jsonl of a run, which is read in two parts and drawn.
#include <string>

#include "belfry/tests/fuzz/target.h"
#include "belfry/trainers/commands/plot_runs.h"

std::size_t belfry::test::largest_allowed(const std::uint8_t*, std::size_t size) {
  return mib_or_twice(size);
}

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace belfry;
  const std::vector<std::byte> file = test::bytes_of({data, size});
  test::may_refuse([&] {
    StatsReader reader("stats.jsonl", "loss");
    reader.add(std::span(file).first(size / 2));
    reader.add(std::span(file).subspan(size / 2));
    const RunStats stats = reader.finish();
    const std::string svg = plot_runs(std::span(&stats, 1));
    test::check(svg.find("nan") == svg.npos && svg.find("inf") == svg.npos, "no place to draw at");
  });
  return 0;
}
