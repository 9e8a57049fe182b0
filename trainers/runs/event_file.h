// Event files, which TensorBoard reads. A file is a row of records as in a TFRecord file:
//   u64 length   u32 masked CRC-32C of the length   data   u32 masked CRC-32C of the data
// The data is the message Event of TensorFlow's event.proto, which proto_message.h encodes.
//
// TensorBoard reads the files of a directory in the order of their names and never goes back. So
// each run has its own file, and names end in a number that grows: events.out.tfevents.00000001 and
// so on. They hold neither time nor host, which would come first and need not grow.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "belfry/framework/base/file_system.h"
#include "belfry/trainers/runs/histogram.h"
#include "belfry/trainers/runs/proto_message.h"

namespace belfry {

// Seconds since 1970.
double unix_seconds();

// Whether an EventFile gives its file such a `name`. Other programs put hosts and times into
// theirs.
bool is_event_file(std::string_view name);

// One call writes each record to the file; none is held back. So if a process is killed, only the
// last record can be cut. Nothing is synced. All throw IoError naming the file.
class EventFile {
 public:
  using Clock = std::function<double()>;  // unix_seconds()

  // Makes the directory and the next file in it, which begins with a restart(). One process at a
  // time writes to a directory.
  EventFile(FileSystem& files, const std::string& directory, std::int64_t first_step,
            Clock clock = unix_seconds);
  const std::string& path() const { return path_; }

  // From here on, TensorBoard drops all earlier records of `step` and the steps after it; only
  // later records count. A run that resumes after N steps passes N + 1.
  void restart(std::int64_t step);

  // Both add to the next record, which write() ends. Nothing is written if nothing was added.
  void add(std::string_view tag, double value);  // becomes an f32
  void add(std::string_view tag, const Histogram& histogram);
  void write(std::int64_t step);

 private:
  ProtoMessage& new_event();
  void append(const ProtoMessage& event);

  Clock clock_;
  std::string path_;
  std::unique_ptr<WritableFile> file_;
  // Kept for their memory: a record of known size allocates nothing.
  ProtoMessage event_, summary_, value_;
  std::string record_;
};

}  // namespace belfry
