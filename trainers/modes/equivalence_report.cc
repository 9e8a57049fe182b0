// The result of check_equivalence(), as text and JSON.
#include <algorithm>
#include <array>
#include <utility>
#include <variant>

#include "belfry/framework/base/text.h"
#include "belfry/trainers/modes/equivalence.h"
#include "belfry/trainers/util/console.h"
#include "belfry/trainers/util/statistics.h"

namespace belfry {
namespace {

// Rows in columns that are as wide as their contents, with lines of text between them.
class EquivalenceTable {
 public:
  // mode, variable, max_ulp, max_relative, peak_bytes, bytes_moved, seconds
  using Row = std::array<std::string, 7>;

  void add(Row row) {
    for (std::size_t i = 0; i < row.size(); ++i)
      widths_[i] = std::max(widths_[i], static_cast<int>(row[i].size()));
    lines_.emplace_back(std::move(row));
  }
  void add(std::string text) { lines_.emplace_back(std::move(text)); }

  std::string str() const {
    std::string text;
    for (const auto& line : lines_) {
      const Row* const row = std::get_if<Row>(&line);
      text += row ? aligned(*row) : std::get<std::string>(line);
      text += '\n';
    }
    return text;
  }

 private:
  // Names begin their columns, numbers end them.
  std::string aligned(const Row& row) const {
    std::string text;
    for (std::size_t i = 0; i < row.size(); ++i)
      text += "  " + padded(row[i], i < 2 ? -widths_[i] : widths_[i]);
    text.erase(text.find_last_not_of(' ') + 1);
    return text;
  }

  std::array<int, 7> widths_{};
  std::vector<std::variant<Row, std::string>> lines_;
};

void add_entry(EquivalenceTable& table, const Equivalence::Entry& entry) {
  const std::string name = cat(entry.mode.name(), entry.canonical ? "" : " (not canonical)");
  if (!entry.refusal.empty()) return table.add(cat("  ", name, ": refused: ", entry.refusal));
  table.add({name, cat("(all ", entry.values.size(), ")"), cat(entry.max_ulp()),
             significant(entry.max_relative()), cat(entry.peak_bytes), cat(entry.bytes_moved),
             rounded(entry.seconds, 3)});
  for (const auto& [variable, ulp, relative] : entry.values)
    if (ulp > 0) table.add({"", variable, cat(ulp), significant(relative), "", "", ""});
  for (const std::string& copy : entry.differing_replicas)
    table.add(cat("    ", copy, " differs from tower 0's"));
  if (entry.divergence) table.add(cat("    diverged: ", entry.divergence));
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

JsonValue Equivalence::to_json() const {
  JsonValue list = JsonValue::array();
  for (const Entry& entry : entries) {
    const std::string& allreduce = entry.mode.allreduce;
    const std::optional<std::int64_t> since = entry.divergence.loss_since;
    for (const Distance& distance : entry.values)
      list.push(JsonValue::object()
                    .set("mode", entry.mode.name())
                    .set("trainer", entry.mode.trainer)
                    .set("allreduce", allreduce.empty() ? JsonValue() : JsonValue(allreduce))
                    .set("canonical", entry.canonical)
                    .set("variable", distance.variable)
                    .set("max_ulp", distance.max_ulp)
                    .set("max_relative", distance.max_relative)
                    .set("peak_bytes", entry.peak_bytes)
                    .set("bytes_moved", entry.bytes_moved)
                    .set("seconds", entry.seconds)
                    .set("first_nonfinite_step", since ? JsonValue(*since) : JsonValue()));
  }
  return list;
}

std::string Equivalence::to_table() const {
  EquivalenceTable table;
  table.add(
      {"mode", "variable", "max_ulp", "max_relative", "peak_bytes", "bytes_moved", "seconds"});
  std::size_t ran = 0, canonical = 0, diverged = 0;
  std::string advice;
  for (const Entry& entry : entries) {
    add_entry(table, entry);
    ran += entry.refusal.empty() ? 1 : 0;
    canonical += entry.canonical && entry.refusal.empty() ? 1 : 0;
    diverged += entry.divergence ? 1 : 0;
    if (entry.divergence && advice.empty()) advice = entry.divergence.advice;
  }
  table.add(cat(holds() ? cat("the ", canonical, " canonical modes agree bit for bit")
                        : "MODES THAT MUST AGREE DIFFER",
                " after ", steps, steps == 1 ? " step" : " steps"));
  if (diverged > 0)
    table.add(cat("but training diverged in ", diverged, " of ", ran,
                  " modes, and all NaNs count as equal: try again with fewer steps; ", advice));
  return table.str();
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
