// Encoded images with their labels, as each format of files has them.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "belfry/trainers/data/bad_records.h"
#include "belfry/trainers/data/decode_image.h"

namespace belfry {

// The longest image. A wrong length would take all memory.
inline constexpr std::uint64_t kMostImageBytes = std::uint64_t{1} << 30;

// Any thread may read.
class ImageSource {
 public:
  struct LabelledImage {
    DecodedImage image;
    std::int64_t label = 0;
  };

  virtual ~ImageSource() = default;
  virtual std::int64_t size() const = 0;
  // The image, or at least the part that is chosen. Throws BadRecord, or InvalidArgument saying
  // what is wrong with the image.
  virtual LabelledImage read(std::int64_t index, const ChooseBox& choose) const = 0;
  // The error about image `index`.
  virtual BadRecord bad(std::int64_t index, std::string_view reason) const = 0;
};

// The records of TFRecord files. Notes those that are too long.
std::unique_ptr<ImageSource> tf_record_images(std::vector<std::string> paths, BadRecords& bad);

// The files FOLDER/CLASS/*.jpg, *.jpeg and *.png, sorted; the label is the place of CLASS in
// `classes`. Names with a dot in front are passed over. Throws IoError for a folder that is no
// class, or if there are no images.
std::unique_ptr<ImageSource> folder_images(std::string folder, std::vector<std::string> classes);
// The names of the folders in `folder`, sorted.
std::vector<std::string> folder_classes(const std::string& folder);

// The samples of tar files, plain or gzipped: neighbouring members whose names are equal up to the
// first dot of the last part. Other members than images and .cls are passed over, and so are a
// sample's images after its first one.
std::unique_ptr<ImageSource> tar_images(std::vector<std::string> paths);

// The arrays x, u8 [n,height,width,3], and y, labels of a whole type [n], of FOLDER/STEM.npz, or of
// STEM_x.npy and STEM_y.npy. Throws IoError for other ones.
std::unique_ptr<ImageSource> array_images(const std::string& folder, const std::string& stem);

}  // namespace belfry
