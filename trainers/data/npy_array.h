// Arrays in NumPy's files: .npy has one, .npz, a zip archive of .npy files, several.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "belfry/framework/base/file_system.h"
#include "belfry/framework/base/tensor.h"

namespace belfry {

// A .npy file, or a part of another file with the same content.
struct NpyHeader {
  DType dtype = DType::kF32;
  Shape shape;
  std::uint64_t begin = 0;  // of the values, which are dense, little-endian, and rows first
};

// The header at byte `begin` of the file; the values end at byte `end` at the latest. Throws
// IoError, naming `name` and what is wrong, for other types than f16, f32, f64, i32, i64, u8 and
// bool, for arrays in Fortran's order, and for values that the file cannot hold.
NpyHeader read_npy_header(ReadableFile& file, const std::string& name, std::uint64_t begin,
                          std::uint64_t end);

// A member of a zip archive.
struct ZipMember {
  std::uint64_t begin = 0;                 // of its data
  std::uint64_t packed = 0, unpacked = 0;  // bytes
  bool is_deflated = false;
  std::uint32_t sum = 0;  // the CRC-32 of the unpacked bytes
};
// The member of this name, or none. Throws IoError for a damaged archive, or a member that is
// packed in another way than by deflate.
std::optional<ZipMember> find_zip_member(ReadableFile& file, const std::string& name,
                                         std::string_view member);

// The bytes of a deflated member. Throws IoError for damaged data, and for more bytes than `most`
// or than such data can unpack to.
std::string unpack_member(ReadableFile& file, const std::string& name, const ZipMember& member,
                          std::uint64_t most);

// The rows of an array: one per index of its first dimension. Any thread may read. Rows are read
// from the file when they are needed; only arrays of numpy.savez_compressed are kept in memory.
class NpyArray {
 public:
  // The array in a .npy file, or `array` of a .npz file. Throws NotFoundError without it, and
  // IoError for a damaged file, or an array without rows.
  NpyArray(FileSystem& files, std::string path, const std::string& array);

  DType dtype() const { return header_.dtype; }
  const Shape& shape() const { return header_.shape; }
  std::int64_t rows() const { return header_.shape[0]; }
  std::size_t row_bytes() const;
  // Where a row begins, in the file or, if it is packed, in the unpacked array.
  std::uint64_t offset(std::int64_t row) const;
  // "train.npz, array x", or the path.
  const std::string& name() const { return name_; }
  const std::string& path() const { return path_; }

  // Throws BadRecord where the file has become shorter.
  void read(std::int64_t row, std::span<std::byte> out) const;

 private:
  void unpack(ReadableFile& file, const ZipMember& member);

  FileSystem& files_;
  std::string path_, name_;
  NpyHeader header_;
  std::shared_ptr<const Tensor> unpacked_;  // if it is packed
};

// In a folder: `stem`.npz, or `stem`_`array`.npy. Throws NotFoundError naming both.
NpyArray open_array(FileSystem& files, const std::string& folder, const std::string& stem,
                    const std::string& array);

}  // namespace belfry
