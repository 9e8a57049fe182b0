// Input: the stats.jsonl of a run, which is read in two parts and drawn.
#include <string>
#include <vector>

#include "belfry/tests/fuzz/target.h"
#include "belfry/trainers/commands/plot_runs.h"

std::size_t belfry::test::largest_allowed(const std::uint8_t*, std::size_t size) {
  return mib_or_twice(size);
}

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace belfry;
  const std::vector<std::byte> file = test::bytes_of({data, size});
  test::may_refuse([&] {
    const std::vector<std::string> metrics = {"loss"};
    StatsReader reader("stats.jsonl", metrics);
    reader.add(std::span(file).first(size / 2));
    reader.add(std::span(file).subspan(size / 2));
    const RunStats stats = reader.finish();
    const std::string commands = plot_runs(std::span(&stats, 1)).commands;
    test::check(commands.find("nan") == commands.npos && commands.find("inf") == commands.npos,
                "no place to draw at");
  });
  return 0;
}
