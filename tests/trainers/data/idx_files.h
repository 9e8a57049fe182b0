// Writes the files that tests of readers read.
#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include <unistd.h>
#include <zlib.h>

#include "belfry/framework/base/error.h"
#include "belfry/framework/base/file_system.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"

namespace belfry::test {

using Bytes = std::vector<std::byte>;

// An IDX file: magic, big-endian dimensions, and values 0, 1, 2, ... modulo `modulus`.
inline Bytes idx_bytes(const std::vector<std::uint32_t>& dims, std::uint32_t modulus = 256) {
  Bytes bytes;
  const auto number = [&](std::uint32_t value) {
    for (int shift = 24; shift >= 0; shift -= 8)
      bytes.push_back(static_cast<std::byte>(value >> shift & 255));
  };
  number(static_cast<std::uint32_t>(0x800 | dims.size()));
  std::uint64_t count = 1;
  for (const std::uint32_t dim : dims) {
    number(dim);
    count *= dim;
  }
  for (std::uint64_t i = 0; i < count; ++i) bytes.push_back(static_cast<std::byte>(i % modulus));
  return bytes;
}

inline Bytes gzip(const Bytes& plain) {
  z_stream stream = {};
  constexpr int kGzip = 16 + MAX_WBITS;
  require<InternalError>(
      deflateInit2(&stream, Z_BEST_COMPRESSION, Z_DEFLATED, kGzip, 8, Z_DEFAULT_STRATEGY) == Z_OK,
      "deflateInit2");
  Bytes packed(deflateBound(&stream, plain.size()));
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(plain.data()));
  stream.avail_in = static_cast<uInt>(plain.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  require<InternalError>(deflate(&stream, Z_FINISH) == Z_STREAM_END, "deflate");
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  return packed;
}

// A folder that is removed with its owner.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    static int count = 0;
    path_ = (std::filesystem::temp_directory_path() / cat("belfry_data_", ::getpid(), "_", count++))
                .string();
    local_file_system().create_directory(path_);
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string write(const std::string& name, const Bytes& bytes) const {
    const std::string path = path_ + "/" + name;
    auto file = local_file_system().create(path);
    file->append(bytes);
    file->close();
    return path;
  }

 private:
  std::string path_;
};

// Images in the form of MNIST for the flag --data_dir: 1,024 to train on and 64 to test on. They
// take far less time than the 70,000 that programs generate.
class SmallDigits : public TemporaryFolder {
 public:
  explicit SmallDigits(std::uint32_t train = 1024) {
    write("train-images-idx3-ubyte", idx_bytes({train, 28, 28}, 251));
    write("train-labels-idx1-ubyte", idx_bytes({train}, 10));
    write("t10k-images-idx3-ubyte", idx_bytes({64, 28, 28}, 251));
    write("t10k-labels-idx1-ubyte", idx_bytes({64}, 10));
  }
};

// The message of the E that f() throws; "" if it throws nothing.
template <class E, class F>
std::string message_of(F&& f) {
  try {
    f();
  } catch (const E& error) {
    return error.what();
  }
  return "";
}

}  // namespace belfry::test
