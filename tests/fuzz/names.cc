// Input: a file of names. What is one renames a few tensors, and names what it makes of them back.
#include <optional>
#include <string_view>

#include "belfry/tests/fuzz/target.h"
#include "belfry/trainers/names/renamed_tensors.h"

namespace {

using namespace belfry;

TensorSource source(const char* const* names, std::size_t count) {
  TensorSource all{.types = {},
                   .read = [](const std::string&) { return std::vector<std::byte>(96); },
                   .place = [](const std::string& name) { return name; }};
  for (std::size_t i = 0; i < count; ++i)
    all.types[names[i]] = {i % 2 == 0 ? Shape{4, 6} : Shape{2, 3, 4}, DType::kF32};
  return all;
}

std::optional<RenamedTensors> rename(TensorSource from, const NameRules& rules, RenamingWay way) {
  std::optional<RenamedTensors> renamed;
  test::may_refuse([&] {
    renamed.emplace(std::move(from), rules, RenamingOptions{way, nullptr, true});
  });
  if (!renamed) return {};
  for (const auto& [name, target] : renamed->tensors())
    test::check(renamed->value(name).size() == static_cast<std::size_t>(target.type.bytes()),
                "a value of another size");
  return renamed;
}

}  // namespace

std::size_t belfry::test::largest_allowed(const std::uint8_t*, std::size_t size) {
  return (std::size_t{1} << 20) + 64 * size;
}

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr const char* kTheirs[] = {"a", "b", "h.0.q", "h.0.k", "h.0.v", "h.1.q"};
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  std::optional<NameRules> rules;
  test::may_refuse([&] { rules = NameRules::parse(text, "fuzz"); });
  if (!rules) return 0;
  const auto ours = rename(source(kTheirs, std::size(kTheirs)), *rules, RenamingWay::kToOurs);
  if (!ours) return 0;
  TensorSource back{.types = {},
                    .read = [&](const std::string& name) { return ours->value(name); },
                    .place = [](const std::string& name) { return name; }};
  for (const auto& [name, target] : ours->tensors()) back.types[name] = target.type;
  rename(std::move(back), *rules, RenamingWay::kToTheirs);
  return 0;
}
