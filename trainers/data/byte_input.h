// The bytes of a file, unpacked if it is gzipped. Readers of data files use them.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "belfry/framework/base/file_system.h"

namespace belfry {

// Reads a file in blocks, so that its start can be looked at. Borrows it.
class FileBlocks {
 public:
  explicit FileBlocks(ReadableFile& file);

  std::uint64_t size() const { return file_.size(); }
  // The number of bytes read so far.
  std::uint64_t position() const { return position_; }
  // Returns the next bytes without reading on: at least `least` of them (at most 64 KiB), fewer
  // only at the end.
  std::span<const std::byte> peek(std::size_t least);
  void take(std::size_t count);
  // Reads as many bytes as `out` holds, fewer only at the end; returns how many.
  std::size_t read(std::span<std::byte> out);

 private:
  ReadableFile& file_;
  std::vector<std::byte> block_;
  std::span<const std::byte> rest_;  // the part of the block that is not read yet
  std::uint64_t position_ = 0;
};

// The unpacked bytes of a file, in order.
class ByteInput {
 public:
  virtual ~ByteInput() = default;
  // Fills `out` and returns how many bytes there were: fewer only at the end. Throws IoError for
  // gzip data, naming the file and the byte where they are truncated or corrupt. Other bytes after
  // gzip data are refused only when more bytes are wanted.
  virtual std::size_t read(std::span<std::byte> out) = 0;
  // A bound on the unpacked size of the file: deflate cannot shrink data more than 1032 times.
  virtual std::uint64_t most_bytes() const = 0;
  // The beginning of a message about a file below its declared size.
  virtual std::string too_small() const = 0;
  // Follows a byte offset in messages.
  virtual const char* of_what() const = 0;
};

// Unpacks gzip data (one member or several); gives any other file as it is. `name` is for messages
// and must outlive the result.
std::unique_ptr<ByteInput> open_input(FileBlocks& blocks, const std::string& name);

// A file in memory, borrowed.
class BytesFile final : public ReadableFile {
 public:
  explicit BytesFile(std::span<const std::byte> bytes) : bytes_(bytes) {}
  std::uint64_t size() const override { return bytes_.size(); }
  void seek(std::uint64_t offset) override;
  std::size_t read(std::span<std::byte> out) override;

 private:
  std::span<const std::byte> bytes_;
  std::size_t used_ = 0;
};

}  // namespace belfry
