// The IDX format of MNIST and its relatives: big-endian magic number and dimensions, then the
// values. Magic 0x00000800 | rank means unsigned bytes, the only type read here. Files come from
// anywhere, so the parser trusts no bytes: it throws rather than crash or allocate too much.
#pragma once
#include <functional>
#include <span>
#include <string>

#include "belfry/framework/base/file_system.h"
#include "belfry/framework/base/tensor.h"

namespace belfry {

// The u8 tensor in `file`, an IDX file from its start, gzipped (in one member or several) or not.
// The caller expects `rank`: 3 for images, 1 for labels. Throws IoError for a wrong magic number, a
// truncated file, trailing bytes, corrupt gzip data and values that this machine's memory cannot
// hold. The error names `name`, the byte offset, what was expected and what was found. Reads and
// allocates no more than the header declares, and no more than the file can hold: deflate cannot
// shrink data more than 1032 times. Before the values are read, `check` gets the header's shape,
// and throws if it cannot be used.
Tensor parse_idx(ReadableFile& file, const std::string& name, std::size_t rank,
                 const std::function<void(const Shape&)>& check = {});
// The same for the content of a file.
Tensor parse_idx(std::span<const std::byte> bytes, const std::string& name, std::size_t rank);
// The shape that the header declares.
Shape parse_idx_shape(ReadableFile& file, const std::string& name, std::size_t rank);

// The present file for `path`: with or without ".gz", spelled "-idx3-ubyte" or ".idx3-ubyte".
// Throws NotFoundError listing the names tried.
std::string find_idx_file(FileSystem& files, const std::string& path);

}  // namespace belfry
