// Images in folders that are named after their classes.
#include <algorithm>
#include <utility>

#include "belfry/framework/base/file_system.h"
#include "belfry/framework/base/log.h"
#include "belfry/framework/base/option_name.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/trainers/data/image_source.h"

namespace belfry {
namespace {

bool is_image_name(std::string_view name) {
  const std::string small = lower(name);
  return std::ranges::any_of(std::initializer_list<const char*>{".jpg", ".jpeg", ".png"},
                             [&](const char* ending) { return small.ends_with(ending); });
}

class FolderImages final : public ImageSource {
 public:
  FolderImages(std::string folder, std::vector<std::string> classes)
      : folder_(std::move(folder)), classes_(std::move(classes)) {
    std::int64_t others = 0;
    std::string other;  // the first one
    for (const std::string& name : folder_classes(folder_)) {
      const auto place = std::ranges::lower_bound(classes_, name);
      if (place == classes_.end() || *place != name)
        throw IoError(about_option("data_dir", folder_, "/", name,
                                   " is no class, as the folder for training has none of "
                                   "that name; remove it, or name another folder (",
                                   the_option("data_dir"), ")"));
      const std::string path = cat(folder_, "/", name);
      for (std::string& file : local_file_system().list(path)) {
        if (file.starts_with('.')) continue;
        if (is_image_name(file))
          files_.push_back({place - classes_.begin(), std::move(file)});
        else if (others++ == 0)
          other = cat(path, "/", file);
      }
    }
    if (others > 0)
      log_warning(folder_, ": ", others,
                  " files are passed over, as their names end in none of "
                  ".jpg, .jpeg and .png; the first one is ",
                  other);
    if (files_.empty())
      throw IoError(about_option("data_dir", folder_,
                                 ": the folders of its classes have no .jpg, .jpeg or .png; "
                                 "folders inside them are not searched. Put the images into them, "
                                 "or name another folder (",
                                 the_option("data_dir"), ")"));
  }

  std::int64_t size() const override { return std::ssize(files_); }

  LabelledImage read(std::int64_t index, const ChooseBox& choose) const override {
    const ImageFile& file = files_[static_cast<std::size_t>(index)];
    return {decode_image(content(index), kMostPixels, choose), file.label};
  }

  BadRecord bad(std::int64_t index, std::string_view reason) const override {
    return {path_of(index), 0, reason};
  }

 private:
  struct ImageFile {
    std::int64_t label;
    std::string name;
  };

  std::string path_of(std::int64_t index) const {
    const ImageFile& file = files_[static_cast<std::size_t>(index)];
    return cat(folder_, "/", classes_[static_cast<std::size_t>(file.label)], "/", file.name);
  }

  std::vector<std::byte> content(std::int64_t index) const try {
    return local_file_system().read(path_of(index), kMostImageBytes);
  } catch (const Error& error) {
    throw bad(index, error.what());
  }

  const std::string folder_;
  const std::vector<std::string> classes_;
  std::vector<ImageFile> files_;
};

}  // namespace

std::vector<std::string> folder_classes(const std::string& folder) {
  std::vector<std::string> classes;
  FileSystem& files = local_file_system();
  for (std::string& name : files.list(folder))
    if (!name.starts_with('.') && files.target_kind(cat(folder, "/", name)) == FileKind::kDirectory)
      classes.push_back(std::move(name));
  return classes;
}

std::unique_ptr<ImageSource> folder_images(std::string folder, std::vector<std::string> classes) {
  return std::make_unique<FolderImages>(std::move(folder), std::move(classes));
}

}  // namespace belfry
