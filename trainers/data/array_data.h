// Samples from NumPy's arrays.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "belfry/trainers/data/dataset.h"

namespace belfry::data {

struct ArrayOptions {
  // Of a sample. Field "x" is the array x of train.npz, or train_x.npy; test.npz and test_x.npy for
  // tests. Row i is sample i. Arrays of u8, i32, i64, f32, f64 become the field's type, f32, f64,
  // i32 or i64; whole numbers must fit, and floating ones stay such.
  std::vector<Dataset::Field> fields;
  std::string train_files = "train", test_files = "test";  // how their names begin
  int classes = 10;                                        // of made-up labels
};

// A source for recipes:
//   .data = data::arrays({.fields = {{"x", DType::kF32, {28, 28, 1}}, {"y", DType::kI32, {}}}})
// Rows are read when they are needed, so arrays may be larger than memory, except for packed ones
// (numpy.savez_compressed). Without RunDirs::data_dir it gives synthetic_data().
DatasetFactory arrays(ArrayOptions options);

}  // namespace belfry::data
