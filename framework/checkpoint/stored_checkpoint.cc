#include "belfry/framework/checkpoint/stored_checkpoint.h"

#include <algorithm>
#include <utility>

#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/checkpoint/checkpoint_folder_impl.h"
#include "belfry/framework/checkpoint/stored_checkpoint_impl.h"

namespace belfry {
namespace {

// Turns NotFoundError into IoError: NotFoundError means that there is no checkpoint at all.
template <class F>
auto read_part(const F& read) {
  try {
    return read();
  } catch (const NotFoundError& error) {
    throw IoError(cat(error.what(), ", so the checkpoint is not whole"));
  }
}

CheckpointHead read_head(FileSystem& files, const std::string& path) {
  const std::string directory = find_checkpoint(files, path);
  CheckpointHead head{directory, read_manifest(files, directory)};
  for (const auto& [name, file] : head.manifest.files)
    require<IoError>(name == kModelFile || name == kStateFile, head.directory, "/", kManifestFile,
                     ": lists the file '", shown(name), "', which no checkpoint has");
  return head;
}

}  // namespace

Manifest read_manifest(FileSystem& files, const std::string& directory) {
  const std::string path = cat(directory, "/", kManifestFile);
  const std::vector<std::byte> bytes = read_part([&] { return files.read(path, kMostJsonBytes); });
  return Manifest::parse({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, path);
}

Safetensors read_tensors(FileSystem& files, const std::string& directory, const std::string& name,
                         const Manifest& manifest) {
  const std::string path = cat(directory, "/", name);
  // Reads a file even if it is a little too long, to name what is wrong with it.
  constexpr std::uint64_t kLonger = 1 << 20;
  const auto listed = manifest.files.find(name);
  const std::uint64_t size = listed == manifest.files.end() ? 0 : listed->second.bytes;
  FileBytes bytes =
      read_part([&] { return read_written_once(files, path, std::max(size, size + kLonger)); });
  manifest.find_damage(name, bytes.bytes, path);
  Safetensors content(std::move(bytes), path);
  manifest.verify(name, content);
  return content;
}

std::vector<std::byte> manifest_bytes(FileSystem& files, const std::string& path) {
  try {
    return files.read(cat(find_checkpoint(files, path), "/", kManifestFile), kMostJsonBytes);
  } catch (const Error&) {
    return {};
  }
}

std::span<const std::byte> StoredCheckpoint::values(const std::string& name) const {
  const Manifest::Entry& entry = head.manifest.tensors.at(name);
  const Safetensors& content = entry.file == kModelFile ? model : state;
  return content.values(content.tensors().at(name));
}

CheckpointHead read_checkpoint_head(const std::string& path, FileSystem& files) {
  return read_settled(files, path, [&] { return read_head(files, path); });
}

StoredCheckpoint read_checkpoint(const std::string& path, FileSystem& files) {
  return read_settled(files, path, [&]() -> StoredCheckpoint {
    CheckpointHead head = read_head(files, path);
    Safetensors model = read_tensors(files, head.directory, kModelFile, head.manifest);
    Safetensors state = read_tensors(files, head.directory, kStateFile, head.manifest);
    return {std::move(head), std::move(model), std::move(state)};
  });
}

}  // namespace belfry
