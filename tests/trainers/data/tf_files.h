// Writes the TFRecord files and images that tests of readers read. It shares no code with the
// readers.
#pragma once
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include <jpeglib.h>
#include <png.h>

#include "belfry/framework/base/error.h"
#include "belfry/framework/base/require.h"
#include "belfry/tests/trainers/data/idx_files.h"

namespace belfry::test {

inline std::string varint(std::uint64_t value) {
  std::string text;
  for (; value > 127; value >>= 7) text += static_cast<char>(value % 128 + 128);
  return text + static_cast<char>(value);
}
inline std::string message_field(int number, const std::string& content) {
  return varint(static_cast<std::uint64_t>(number) << 3 | 2) + varint(content.size()) + content;
}
inline std::string bytes_feature(const std::string& name, const std::string& value) {
  return message_field(
      1, message_field(1, name) + message_field(2, message_field(1, message_field(1, value))));
}
inline std::string int_feature(const std::string& name, std::int64_t value) {
  const std::string packed = message_field(1, varint(static_cast<std::uint64_t>(value)));
  return message_field(1, message_field(1, name) + message_field(2, message_field(3, packed)));
}
inline std::string example(const std::string& features) { return message_field(1, features); }

inline std::string image_example(const std::string& image, std::int64_t label) {
  return example(int_feature("image/height", 3) + bytes_feature("image/encoded", image) +
                 int_feature("image/class/label", label));
}

// Computes the CRC bit by bit, as its definition says.
inline std::string masked_crc_bytes(const std::string& text) {
  std::uint32_t crc = ~0u;
  for (const char c : text) {
    crc ^= static_cast<unsigned char>(c);
    for (int bit = 0; bit < 8; ++bit) crc = crc % 2 ? crc / 2 ^ 0x82f63b78 : crc / 2;
  }
  crc = ~crc;
  crc = (crc >> 15 | crc << 17) + 0xa282ead8;
  return {reinterpret_cast<const char*>(&crc), sizeof crc};
}
inline std::string tf_record(const std::string& data) {
  const std::uint64_t size = data.size();
  const std::string length(reinterpret_cast<const char*>(&size), sizeof size);
  return length + masked_crc_bytes(length) + data + masked_crc_bytes(data);
}

inline Bytes as_bytes(const std::string& text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

// Red, green and blue values of height x width pixels.
struct PlainImage {
  std::uint32_t height, width;
  std::vector<std::uint8_t> pixels;
};

inline std::string png_of(const PlainImage& image) {
  png_image png{};
  png.version = PNG_IMAGE_VERSION;
  png.height = image.height;
  png.width = image.width;
  png.format = PNG_FORMAT_RGB;
  png_alloc_size_t size = PNG_IMAGE_PNG_SIZE_MAX(png);
  std::string file(size, '\0');
  require<InternalError>(
      png_image_write_to_memory(&png, file.data(), &size, 0, image.pixels.data(), 0, nullptr),
      "png_image_write_to_memory");
  file.resize(size);
  return file;
}

enum class JpegKind { kSequential, kProgressive };

// `sampling`: pixels of brightness per pixel of colour, both ways.
inline std::string jpeg_of(const PlainImage& image, JpegKind kind = JpegKind::kSequential,
                           int sampling = 1) {
  jpeg_compress_struct jpeg;
  jpeg_error_mgr errors;
  jpeg.err = jpeg_std_error(&errors);
  jpeg_create_compress(&jpeg);
  unsigned char* memory = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&jpeg, &memory, &size);
  jpeg.image_height = image.height;
  jpeg.image_width = image.width;
  jpeg.input_components = 3;
  jpeg.in_color_space = JCS_RGB;
  jpeg_set_defaults(&jpeg);
  jpeg_set_quality(&jpeg, 100, TRUE);
  for (int i = 0; i < 3; ++i) jpeg.comp_info[i].h_samp_factor = jpeg.comp_info[i].v_samp_factor = 1;
  jpeg.comp_info[0].h_samp_factor = jpeg.comp_info[0].v_samp_factor = sampling;
  if (kind == JpegKind::kProgressive) jpeg_simple_progression(&jpeg);
  jpeg_start_compress(&jpeg, TRUE);
  for (std::uint32_t y = 0; y < image.height; ++y) {
    JSAMPROW row = const_cast<JSAMPROW>(image.pixels.data() + std::size_t{3} * y * image.width);
    jpeg_write_scanlines(&jpeg, &row, 1);
  }
  jpeg_finish_compress(&jpeg);
  jpeg_destroy_compress(&jpeg);
  std::string file(reinterpret_cast<const char*>(memory), size);
  std::free(memory);
  return file;
}

// An image whose red grows downwards, and whose green grows to the right.
inline PlainImage ramp(std::uint32_t height, std::uint32_t width) {
  PlainImage image{height, width, {}};
  for (std::uint32_t y = 0; y < height; ++y)
    for (std::uint32_t x = 0; x < width; ++x)
      for (const std::uint32_t value : {8 * y, 8 * x, 50u})
        image.pixels.push_back(static_cast<std::uint8_t>(value));
  return image;
}

}  // namespace belfry::test
