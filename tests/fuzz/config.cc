// Input: the file of --config.
#include <cstdlib>
#include <string>
#include <string_view>

#include <sys/mman.h>
#include <unistd.h>

#include "belfry/framework/base/text.h"
#include "belfry/tests/fuzz/target.h"
#include "belfry/trainers/program/flags.h"

namespace {

// Warnings of ten thousand configurations help nobody.
[[maybe_unused]] const int kQuiet = ::setenv("BELFRY_LOG", "error", 1);

// A file in memory, which has a name as others have.
class MemoryFile {
 public:
  MemoryFile(const std::uint8_t* data, std::size_t size)
      : descriptor_(::memfd_create("config", MFD_CLOEXEC)) {
    belfry::test::check(descriptor_ >= 0, "no file in memory");
    belfry::test::check(::write(descriptor_, data, size) == static_cast<ssize_t>(size),
                        "no memory for the file");
  }
  ~MemoryFile() { ::close(descriptor_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  std::string path() const { return belfry::cat("/proc/self/fd/", descriptor_); }

 private:
  int descriptor_;
};

}  // namespace

// Names and values are kept as arguments, and as flags; JSON keeps them as a tree, too.
std::size_t belfry::test::largest_allowed(const std::uint8_t*, std::size_t size) {
  return (std::size_t{1} << 20) + 64 * size;
}

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace belfry;
  const MemoryFile file(data, size);
  const std::string argument = "--config=" + file.path();
  const char* const arguments[] = {argument.c_str()};
  try {
    const TrainFlags flags = parse_flags(arguments, {.program = "fuzz"});
    test::check(!flags.help.empty() || !flags.trainer.devices.empty(), "no devices");
  } catch (const FlagError& error) {
    test::check(*error.what() != '\0', "refused without a reason");
  } catch (const InvalidArgument& error) {
    test::check(std::string_view(error.what()).starts_with("--"), "an error that names no flag");
  }
  return 0;
}
