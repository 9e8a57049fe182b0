// The safetensors format, version 0.4 of its documentation (github.com/huggingface/safetensors):
// 8 bytes, the length N of the header, little-endian; N bytes of JSON, {"name": {"dtype": "F32",
// "shape": [2,3], "data_offsets": [begin, end]}, ..., "__metadata__": {"key": "text", ...}}, padded
// with spaces; then the values, dense and little-endian, without holes. Offsets count from the end
// of the header. Other programs read these files, and files come from anywhere: the reader takes
// any bytes and throws rather than crash or allocate too much.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "belfry/framework/base/file_system.h"
#include "belfry/framework/base/json.h"
#include "belfry/framework/base/tensor.h"

namespace belfry {

// "F16", "BF16", "F32", "F64", "I32", "I64", "U8" or "BOOL".
std::string safetensors_name(DType dtype);
// Throws InvalidArgument for another text.
DType dtype_of_safetensors(std::string_view name);

// [2,3]. Reading throws InvalidArgument if the value is no shape, has more than 64 dimensions, or
// more elements than a Shape may have.
JsonValue shape_to_json(const Shape& shape);
Shape shape_from_json(const JsonValue& json);

struct StoredTensor {
  std::string name;
  DType dtype = DType::kF32;
  Shape shape = {};
  std::uint64_t begin = 0, end = 0;  // in the file

  std::uint64_t bytes() const { return end - begin; }
};

// Lays out a file. Sorts `tensors` in the order in which their bytes must follow: larger elements
// first, so that all are aligned, then by name. Sets begin and end, and returns the bytes before
// the values. The header lists the names sorted, and is padded so that the values begin at a
// multiple of 8. Throws InvalidArgument if a name repeats or is "__metadata__", or if the header
// has more than kMostJsonBytes.
std::string lay_out_safetensors(std::vector<StoredTensor>& tensors,
                                const std::map<std::string, std::string>& metadata = {});

// What the header of a file says: its tensors and its metadata.
struct SafetensorsHeader {
  std::map<std::string, StoredTensor> tensors;
  std::map<std::string, std::string> metadata;
};

// How many bytes of a file of `size` bytes come before its values. `begin` has at least its first
// 8. Throws IoError as Safetensors does.
std::uint64_t safetensors_header_bytes(std::span<const std::byte> begin, std::uint64_t size,
                                       const std::string& file);
// Reads and checks the header of a file of `size` bytes; `begin` has all bytes before its values.
// Throws IoError as Safetensors does.
SafetensorsHeader read_safetensors_header(std::span<const std::byte> begin, std::uint64_t size,
                                          const std::string& file);
// Throws IoError naming the byte unless the values of a kBool are all 0 or 1. Other types pass.
void check_stored_values(const StoredTensor& tensor, std::span<const std::byte> values,
                         const std::string& file);

// The bytes of a file, and what keeps them there.
struct FileBytes {
  std::shared_ptr<const void> owner;
  std::span<const std::byte> bytes;
};

// Like FileSystem::read(), for a file that may be large. The memory is in huge pages and not filled
// before, which takes a fraction of the time.
FileBytes read_large_file(FileSystem& files, const std::string& path, std::uint64_t most);
// The same for a file that is written once, as a checkpoint's are: if it is in a private folder in
// memory, it is not copied (FileInMemory).
FileBytes read_written_once(FileSystem& files, const std::string& path, std::uint64_t most);

// A file in memory that has been checked.
class Safetensors {
 public:
  // Throws IoError naming `file`, the byte, what was expected there and, past the header, the
  // tensor. No allocation exceeds twice the bytes.
  Safetensors(FileBytes bytes, std::string file);
  // Copies the bytes; for small files.
  Safetensors(const std::vector<std::byte>& bytes, std::string file);

  const std::string& file() const { return file_; }
  std::span<const std::byte> bytes() const { return bytes_.bytes; }
  const std::map<std::string, StoredTensor>& tensors() const { return header_.tensors; }
  const std::map<std::string, std::string>& metadata() const { return header_.metadata; }
  // The values of one of tensors().
  std::span<const std::byte> values(const StoredTensor& tensor) const {
    return bytes().subspan(tensor.begin, tensor.bytes());
  }

 private:
  FileBytes bytes_;
  std::string file_;
  SafetensorsHeader header_;
};

}  // namespace belfry
