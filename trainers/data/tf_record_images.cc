// Images of TFRecord files.
#include <utility>

#include "belfry/framework/base/file_system.h"
#include "belfry/framework/base/require.h"
#include "belfry/trainers/data/image_source.h"
#include "belfry/trainers/data/record_index.h"
#include "belfry/trainers/data/tf_example.h"
#include "belfry/trainers/data/tf_record.h"

namespace belfry {
namespace {

class RecordImages final : public ImageSource {
 public:
  RecordImages(std::vector<std::string> paths, BadRecords& bad) : paths_(std::move(paths)) {
    for (std::size_t f = 0; f < paths_.size(); ++f)
      for (const TfRecordPlace& place : indexed_tf_records(local_file_system(), paths_[f], bad))
        records_.push_back({f, place});
  }

  std::int64_t size() const override { return std::ssize(records_); }

  LabelledImage read(std::int64_t index, const ChooseBox& choose) const override {
    const Record& record = at(index);
    const std::string& path = paths_[record.file];
    const std::vector<std::byte> data =
        read_tf_record(*local_file_system().open(path), path, record.place);
    const TfExample example(data);
    const auto encoded = example.bytes("image/encoded");
    require(encoded.has_value(), "no feature image/encoded");
    const auto label = example.integer("image/class/label");
    require(label.has_value(), "no feature image/class/label");
    return {decode_image(*encoded, kMostPixels, choose), *label};
  }

  BadRecord bad(std::int64_t index, std::string_view reason) const override {
    return {paths_[at(index).file], at(index).place.offset, reason};
  }

 private:
  struct Record {
    std::size_t file;
    TfRecordPlace place;
  };
  const Record& at(std::int64_t index) const { return records_[static_cast<std::size_t>(index)]; }

  const std::vector<std::string> paths_;
  std::vector<Record> records_;
};

}  // namespace

std::unique_ptr<ImageSource> tf_record_images(std::vector<std::string> paths, BadRecords& bad) {
  return std::make_unique<RecordImages>(std::move(paths), bad);
}

}  // namespace belfry
