#include "belfry/trainers/data/decode_image.h"

#include <algorithm>
#include <cmath>
#include <csetjmp>
#include <cstdio>
#include <cstring>
#include <string>
#include <utility>

#include <jpeglib.h>
// After jpeglib.h, which it needs.
#include <jerror.h>
#include <png.h>

#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/kernels/simd.h"
#include "belfry/trainers/data/png_data.h"

namespace belfry {
namespace {

constexpr std::size_t kRgb = 3;

void check_image_size(std::int64_t height, std::int64_t width, std::int64_t most) {
  require(height > 0 && width > 0 && height <= most / width, "an image of ", height, " x ", width,
          " pixels, where at most ", most, " are taken");
}

// libjpeg reports errors by one call, which must not return, and warnings by another.
struct JpegErrors {
  jpeg_error_mgr manager;  // first: libjpeg has a pointer to it alone
  std::jmp_buf leave;
  char text[JMSG_LENGTH_MAX] = "";
  int most_scans = kMostScans;
  bool cut = false;  // data that end early are a warning of libjpeg, which makes up the rest
};

JpegErrors& errors_of(j_common_ptr jpeg) { return *reinterpret_cast<JpegErrors*>(jpeg->err); }

[[noreturn]] void leave_jpeg(j_common_ptr jpeg) {
  JpegErrors& errors = errors_of(jpeg);
  jpeg->err->format_message(jpeg, errors.text);
  std::longjmp(errors.leave, 1);
}

void note_jpeg_message(j_common_ptr jpeg, int level) {
  const int code = jpeg->err->msg_code;
  if (level < 0 && (code == JWRN_JPEG_EOF || code == JWRN_HIT_MARKER)) errors_of(jpeg).cut = true;
}

// libjpeg calls it again and again while it reads the scans of an image.
void check_scans(j_common_ptr common) {
  auto* const jpeg = reinterpret_cast<j_decompress_ptr>(common);
  JpegErrors& errors = errors_of(common);
  if (jpeg->input_scan_number <= errors.most_scans) return;
  std::snprintf(errors.text, sizeof errors.text, "more than %d scans of %u x %u pixels",
                errors.most_scans, jpeg->image_height, jpeg->image_width);
  std::longjmp(errors.leave, 1);
}

// Black is 0 and inks are inverted, as Adobe's programs write them.
void rgb_of_cmyk(std::span<const std::uint8_t> cmyk, std::uint8_t* rgb) {
  for (std::size_t i = 0; i + 3 < cmyk.size(); i += 4)
    for (std::size_t c = 0; c < kRgb; ++c)
      *rgb++ = static_cast<std::uint8_t>(cmyk[i + c] * cmyk[i + 3] / 255);
}

// Owns nothing that a jump could leak: the caller owns the memory.
struct JpegDecoder {
  jpeg_decompress_struct jpeg;
  JpegErrors errors;
  jpeg_progress_mgr progress;

  // False on an error, which errors.text says.
  bool read_header(std::span<const std::byte> file) {
    jpeg.err = jpeg_std_error(&errors.manager);
    errors.manager.error_exit = leave_jpeg;
    errors.manager.emit_message = note_jpeg_message;
    if (setjmp(errors.leave)) return false;
    jpeg_create_decompress(&jpeg);
    jpeg_mem_src(&jpeg, reinterpret_cast<const unsigned char*>(file.data()),
                 static_cast<unsigned long>(file.size()));
    jpeg_read_header(&jpeg, TRUE);
    const bool inks = jpeg.num_components == 4;
    jpeg.out_color_space = inks ? JCS_CMYK : JCS_RGB;
    return true;
  }

  // Makes the box as wide as blocks of pixels allow. With jpeg_start_decompress() before, nothing
  // below allocates but libjpeg.
  bool begin_pixels(PixelBox& box) {
    progress.progress_monitor = check_scans;
    jpeg.progress = &progress;
    if (setjmp(errors.leave)) return false;
    jpeg_start_decompress(&jpeg);
    if (box.width < static_cast<std::int64_t>(jpeg.output_width)) {
      auto left = static_cast<JDIMENSION>(box.left), width = static_cast<JDIMENSION>(box.width);
      jpeg_crop_scanline(&jpeg, &left, &width);
      box.left = left;
      box.width = width;
    }
    return true;
  }

  // `line` has room for a row of the file. Changes no variable of its own between setjmp and a
  // jump.
  bool read_pixels(const PixelBox& box, std::span<std::uint8_t> line, std::uint8_t* const to) {
    if (setjmp(errors.leave)) return false;
    if (box.top > 0) jpeg_skip_scanlines(&jpeg, static_cast<JDIMENSION>(box.top));
    while (jpeg.output_scanline < box.top + box.height) read_row(box, line, to);
    if (jpeg.output_scanline == jpeg.output_height) jpeg_finish_decompress(&jpeg);
    return true;
  }

  void read_row(const PixelBox& box, std::span<std::uint8_t> line, std::uint8_t* to) {
    to += kRgb * jpeg.output_width * (jpeg.output_scanline - static_cast<std::size_t>(box.top));
    JSAMPROW row = jpeg.out_color_space == JCS_CMYK ? line.data() : to;
    jpeg_read_scanlines(&jpeg, &row, 1);
    if (jpeg.out_color_space == JCS_CMYK) rgb_of_cmyk(line, to);
  }
};

// Whether the file has an end, perhaps followed by a few bytes more.
bool has_jpeg_end(std::span<const std::byte> file) {
  constexpr std::size_t kAfterEnd = 256;
  const auto tail = file.last(std::min(file.size(), kAfterEnd));
  constexpr std::byte kEnd[] = {std::byte{0xFF}, std::byte{0xD9}};
  return !std::ranges::search(tail, kEnd).empty();
}

// With a few pixels around it, which smooth its edges. All of the image if that is cut off, so that
// it is found out.
PixelBox jpeg_box(const PixelBox& chosen, std::span<const std::byte> file,
                  const DecodedImage& image) {
  constexpr std::int64_t kAround = 4;
  require(chosen.top >= 0 && chosen.left >= 0 && chosen.height > 0 && chosen.width > 0 &&
              chosen.top + chosen.height <= image.height &&
              chosen.left + chosen.width <= image.width,
          "the chosen pixels are not in an image of ", image.height, " x ", image.width);
  if (!has_jpeg_end(file)) return {0, 0, image.height, image.width};
  PixelBox box{.top = std::max<std::int64_t>(0, chosen.top - kAround),
               .left = std::max<std::int64_t>(0, chosen.left - kAround)};
  box.height = std::min(image.height, chosen.top + chosen.height + kAround) - box.top;
  box.width = std::min(image.width, chosen.left + chosen.width + kAround) - box.left;
  return box;
}

DecodedImage decode_jpeg(std::span<const std::byte> file, std::int64_t most,
                         const ChooseBox& choose) {
  JpegDecoder decoder{};
  struct End {
    jpeg_decompress_struct& jpeg;
    ~End() { jpeg_destroy_decompress(&jpeg); }
  } const end{decoder.jpeg};
  require(decoder.read_header(file), "JPEG: ", decoder.errors.text);
  check_image_size(decoder.jpeg.image_height, decoder.jpeg.image_width, most);
  DecodedImage image{.height = decoder.jpeg.image_height, .width = decoder.jpeg.image_width};
  image.box = {0, 0, image.height, image.width};
  if (choose) image.box = jpeg_box(choose(image.height, image.width), file, image);
  decoder.errors.most_scans = static_cast<int>(std::clamp<std::int64_t>(
      kMostPixelsInScans / (image.height * image.width), kLeastScans, kMostScans));
  require(decoder.begin_pixels(image.box), "JPEG: ", decoder.errors.text);
  image.pixels.resize(static_cast<std::size_t>(image.box.height * image.box.width) * kRgb);
  std::vector<std::uint8_t> line(
      decoder.jpeg.out_color_space == JCS_CMYK ? static_cast<std::size_t>(image.box.width) * 4 : 0);
  require(decoder.read_pixels(image.box, line, image.pixels.data()), "JPEG: ", decoder.errors.text);
  require(!decoder.errors.cut, "JPEG: the data end early or are corrupt");
  return image;
}

DecodedImage decode_png(std::span<const std::byte> file, std::int64_t most) {
  png_image png{};
  png.version = PNG_IMAGE_VERSION;
  struct End {
    png_image& png;
    ~End() { png_image_free(&png); }
  } const end{png};
  require(png_image_begin_read_from_memory(&png, file.data(), file.size()) != 0,
          "PNG: ", png.message);
  check_image_size(png.height, png.width, most);
  check_png_data(file);
  png.format = PNG_FORMAT_RGB;
  DecodedImage image{.height = png.height, .width = png.width};
  image.box = {0, 0, image.height, image.width};
  image.pixels.resize(PNG_IMAGE_SIZE(png));
  const png_color black{0, 0, 0};
  require(png_image_finish_read(&png, &black, image.pixels.data(), 0, nullptr) != 0,
          "PNG: ", png.message);
  return image;
}

bool begins(std::span<const std::byte> file, std::string_view bytes) {
  return file.size() >= bytes.size() &&
         std::string_view(reinterpret_cast<const char*>(file.data()), bytes.size()) == bytes;
}

// Adds the weights for pixel `i` of the result. Returns the first pixel that they are of.
std::int64_t add_weights(double begin, double length, std::int64_t side, std::int64_t size,
                         std::int64_t i, std::vector<float>& weights) {
  const double step = length / static_cast<double>(side), reach = std::max(step, 1.0);
  const double middle = begin + (static_cast<double>(i) + 0.5) * step;
  const auto at = [&](double x) {
    return std::clamp(static_cast<std::int64_t>(std::floor(x)), std::int64_t{0}, size - 1);
  };
  const std::size_t old = weights.size();
  std::int64_t first = 0;
  float sum = 0;
  for (std::int64_t p = at(middle - reach); p <= at(middle + reach); ++p) {
    const double away = std::fabs(static_cast<double>(p) + 0.5 - middle) / reach;
    if (away >= 1) continue;
    if (weights.size() == old) first = p;
    weights.push_back(static_cast<float>(1 - away));
    sum += weights.back();
  }
  if (weights.size() == old) {  // outside of the image
    weights.push_back(1);
    return at(middle);
  }
  for (std::size_t w = old; w < weights.size(); ++w) weights[w] /= sum;
  return first;
}

// Values that are summed at once: such blocks of constant size are vectorised at -O2.
constexpr std::size_t kLineBlock = 32;

BELFRY_HD void weigh_block(const std::uint8_t* __restrict from, std::size_t stride,
                           const float* __restrict weights, std::size_t count,
                           float* __restrict to) {
  float sums[kLineBlock] = {};
  for (std::size_t w = 0; w < count; ++w) {
    const std::uint8_t* const line = from + w * stride;
    for (std::size_t j = 0; j < kLineBlock; ++j)
      sums[j] += weights[w] * static_cast<float>(line[j]);
  }
  for (std::size_t j = 0; j < kLineBlock; ++j) to[j] = sums[j];
}

// The weighted sum of `count` neighbouring lines from `from` on, `stride` values apart: `size`
// values. The last block begins early enough to be whole, so it computes some of them again.
BELFRY_KERNEL void weigh_lines(const std::uint8_t* __restrict from, std::size_t stride,
                               const float* __restrict weights, std::size_t count,
                               float* __restrict to, std::size_t size) {
  std::size_t i = 0;
  for (; i + kLineBlock <= size; i += kLineBlock)
    weigh_block(from + i, stride, weights, count, to + i);
  if (i < size && size >= kLineBlock) {
    i = size - kLineBlock;
    weigh_block(from + i, stride, weights, count, to + i);
    i = size;
  }
  for (; i < size; ++i) {
    float sum = 0;
    for (std::size_t w = 0; w < count; ++w)
      sum += weights[w] * static_cast<float>(from[w * stride + i]);
    to[i] = sum;
  }
}

// The pixels of a line that make one of the result, in the order of the result.
struct Column {
  std::size_t from;  // the place of their first value
  const float* weights;
  std::size_t count;
};

// Lines are resized together, so that no sum waits for another one. Vectors have four values: the
// last one is computed, and not used.
constexpr std::size_t kLines = 4;
typedef float PixelSum __attribute__((vector_size(4 * sizeof(float))));

// Unrolled, as the sums would be in memory otherwise.
BELFRY_HD void weigh_pixels(const float* lines, std::size_t stride, const Column& column,
                            PixelSum (&sums)[kLines]) {
#pragma GCC unroll 4
  for (std::size_t i = 0; i < kLines; ++i) sums[i] = PixelSum{};
  for (std::size_t w = 0; w < column.count; ++w) {
    const float* const pixel = lines + column.from + w * kRgb;
#pragma GCC unroll 4
    for (std::size_t i = 0; i < kLines; ++i) {
      PixelSum values;
      __builtin_memcpy(&values, pixel + i * stride, sizeof values);
      sums[i] += column.weights[w] * values;
    }
  }
}

// Makes kLines rows of `size` pixels of as many lines, which are `stride` values apart. The unused
// value of a pixel is replaced by the next pixel.
BELFRY_KERNEL void weigh_columns(const float* __restrict lines, std::size_t stride,
                                 const Column* __restrict columns, std::size_t size,
                                 float* const (&to)[kLines]) {
  PixelSum sums[kLines];
  const std::size_t last = (size - 1) * kRgb;
  for (std::size_t x = 0; x < last; x += kRgb) {
    weigh_pixels(lines, stride, *columns++, sums);
#pragma GCC unroll 4
    for (std::size_t i = 0; i < kLines; ++i)
      __builtin_memcpy(to[i] + x, &sums[i], sizeof(PixelSum));
  }
  weigh_pixels(lines, stride, *columns, sums);
  for (std::size_t i = 0; i < kLines; ++i)
    __builtin_memcpy(to[i] + last, &sums[i], kRgb * sizeof(float));
}

}  // namespace

PixelTaps::PixelTaps(double begin, double length, std::int64_t pixels, std::int64_t size) {
  taps_.reserve(static_cast<std::size_t>(pixels));
  for (std::int64_t i = 0; i < pixels; ++i) {
    const std::size_t old = weights_.size();
    const std::int64_t first = add_weights(begin, length, pixels, size, i, weights_);
    taps_.push_back({first, old, weights_.size() - old});
  }
}

DecodedImage decode_image(std::span<const std::byte> file, std::int64_t most,
                          const ChooseBox& choose) {
  if (begins(file, "\xFF\xD8\xFF")) return decode_jpeg(file, most, choose);
  if (begins(file, "\x89PNG\r\n\x1A\n")) return decode_png(file, most);
  throw InvalidArgument(cat("neither JPEG nor PNG: ", file.size(), " bytes"));
}

PixelBox box_of(const ImagePart& part, std::int64_t side, std::int64_t height, std::int64_t width) {
  const auto range = [&](double begin, double length, std::int64_t size) {
    std::vector<float> weights;
    const std::int64_t first = add_weights(begin, length, side, size, 0, weights);
    weights.clear();
    const std::int64_t last = add_weights(begin, length, side, size, side - 1, weights);
    return std::pair(first, last + std::ssize(weights) - first);
  };
  const auto [top, rows] = range(part.top, part.height, height);
  const auto [left, columns] = range(part.left, part.width, width);
  return {top, left, rows, columns};
}

void resize_image(const DecodedImage& image, const ImagePart& part, std::int64_t side,
                  bool mirrored, std::span<float> out) {
  const auto n = static_cast<std::size_t>(side);
  const PixelBox& box = image.box;
  const PixelBox needed = box_of(part, side, image.height, image.width);
  require(out.size() == n * n * kRgb, "room for ", out.size(), " values of ", side, " x ", side,
          " pixels");
  require(needed.top >= box.top && needed.left >= box.left &&
              needed.top + needed.height <= box.top + box.height &&
              needed.left + needed.width <= box.left + box.width &&
              image.pixels.size() == static_cast<std::size_t>(box.height * box.width) * kRgb,
          "the image lacks pixels of the part that is resized");
  const PixelTaps rows(part.top, part.height, side, image.height);
  const PixelTaps columns(part.left, part.width, side, image.width);
  std::vector<Column> in_order;
  in_order.reserve(n);
  for (std::size_t x = 0; x < n; ++x) {
    const std::span<const float> weights = columns.weights(x);
    in_order.push_back({static_cast<std::size_t>(columns.first(x) - needed.left) * kRgb,
                        weights.data(), weights.size()});
  }
  if (mirrored) std::ranges::reverse(in_order);
  const std::size_t stride = static_cast<std::size_t>(box.width) * kRgb;
  const std::uint8_t* const left =
      image.pixels.data() + static_cast<std::size_t>(needed.left - box.left) * kRgb;
  // The image's lines for kLines rows of the result, and a value after them that is read but not
  // used. Rows after the last one are computed, too.
  const std::size_t width = static_cast<std::size_t>(needed.width) * kRgb;
  std::vector<float> lines(kLines * width + 1), spare(n * kRgb);
  for (std::size_t y = 0; y < n; y += kLines) {
    float* to[kLines] = {spare.data(), spare.data(), spare.data(), spare.data()};
    for (std::size_t i = 0; i < std::min(kLines, n - y); ++i) {
      const std::span<const float> weights = rows.weights(y + i);
      weigh_lines(left + static_cast<std::size_t>(rows.first(y + i) - box.top) * stride, stride,
                  weights.data(), weights.size(), lines.data() + i * width, width);
      to[i] = out.data() + (y + i) * n * kRgb;
    }
    weigh_columns(lines.data(), width, in_order.data(), n, to);
  }
}

}  // namespace belfry
