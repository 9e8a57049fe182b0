// Where `belfry checkpoint export` writes weights.
#pragma once
#include <string>

#include "belfry/framework/base/file_system.h"

namespace belfry {

struct ExportPlace {
  std::string file;    // to write: the weights, or the index of the shards
  std::string folder;  // of `file`, to be made if it is missing; "" if OUT is a file
};

// `out` is a file; "-", standard output; or a folder, which gets model.safetensors, or shards and
// their index. Changes nothing. Throws FlagError for a name that could be meant as either, and
// IoError if something is there that must stay; whether `file` may be replaced is for the caller to
// ask.
ExportPlace export_place(const std::string& out, bool in_shards, FileSystem& files);

}  // namespace belfry
