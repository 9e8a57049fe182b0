// Input: the command line of a training program, an argument a line.
#include "belfry/trainers/program/flags.h"

#include <cstdlib>
#include <string>
#include <string_view>

#include "belfry/framework/base/text.h"
#include "belfry/tests/fuzz/target.h"

namespace {

constexpr std::size_t kMostArguments = 64;

// Warnings of ten thousand command lines help nobody.
[[maybe_unused]] const int kQuiet = ::setenv("BELFRY_LOG", "error", 1);

}  // namespace

// Each argument is kept as it is, as a value, and as it is shown.
std::size_t belfry::test::largest_allowed(const std::uint8_t*, std::size_t size) {
  return (std::size_t{1} << 20) + 4 * size;
}

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace belfry;
  std::vector<std::string> texts;
  for (const std::string_view line :
       split(std::string_view(reinterpret_cast<const char*>(data), size), '\n')) {
    if (texts.size() == kMostArguments) break;
    texts.emplace_back(line.substr(0, line.find('\0')));  // as arguments are
  }
  std::vector<const char*> arguments;
  for (const std::string& text : texts) arguments.push_back(text.c_str());
  try {
    const TrainFlags flags = parse_flags(arguments, {.program = "fuzz"});
    test::check(!flags.help.empty() || !flags.trainer.devices.empty(), "no devices");
    test::check(!flags.help.empty() || flags.trainer.batch_size >= 1, "no examples");
  } catch (const FlagError& error) {
    test::check(*error.what() != '\0', "refused without a reason");
  } catch (const InvalidArgument& error) {
    test::check(std::string_view(error.what()).starts_with("--"), "an error that names no flag");
  }
  return 0;
}
