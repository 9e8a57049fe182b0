// Images of tar files, as WebDataset has them.
#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <utility>

#include "belfry/framework/base/activity.h"
#include "belfry/framework/base/file_system.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/trainers/data/byte_input.h"
#include "belfry/trainers/data/image_source.h"
#include "belfry/trainers/data/record_index.h"
#include "belfry/trainers/data/tar_members.h"

namespace belfry {
namespace {

// Labels of samples that cannot be used. Each run that meets one says what is wrong.
constexpr std::int64_t kNoLabel = std::numeric_limits<std::int64_t>::min();
constexpr std::int64_t kWrongLabel = kNoLabel + 1;
constexpr const char* kChanged = "the file has changed since it was indexed";

class PlainBytes final : public ForwardBytes {
 public:
  explicit PlainBytes(ReadableFile& file) : file_(file) {}
  std::size_t read(std::span<std::byte> out) override {
    note_progress();
    const std::size_t got = file_.read(out);
    at_ += got;
    return got;
  }
  bool skip(std::uint64_t count) override {
    if (count > file_.size() - at_) return false;
    at_ += count;
    if (count > 0) file_.seek(at_);
    return true;
  }

 private:
  ReadableFile& file_;
  std::uint64_t at_ = 0;
};

class GzippedBytes final : public ForwardBytes {
 public:
  explicit GzippedBytes(GzipScan& scan) : scan_(scan) {}
  std::size_t read(std::span<std::byte> out) override { return scan_.read(out); }
  bool skip(std::uint64_t count) override {
    while (count > 0) {
      const auto part =
          std::span(unwanted_).first(std::min<std::uint64_t>(count, unwanted_.size()));
      if (scan_.read(part) < part.size()) return false;
      count -= part.size();
    }
    return true;
  }

 private:
  GzipScan& scan_;
  std::vector<std::byte> unwanted_ = std::vector<std::byte>(64 << 10);
};

// "a/b.c/key" and "cls" of "a/b.c/key.cls".
std::pair<std::string_view, std::string> key_and_kind(std::string_view name) {
  const std::size_t dot = std::min(name.find('.', name.rfind('/') + 1), name.size());
  return {name.substr(0, dot), lower(name.substr(std::min(dot + 1, name.size())))};
}

std::int64_t label_in(std::string_view text) {
  constexpr std::string_view kSpaces = " \t\r\n";
  const std::size_t begin = std::min(text.find_first_not_of(kSpaces), text.size());
  text = text.substr(begin, text.find_last_not_of(kSpaces) + 1 - begin);
  std::int64_t label = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), label);
  return error == std::errc() && end == text.data() + text.size() && label > kWrongLabel
             ? label
             : kWrongLabel;
}

// A record is a sample's image, or without one its first member.
std::vector<IndexedRecord> tar_samples(ForwardBytes& bytes, const std::string& name) {
  constexpr std::size_t kMostDigits = 32;  // with spaces
  TarMembers members(bytes, name);
  std::vector<IndexedRecord> samples;
  std::string key;
  bool has_image = false;
  while (const auto member = members.next()) {
    const auto [its_key, kind] = key_and_kind(member->name);
    const bool is_image = kind == "jpg" || kind == "jpeg" || kind == "png",
               is_label = kind == "cls";
    if (!member->is_file || !(is_image || is_label)) continue;
    if (samples.empty() || its_key != key) {
      key = its_key;
      has_image = false;
      samples.push_back({.offset = member->offset, .head = member->head, .label = kNoLabel});
    }
    IndexedRecord& sample = samples.back();
    if (is_label) {
      sample.label = label_in(members.content(kMostDigits));
    } else if (!has_image) {
      has_image = true;
      sample.offset = member->offset;
      sample.head = member->head;
      sample.length = member->length;
    }
  }
  return samples;
}

RecordIndex scan_tar(ReadableFile& file, const std::string& name) {
  RecordIndex index;
  if (is_gzipped(file)) {
    GzipScan scan(file, name);
    GzippedBytes bytes(scan);
    index.records = tar_samples(bytes, name);
    std::vector<std::byte> rest(64 << 10);  // to its end, so that zlib checks its sums
    while (scan.read(rest) == rest.size()) {
    }
    index.points = scan.take_points();
  } else {
    PlainBytes bytes(file);
    index.records = tar_samples(bytes, name);
  }
  return index;
}

class TarImages final : public ImageSource {
 public:
  explicit TarImages(std::vector<std::string> paths) {
    for (std::string& path : paths) {
      const std::size_t shard = shards_.size();
      RecordIndex index = record_index(local_file_system(), path, IndexedKind::kTar,
                                       [&](ReadableFile& file) { return scan_tar(file, path); });
      for (const IndexedRecord& record : index.records) samples_.push_back({shard, record});
      shards_.push_back({std::move(path), std::move(index.points)});
    }
  }

  std::int64_t size() const override { return std::ssize(samples_); }

  LabelledImage read(std::int64_t index, const ChooseBox& choose) const override {
    const IndexedRecord& record = at(index).record;
    require(record.length <= kMostImageBytes, "the image takes ", record.length,
            " bytes, more than the ", kMostImageBytes, " that one may have");
    const std::vector<std::byte> bytes = read_member(index);
    const TarMember member = member_in(bytes, index);
    const std::string name = shown(key_and_kind(member.name).first);
    require(record.length > 0, name, ": has no .jpg, .jpeg or .png, or an empty one");
    require(member.length == record.length, kChanged);
    require(record.label != kNoLabel, name, ": has no .cls beside the image");
    require(record.label != kWrongLabel, name, ".cls holds no whole number");
    try {
      return {
          decode_image(std::span(bytes).subspan(record.head, record.length), kMostPixels, choose),
          record.label};
    } catch (const InvalidArgument& error) {
      throw InvalidArgument(cat(shown(member.name), ": ", error.what()));
    }
  }

  BadRecord bad(std::int64_t index, std::string_view reason) const override {
    return {shard_of(index).path, at(index).record.offset, reason};
  }

 private:
  struct Shard {
    std::string path;
    GzipPoints points;
  };
  struct Sample {
    std::size_t shard;
    IndexedRecord record;
  };

  const Sample& at(std::int64_t index) const { return samples_[static_cast<std::size_t>(index)]; }
  const Shard& shard_of(std::int64_t index) const { return shards_[at(index).shard]; }

  // Its headers and its content.
  std::vector<std::byte> read_member(std::int64_t index) const {
    const Shard& shard = shard_of(index);
    const IndexedRecord& record = at(index).record;
    FileSystem& files = local_file_system();
    const auto file = files.open(shard.path);
    std::vector<std::byte> bytes(record.head + record.length);
    std::size_t got = 0;
    if (shard.points.places.empty()) {
      file->seek(record.offset);
      got = file->read(bytes);
    } else {
      got = read_gzipped(*file, shard.path, shard.points, *files.open(index_path(shard.path)),
                         record.offset, bytes);
    }
    require(got == bytes.size(), "the file ends before its ", bytes.size(), " bytes");
    return bytes;
  }

  // Its headers once more: a file that has changed is noticed, and errors name the sample.
  TarMember member_in(std::span<const std::byte> bytes, std::int64_t index) const try {
    BytesFile file(bytes);
    PlainBytes forward(file);
    const auto member = TarMembers(forward, shard_of(index).path).next();
    require<IoError>(member && member->head == at(index).record.head, kChanged);
    return *member;
  } catch (const IoError&) {
    throw bad(index, kChanged);
  }

  std::vector<Shard> shards_;
  std::vector<Sample> samples_;
};

}  // namespace

std::unique_ptr<ImageSource> tar_images(std::vector<std::string> paths) {
  return std::make_unique<TarImages>(std::move(paths));
}

}  // namespace belfry
