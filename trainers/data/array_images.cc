// Images in arrays: pixels u8 [n,height,width,3], and labels i32, i64 or u8 [n].
#include <array>
#include <bit>
#include <cstring>
#include <span>
#include <utility>

#include "belfry/framework/base/option_name.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/trainers/data/image_source.h"
#include "belfry/trainers/data/npy_array.h"

namespace belfry {
namespace {

class ArrayImages final : public ImageSource {
 public:
  ArrayImages(NpyArray pixels, NpyArray labels)
      : pixels_(std::move(pixels)), labels_(std::move(labels)) {
    const Shape& shape = pixels_.shape();
    const auto refuse = [](const auto&... parts) {
      throw IoError(about_option("data_dir", parts...,
                                 "; save the arrays anew, or name another folder (",
                                 the_option("data_dir"), ")"));
    };
    if (pixels_.dtype() != DType::kU8 || shape.rank() != 4 || shape[3] != 3)
      refuse(pixels_.name(), " is ", name_of(pixels_.dtype()), " ", shape,
             ", where images are u8 [n,height,width,3]");
    const bool whole = labels_.dtype() == DType::kI32 || labels_.dtype() == DType::kI64 ||
                       labels_.dtype() == DType::kU8;
    if (!whole || labels_.shape() != Shape{shape[0]})
      refuse(labels_.name(), " is ", name_of(labels_.dtype()), " ", labels_.shape(),
             ", where the labels of ", pixels_.name(), " are i32, i64 or u8 [", shape[0], "]");
  }

  std::int64_t size() const override { return pixels_.rows(); }

  LabelledImage read(std::int64_t index, const ChooseBox& /*choose*/) const override {
    DecodedImage image;
    image.height = pixels_.shape()[1];
    image.width = pixels_.shape()[2];
    image.box = {0, 0, image.height, image.width};
    image.pixels.resize(pixels_.row_bytes());
    pixels_.read(index, std::as_writable_bytes(std::span(image.pixels)));
    return {std::move(image), label(index)};
  }

  BadRecord bad(std::int64_t index, std::string_view reason) const override {
    return {pixels_.name(), pixels_.offset(index), cat("row ", index, ": ", reason)};
  }

 private:
  std::int64_t label(std::int64_t index) const {
    std::array<std::byte, sizeof(std::int64_t)> bytes{};
    labels_.read(index, std::span(bytes).first(labels_.row_bytes()));
    if (labels_.dtype() != DType::kI32) return std::bit_cast<std::int64_t>(bytes);
    std::int32_t value;
    std::memcpy(&value, bytes.data(), sizeof value);
    return value;
  }

  const NpyArray pixels_, labels_;
};

}  // namespace

std::unique_ptr<ImageSource> array_images(const std::string& folder, const std::string& stem) {
  FileSystem& files = local_file_system();
  return std::make_unique<ArrayImages>(open_array(files, folder, stem, "x"),
                                       open_array(files, folder, stem, "y"));
}

}  // namespace belfry
