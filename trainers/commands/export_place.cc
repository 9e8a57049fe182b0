#include "belfry/trainers/commands/export_place.h"

#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/checkpoint/checkpoint.h"
#include "belfry/framework/checkpoint/tensor_files.h"
#include "belfry/trainers/util/flag_values.h"

namespace belfry {
namespace {

bool is_export_folder(const std::string& out, bool in_shards, FileSystem& files) {
  const FileKind kind = files.target_kind(out);
  if (out == "-" && !in_shards) return false;
  if (kind == FileKind::kDirectory || out.ends_with('/')) return true;
  if (in_shards) {
    require<FlagError>(
        kind == FileKind::kNone && !out.ends_with(".safetensors") && out != "-", "OUT=", out,
        " is a file, but shards and their index go into a folder; name one, or leave "
        "--max_shard_mb out");
    return true;
  }
  const bool has_ending = out.find('.', out.rfind('/') + 1) != out.npos;
  require<FlagError>(has_ending || kind != FileKind::kNone, "OUT=", out,
                     ": is it a file or a folder? Name ", out, ".safetensors or ", out, "/");
  return false;
}

}  // namespace

ExportPlace export_place(const std::string& out, bool in_shards, FileSystem& files) {
  if (!is_export_folder(out, in_shards, files)) return {.file = out, .folder = ""};
  require<IoError>(!is_checkpoint(out, files), out,
                   " is a checkpoint, and would be one no longer; write elsewhere");
  const auto path_of = [&](const char* name) {
    return cat(out, out.ends_with('/') ? "" : "/", name);
  };
  const std::string other = path_of(in_shards ? kWeightsFile : kShardIndex);
  require<IoError>(!files.exists(other), other,
                   " is there, and programs may read that instead; nothing was changed: write "
                   "elsewhere, or remove it");
  return {.file = path_of(in_shards ? kShardIndex : kWeightsFile), .folder = out};
}

}  // namespace belfry
