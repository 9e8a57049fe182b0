// What check_equivalence() found, as text and JSON.
#include <algorithm>

#include "belfry/allreduce/choice.h"
#include "belfry/trainers/equivalence.h"
#include "belfry/trainers/statistics.h"

namespace belfry {
namespace {

std::string row(const std::string& mode, const std::string& variable, const std::string& ulp,
                const std::string& relative, const std::string& peak, const std::string& moved,
                const std::string& seconds) {
  return cat("  ", padded(mode, -36), " ", padded(variable, -28), " ", padded(ulp, 10), " ",
             padded(relative, 12), " ", padded(peak, 14), " ", padded(moved, 14), " ",
             padded(seconds, 9), "\n");
}

std::string rows(const Equivalence::Entry& entry) {
  const std::string name = cat(entry.mode.name(), entry.canonical ? "" : " (not canonical)");
  if (!entry.refusal.empty()) return cat("  ", name, ": refused: ", entry.refusal, "\n");
  std::string text = row(name, cat("(all ", entry.values.size(), ")"), cat(entry.max_ulp()),
                         significant(entry.max_relative()), cat(entry.peak_bytes),
                         cat(entry.bytes_moved), rounded(entry.seconds, 3));
  if (entry.chosen)
    text +=
        cat("    chose ",
            describe_strategy(entry.chosen->allreduce, entry.chosen->bucket_mb.value_or(0)), "\n");
  for (const auto& [variable, ulp, relative] : entry.values)
    if (ulp > 0) text += row("", variable, cat(ulp), significant(relative), "", "", "");
  for (const std::string& copy : entry.differing_replicas)
    text += cat("    ", copy, " differs from tower 0's\n");
  if (entry.divergence) text += cat("    diverged: ", entry.divergence, "\n");
  return text;
}

}  // namespace

std::uint64_t Equivalence::Entry::max_ulp() const {
  std::uint64_t most = 0;
  for (const Distance& distance : values) most = std::max(most, distance.max_ulp);
  return most;
}

double Equivalence::Entry::max_relative() const {
  double most = 0;
  for (const Distance& distance : values) most = std::max(most, distance.max_relative);
  return most;
}

bool Equivalence::finite() const {
  return std::ranges::none_of(entries, [](const Entry& entry) { return bool(entry.divergence); });
}

bool Equivalence::holds() const {
  return std::ranges::none_of(entries, [](const Entry& entry) {
    return !entry.differing_replicas.empty() || (entry.canonical && entry.max_ulp() > 0);
  });
}

Json Equivalence::to_json() const {
  Json list = Json::array();
  for (const Entry& entry : entries) {
    const std::string allreduce = entry.chosen.value_or(entry.mode).allreduce;
    const std::optional<std::int64_t> since = entry.divergence.loss_since;
    for (const Distance& distance : entry.values)
      list.push(Json::object()
                    .set("mode", entry.mode.name())
                    .set("trainer", entry.mode.trainer)
                    .set("allreduce", allreduce.empty() ? Json() : Json(allreduce))
                    .set("canonical", entry.canonical)
                    .set("variable", distance.variable)
                    .set("max_ulp", distance.max_ulp)
                    .set("max_relative", distance.max_relative)
                    .set("peak_bytes", entry.peak_bytes)
                    .set("bytes_moved", entry.bytes_moved)
                    .set("seconds", entry.seconds)
                    .set("first_nonfinite_step", since ? Json(*since) : Json()));
  }
  return list;
}

std::string Equivalence::to_table() const {
  std::string text =
      row("mode", "variable", "max_ulp", "max_relative", "peak_bytes", "bytes_moved", "seconds");
  std::size_t canonical = 0;
  for (const Entry& entry : entries) {
    text += rows(entry);
    canonical += entry.canonical && entry.refusal.empty() ? 1 : 0;
  }
  return text + cat(holds() ? cat("the ", canonical, " canonical modes agree bit for bit")
                            : "MODES THAT MUST AGREE DIFFER",
                    " after ", steps, steps == 1 ? " step\n" : " steps\n",
                    finite() ? ""
                             : "but training diverged, and all NaNs count as equal: try again with "
                               "a smaller --learning_rate or fewer steps\n");
}

int report_equivalence(const TrainerOptions& options, const Dataset& train, std::int64_t steps,
                       Console& console, OutputFile* json) {
  const std::vector<Mode> modes = all_modes(options.devices);
  console.line(cat("equivalence: ", modes.size(), " modes, one after another, of ", steps,
                   steps == 1 ? " step" : " steps", " each"));
  const Equivalence result = check_equivalence(options, train, steps, modes, &console);
  console.line(result.to_table());
  if (json) json->write(result.to_json().str(2) + "\n");
  return result.holds() && result.finite() ? 0 : 1;
}

}  // namespace belfry
