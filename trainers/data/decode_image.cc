#include "belfry/trainers/data/decode_image.h"

#include <algorithm>
#include <cmath>
#include <csetjmp>
#include <cstdio>
#include <string>

#include <jpeglib.h>
// After jpeglib.h, which it needs.
#include <jerror.h>
#include <png.h>

#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
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

  // `line` has room for a row of the file. Changes no variable of its own between setjmp and a
  // jump.
  bool read_pixels(std::span<std::uint8_t> line, std::uint8_t* const to) {
    progress.progress_monitor = check_scans;
    jpeg.progress = &progress;
    if (setjmp(errors.leave)) return false;
    jpeg_start_decompress(&jpeg);
    while (jpeg.output_scanline < jpeg.output_height) read_row(line, to);
    jpeg_finish_decompress(&jpeg);
    return true;
  }

  void read_row(std::span<std::uint8_t> line, std::uint8_t* to) {
    to += kRgb * jpeg.output_width * jpeg.output_scanline;
    JSAMPROW row = line.data();
    jpeg_read_scanlines(&jpeg, &row, 1);
    if (jpeg.out_color_space == JCS_CMYK)
      rgb_of_cmyk(line, to);
    else
      std::copy(line.begin(), line.end(), to);
  }
};

DecodedImage decode_jpeg(std::span<const std::byte> file, std::int64_t most) {
  JpegDecoder decoder{};
  struct End {
    jpeg_decompress_struct& jpeg;
    ~End() { jpeg_destroy_decompress(&jpeg); }
  } const end{decoder.jpeg};
  require(decoder.read_header(file), "JPEG: ", decoder.errors.text);
  check_image_size(decoder.jpeg.image_height, decoder.jpeg.image_width, most);
  DecodedImage image{.height = decoder.jpeg.image_height, .width = decoder.jpeg.image_width};
  decoder.errors.most_scans = static_cast<int>(std::clamp<std::int64_t>(
      kMostPixelsInScans / (image.height * image.width), kLeastScans, kMostScans));
  image.pixels.resize(static_cast<std::size_t>(image.height * image.width) * kRgb);
  const std::size_t parts = decoder.jpeg.out_color_space == JCS_CMYK ? 4 : kRgb;
  std::vector<std::uint8_t> line(static_cast<std::size_t>(image.width) * parts);
  require(decoder.read_pixels(line, image.pixels.data()), "JPEG: ", decoder.errors.text);
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

// The pixels of a line that make one pixel of the result, and their weights.
struct Taps {
  std::int64_t first = 0;
  std::vector<float> weights;
};

std::vector<Taps> taps_of(double begin, double length, std::int64_t side, std::int64_t size) {
  const double step = length / static_cast<double>(side), reach = std::max(step, 1.0);
  std::vector<Taps> all(static_cast<std::size_t>(side));
  for (std::size_t i = 0; i < all.size(); ++i) {
    const double middle = begin + (static_cast<double>(i) + 0.5) * step;
    const auto at = [&](double x) {
      return std::clamp(static_cast<std::int64_t>(std::floor(x)), std::int64_t{0}, size - 1);
    };
    Taps& taps = all[i];
    taps.first = at(middle - reach);
    float sum = 0;
    for (std::int64_t p = taps.first; p <= at(middle + reach); ++p) {
      const double away = std::fabs(static_cast<double>(p) + 0.5 - middle) / reach;
      taps.weights.push_back(static_cast<float>(std::max(0.0, 1 - away)));
      sum += taps.weights.back();
    }
    for (float& weight : taps.weights) weight /= sum;
  }
  return all;
}

}  // namespace

DecodedImage decode_image(std::span<const std::byte> file, std::int64_t most) {
  if (begins(file, "\xFF\xD8\xFF")) return decode_jpeg(file, most);
  if (begins(file, "\x89PNG\r\n\x1A\n")) return decode_png(file, most);
  throw InvalidArgument(cat("neither JPEG nor PNG: ", file.size(), " bytes"));
}

void resize_image(const DecodedImage& image, const ImagePart& part, std::int64_t side,
                  bool mirrored, std::span<float> out) {
  const auto n = static_cast<std::size_t>(side);
  const auto width = static_cast<std::size_t>(image.width);
  require(out.size() == n * n * kRgb, "room for ", out.size(), " values of ", side, " x ", side,
          " pixels");
  const std::vector<Taps> rows = taps_of(part.top, part.height, side, image.height);
  const std::vector<Taps> columns = taps_of(part.left, part.width, side, image.width);
  std::vector<float> line(width * kRgb);  // the image's line for a row of the result
  for (std::size_t y = 0; y < n; ++y) {
    std::ranges::fill(line, 0.0f);
    const std::uint8_t* from =
        image.pixels.data() + static_cast<std::size_t>(rows[y].first) * line.size();
    for (const float weight : rows[y].weights)
      for (float& value : line) value += weight * static_cast<float>(*from++);
    for (std::size_t x = 0; x < n; ++x) {
      float* const to = out.data() + (y * n + (mirrored ? n - 1 - x : x)) * kRgb;
      const float* pixel = line.data() + static_cast<std::size_t>(columns[x].first) * kRgb;
      std::fill_n(to, kRgb, 0.0f);
      for (const float weight : columns[x].weights)
        for (std::size_t c = 0; c < kRgb; ++c) to[c] += weight * *pixel++;
    }
  }
}

}  // namespace belfry
