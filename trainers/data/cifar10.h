// CIFAR-10 from its binary files, or generated images instead.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "belfry/framework/base/file_system.h"
#include "belfry/trainers/data/dataset.h"

namespace belfry::data {

inline constexpr std::int64_t kCifarSide = 32, kCifarChannels = 3;  // pixels; red, green, blue
inline constexpr int kCifarClasses = 10;

// Fields: "image" f32 [32,32,3], each channel less its mean over CIFAR-10 and divided by its
// deviation; "label" i32 scalar, 0 to 9. Training shifts each image by up to 4 pixels both ways,
// fills the gaps with zeros, and mirrors half of the images. Both depend on seed, epoch and sample.
//
// With dirs.data_dir it reads CIFAR-10's binary files there, gzipped (.bin.gz) or not: all
// data_batch_*.bin for training, test_batch.bin for tests. They are read when samples are first
// needed; that throws NotFoundError or IoError naming file, offset and what is wrong. An empty file
// is a bad record. Without dirs.data_dir it gives generated_images(): 10000 for training, 2000
// others for tests.
std::unique_ptr<Dataset> cifar10(const RunDirs& dirs, bool train);

// The content of such files.
struct CifarImages {
  std::vector<std::uint8_t> pixels;  // [n,32,32,3]
  std::vector<std::uint8_t> labels;  // [n]
};

// Files of CIFAR-10 have 10,000 images each. One with more than this is something else, or gzip
// data that would fill all memory.
inline constexpr std::size_t kMostCifarImages = 100'000;

// Adds the images of a file: records of a label, then the planes of red, green and blue, 3073 bytes
// each. A label above 9 and a record that the file cuts off are bad records. If gzip data are cut
// off, the rest of the file from that record on is a bad record. If they are corrupt, the whole
// file is. If there are more than `most` images, or no memory is left, the rest is one bad record.
// Throws as BadRecords::note() does.
void read_cifar(ReadableFile& file, const std::string& name, BadRecords& bad, CifarImages& to,
                std::size_t most = kMostCifarImages);

}  // namespace belfry::data
