#include "belfry/framework/group/agreement.h"

#include <algorithm>
#include <vector>

#include "belfry/framework/base/check_hash.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"

namespace belfry {
namespace {

constexpr char kEnd = '\0';  // of a name or a value

std::string text_of(std::span<const AgreedItem> items) {
  std::string text;
  for (const AgreedItem& item : items) text += cat(item.name, kEnd, item.value, kEnd);
  return text;
}

std::vector<AgreedItem> items_in(std::string_view text) {
  std::vector<AgreedItem> items;
  const auto next = [&] {
    const std::size_t end = std::min(text.find(kEnd), text.size());  // it may lack the last one
    std::string part(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    return part;
  };
  while (!text.empty()) {
    std::string name = next();
    items.push_back({std::move(name), next()});
  }
  return items;
}

std::string digest(std::string_view text) { return std::to_string(check_hash(text)); }

std::string told(const std::string& value) { return value.empty() ? "none" : shown(value); }

bool has(std::span<const AgreedItem> items, const AgreedItem& item) {
  return std::ranges::find(items, item.name, &AgreedItem::name) != items.end();
}

std::string lacking(const AgreedItem& theirs) {
  return cat("rank 0 lacks ", theirs.name, ", which is ", told(theirs.value), " there");
}
std::string lacks(const AgreedItem& ours) {
  return cat("it lacks ", ours.name, ", which is ", told(ours.value), " in rank 0");
}

// The first item that only one of the two has; "" if there is none.
std::string only_in_one(std::span<const AgreedItem> first, std::span<const AgreedItem> other) {
  for (const AgreedItem& ours : first)
    if (!has(other, ours)) return lacks(ours);
  for (const AgreedItem& theirs : other)
    if (!has(first, theirs)) return lacking(theirs);
  return "";
}

// "the seed is 2 there, and 1 in rank 0".
std::string difference(std::span<const AgreedItem> first, std::span<const AgreedItem> other) {
  const auto [ours, theirs] = std::ranges::mismatch(first, other);
  if (ours == first.end()) return lacking(*theirs);
  if (theirs == other.end()) return lacks(*ours);
  if (ours->name == theirs->name)
    return cat(ours->name, " is ", told(theirs->value), " there, and ", told(ours->value),
               " in rank 0");
  const bool new_here = !has(first, *theirs), new_there = !has(other, *ours);
  if (new_here != new_there) return new_here ? lacking(*theirs) : lacks(*ours);
  // Both have both items, in different orders. An item that only one of the two has may be the
  // cause.
  const std::string missing = new_here ? "" : only_in_one(first, other);
  if (!missing.empty()) return missing;
  return cat(theirs->name, ", which is ", told(theirs->value), ", comes where rank 0 has ",
             ours->name, ", which is ", told(ours->value));
}

}  // namespace

void require_agreement(Processes& processes, std::span<const AgreedItem> items) {
  const std::string own = text_of(items);
  const std::vector<std::string> digests = processes.gather(digest(own));
  const auto differs = std::ranges::find_if(digests, [&](auto& d) { return d != digests[0]; });
  if (differs == digests.end()) return;
  const auto rank = static_cast<int>(differs - digests.begin());
  const bool compared = processes.rank() == 0 || processes.rank() == rank;
  const std::vector<std::string> texts = processes.gather(compared ? own : "");
  throw InvalidArgument(
      cat("rank ", rank, " on ", processes.host(rank), " does not agree with rank 0 on ",
          processes.host(0), ": ",
          difference(items_in(texts[0]), items_in(texts[static_cast<std::size_t>(rank)])),
          "; start all processes with the same program, options and data"));
}

}  // namespace belfry
