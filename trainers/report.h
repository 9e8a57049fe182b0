// The results of a training program, for people and for other programs.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "belfry/framework/device_spec.h"
#include "belfry/framework/file_system.h"

namespace belfry {

struct Report {
  std::string program;
  std::vector<DeviceSpec> devices;
  std::string trainer, allreduce;  // allreduce "" if nothing is combined
  int batch_size = 0;              // per tower
  std::uint64_t seed = 0;
  int threads = 0;
  std::int64_t steps = 0;  // complete
  int epochs = 0;          // complete
  double seconds = 0;      // from the data being loaded to the last evaluation
  double examples_per_second = 0;
  double loss = 0;                      // of the last step, mean over towers
  std::optional<double> test_accuracy;  // fraction
  std::string params_hash, state_hash;
  bool replicas_equal = true;
  std::map<std::string, std::int64_t> peak_bytes;  // by full name of the device
};

// One JSON object with a member per field above. What does not exist (allreduce, test_accuracy),
// and numbers that are not finite, are null.
std::string to_json(const Report& report);

// A table for the end of a program's output.
std::string to_table(const Report& report);

// Where to write results, checked before there are any.
class ReportFile {
 public:
  // Throws IoError if `path` cannot be written. Does not change a file that exists.
  ReportFile(FileSystem& files, std::string path);

  // Replaces the file as a whole; devices such as /dev/stdout are written to as they are.
  void write(const std::string& text);
  bool is_stdout() const { return target_ == Target::kStdout; }

 private:
  enum class Target { kStdout, kStream, kFile };

  FileSystem& files_;
  std::string path_;
  Target target_;
};

}  // namespace belfry
