// Input: a length, little-endian in two bytes; a manifest of this length; a safetensors file.
#include <algorithm>
#include <cstdio>
#include <optional>
#include <string_view>

#include "belfry/framework/base/crc32.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/checkpoint/checkpoint_manifest.h"
#include "belfry/framework/checkpoint/safetensors.h"
#include "belfry/tests/fuzz/target.h"

namespace {

using namespace belfry;

// The manifest with its own checksum made right, which mutations seldom leave so.
std::string with_checksum(std::string_view text) {
  const std::string_view before = text.substr(0, text.rfind("\"crc32\""));
  constexpr std::size_t kRoom = 16;
  char digits[kRoom];
  std::snprintf(digits, kRoom, "%08x", crc32_of(std::as_bytes(std::span(before))));
  return cat(before, "\"crc32\":\"", digits, "\"}");
}

// What was read is written back as a file with the same tensors.
void check_layout(const Safetensors& content) {
  std::vector<StoredTensor> tensors;
  for (const auto& [name, tensor] : content.tensors()) tensors.push_back(tensor);
  const std::string head = lay_out_safetensors(tensors, content.metadata());
  const auto head_bytes = std::as_bytes(std::span(head));
  std::vector<std::byte> file(head_bytes.begin(), head_bytes.end());
  for (const StoredTensor& tensor : tensors) {
    const auto values = content.values(content.tensors().at(tensor.name));
    file.insert(file.end(), values.begin(), values.end());
  }
  const Safetensors again(file, "written");
  test::check(again.metadata() == content.metadata(), "other metadata");
  test::check(again.tensors().size() == content.tensors().size(), "other tensors");
  for (const auto& [name, tensor] : again.tensors()) {
    const StoredTensor& before = content.tensors().at(name);
    test::check(tensor.dtype == before.dtype && tensor.shape == before.shape, "another type");
    test::check(std::ranges::equal(again.values(tensor), content.values(before)), "other values");
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
  const std::vector<std::byte> file = test::bytes_of(input.subspan(split));
  std::optional<Manifest> manifest;
  std::optional<Safetensors> content;
  test::may_refuse([&] { manifest = Manifest::parse(text, "manifest.json"); });
  test::may_refuse([&] { manifest = Manifest::parse(with_checksum(text), "manifest.json"); });
  test::may_refuse([&] { content.emplace(file, "model.safetensors"); });
  if (manifest)
    test::check(Manifest::parse(manifest->str(), "again").str() == manifest->str(),
                "printing a manifest is not canonical");
  if (content) check_layout(*content);
  if (manifest && content)
    test::may_refuse([&] { manifest->verify("model.safetensors", *content); });
  if (manifest) test::may_refuse([&] { manifest->find_damage("model.safetensors", file, "x"); });
  return 0;
}
