// MNIST, or generated digits instead.
#pragma once
#include <cstdint>
#include <memory>

#include "belfry/trainers/data/dataset.h"

namespace belfry::data {

// Fields: "image" f32 [28,28,1] in [0, 1], white on black; "label" i32 scalar, 0 to 9.
//
// With dirs.data_dir it reads MNIST (or a set of the same form) from the four IDX files there:
// train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-idx3-ubyte, t10k-labels-idx1-ubyte,
// gzipped or not. They are read when samples are first needed; that throws NotFoundError or IoError
// naming file, offset and what was expected; it also throws IoError naming both files if their
// headers declare different numbers of samples. A label above 9 is a bad record, as is the rest of
// a truncated file, or the whole of a corrupt one. Without dirs.data_dir it gives generated_digits:
// 60000 for training, 10000 others for tests.
std::unique_ptr<Dataset> mnist(const RunDirs& dirs, bool train);

// `count` digits drawn from strokes (see generated_digits.h), in the form of mnist(). Sample i
// depends on (seed, i) alone.
std::unique_ptr<Dataset> generated_digits(std::int64_t count, std::uint64_t seed);

}  // namespace belfry::data
