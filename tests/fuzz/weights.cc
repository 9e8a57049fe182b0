// Input: as of checkpoint.cc. What is a sound checkpoint is listed, compared with itself and
// exported.
#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include "belfry/framework/base/crc32.h"
#include "belfry/framework/checkpoint/stored_checkpoint.h"
#include "belfry/tests/fuzz/target.h"
#include "belfry/trainers/commands/checkpoint_diff.h"
#include "belfry/trainers/commands/checkpoint_listing.h"
#include "belfry/trainers/commands/weights_file.h"

namespace {

using namespace belfry;

constexpr char kModel[] = "model.safetensors";

// The manifest with the tensors and checksums of `content`, as of a file that it describes.
void describe(const Safetensors& content, Manifest& manifest) {
  manifest.tensors.clear();
  manifest.files = {{kModel, {content.bytes().size(), crc32_of(content.bytes())}}};
  for (const auto& [name, tensor] : content.tensors())
    manifest.tensors[name] = {.file = kModel,
                              .dtype = tensor.dtype,
                              .shape = tensor.shape,
                              .crc32 = crc32_of(content.values(tensor))};
}

void use(const StoredCheckpoint& checkpoint) {
  list_checkpoint(checkpoint.head);
  test::check(compare_checkpoints(checkpoint, checkpoint).none(), "differs from itself");
  for (const WeightLayout layout : {WeightLayout::kBelfry, WeightLayout::kTorch}) {
    const std::string file = export_weights(checkpoint, {.layout = layout, .state = true}).file;
    const auto bytes = std::as_bytes(std::span(file));
    const Safetensors again({bytes.begin(), bytes.end()}, "exported");
    test::check(again.tensors().size() == checkpoint.head.manifest.tensors.size(), "other tensors");
  }
}

}  // namespace

std::size_t belfry::test::largest_allowed(const std::uint8_t*, std::size_t size) {
  return mib_or_twice(size);
}

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  const std::span input(data + 2, size - 2);
  const std::size_t split = std::min<std::size_t>(data[0] + 256 * data[1], input.size());
  const std::string_view text(reinterpret_cast<const char*>(input.data()), split);
  Manifest manifest;
  std::optional<Safetensors> content, optimizer;
  test::may_refuse([&] { manifest = Manifest::parse(text, "manifest.json"); });
  test::may_refuse([&] {
    content.emplace(test::bytes_of(input.subspan(split)), kModel);
    optimizer.emplace(test::bytes_of(input.subspan(split)), kModel);
  });
  if (!content) return 0;
  describe(*content, manifest);
  use({{"directory", manifest}, std::move(*content), std::move(*optimizer)});
  return 0;
}
