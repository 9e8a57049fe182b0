#include "belfry/trainers/program/algorithms_file.h"

#include "belfry/framework/base/error.h"
#include "belfry/framework/base/json.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"

namespace belfry {

AlgorithmsFile::AlgorithmsFile(FileSystem& files, OutputFiles& outputs, const std::string& path,
                               bool deterministic, const Gpus* found)
    : deterministic_(deterministic) {
  if (path.empty()) return;
  const Gpus& all = found ? *found : gpus();
  backend_ = all.backend();
  require(backend_ != nullptr, "--algorithms=", path, ": ", all.why_none());
  file_ = outputs.open("--algorithms", path);
  if (files.target_kind(path) != FileKind::kFile) return;
  const std::vector<std::byte> bytes = files.read(path, kMostJsonBytes);
  text_.assign(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  backend_->give_algorithms(deterministic_, text_, cat("--algorithms=", path));
}

void AlgorithmsFile::write() {
  if (!file_) return;
  std::string text = backend_->algorithms(deterministic_);
  if (text == text_) return;
  file_->write(text);
  text_ = std::move(text);
}

}  // namespace belfry
