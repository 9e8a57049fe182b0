// Writes the files of NumPy that tests of readers read. It shares no code with the reader.
#pragma once
#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <zlib.h>

#include "belfry/framework/base/text.h"

namespace belfry::test {

template <class T>
std::string little_endian(T value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

// A .npy file of version 1, or 2 with a longer length of its header.
inline std::string npy(const std::string& descr, const std::string& shape,
                       const std::string& values, const std::string& fortran = "False",
                       int version = 1) {
  std::string header =
      cat("{'descr': '", descr, "', 'fortran_order': ", fortran, ", 'shape': ", shape, ", }");
  const std::size_t before = version == 1 ? 10 : 12;
  header.resize((before + header.size() + 64) / 64 * 64 - before, ' ');
  header.back() = '\n';
  return "\x93NUMPY" + std::string(1, static_cast<char>(version)) + '\0' +
         (version == 1 ? little_endian(static_cast<std::uint16_t>(header.size()))
                       : little_endian(static_cast<std::uint32_t>(header.size()))) +
         header + values;
}

template <class T>
std::string npy_of(const std::string& descr, const std::string& shape,
                   const std::vector<T>& values) {
  return npy(descr, shape,
             {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)});
}

inline std::string deflated(const std::string& plain, int level = Z_BEST_COMPRESSION) {
  z_stream stream = {};
  deflateInit2(&stream, level, Z_DEFLATED, -MAX_WBITS, 8, Z_DEFAULT_STRATEGY);
  std::string packed(deflateBound(&stream, plain.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(plain.data()));
  stream.avail_in = static_cast<uInt>(plain.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  deflate(&stream, Z_FINISH);
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  return packed;
}

// A zip archive. With `in_64_bits` its sizes are in extra fields, as numpy.savez writes them.
inline std::string zip(const std::vector<std::pair<std::string, std::string>>& members,
                       bool packed = false, bool in_64_bits = false,
                       int level = Z_BEST_COMPRESSION) {
  std::string file, directory;
  for (const auto& [name, content] : members) {
    const std::string data = packed ? deflated(content, level) : content;
    const uLong sum = crc32_z(0, reinterpret_cast<const Bytef*>(content.data()), content.size());
    const std::string method = little_endian<std::uint16_t>(packed ? 8 : 0);
    const std::string sizes = in_64_bits
                                  ? std::string(8, '\xFF')
                                  : little_endian(static_cast<std::uint32_t>(data.size())) +
                                        little_endian(static_cast<std::uint32_t>(content.size()));
    const std::string extra = !in_64_bits ? std::string()
                                          : little_endian<std::uint16_t>(1) +
                                                little_endian<std::uint16_t>(16) +
                                                little_endian<std::uint64_t>(content.size()) +
                                                little_endian<std::uint64_t>(data.size());
    const std::string middle = std::string("\x14\0\0\0", 4) + method + std::string(4, '\0') +
                               little_endian(static_cast<std::uint32_t>(sum)) + sizes +
                               little_endian(static_cast<std::uint16_t>(name.size())) +
                               little_endian(static_cast<std::uint16_t>(extra.size()));
    directory += std::string("PK\1\2\x14\0", 6) + middle + std::string(10, '\0') +
                 little_endian(static_cast<std::uint32_t>(file.size())) + name + extra;
    file += "PK\3\4" + middle + name + extra + data;
  }
  const std::string count = little_endian(static_cast<std::uint16_t>(members.size()));
  return file + directory + std::string("PK\5\6\0\0\0\0", 8) + count + count +
         little_endian(static_cast<std::uint32_t>(directory.size())) +
         little_endian(static_cast<std::uint32_t>(file.size())) + std::string(2, '\0');
}

}  // namespace belfry::test
