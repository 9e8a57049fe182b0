#include "belfry/trainers/commands/checkpoint_listing.h"

#include <algorithm>
#include <ctime>
#include <map>

#include "belfry/framework/base/error.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/checkpoint/weight_choice.h"
#include "belfry/framework/graph/kernel.h"
#include "belfry/trainers/runs/run_checkpoints.h"
#include "belfry/trainers/util/statistics.h"

namespace belfry {
namespace {

// "2025-01-31T12:34:56Z"; "" for 0, a time that is not known.
std::string time_text(std::int64_t seconds) {
  const std::time_t time = seconds;
  std::tm parts = {};
  char text[40] = "";
  if (seconds != 0 && ::gmtime_r(&time, &parts))
    std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

std::string saved_at(const std::string& directory, FileSystem& files) {
  return time_text(files.modified(directory + "/manifest.json"));
}

JsonValue text_or_null(const std::string& text) {
  return text.empty() ? JsonValue() : JsonValue(text);
}

// A value that training has added.
JsonValue added(const Manifest& manifest, std::string_view key) {
  const JsonValue* const found = manifest.extra.find(key);
  return found ? *found : JsonValue();
}

// ", seed 1"; "" if training has not added it.
std::string added_text(const Manifest& manifest, std::string_view key) {
  const JsonValue value = added(manifest, key);
  return value.kind() == JsonValue::Kind::kNull ? "" : cat(", ", key, " ", shown(value.str()));
}

std::uint64_t bytes_of(const Manifest::Entry& entry) {
  return static_cast<std::uint64_t>(TensorType{entry.shape, entry.dtype}.bytes());
}

JsonValue tensor_json(const std::string& name, const Manifest::Entry& entry) {
  return JsonValue::object()
      .set("name", name)
      .set("dtype", name_of(entry.dtype))
      .set("shape", shape_to_json(entry.shape))
      .set("bytes", bytes_of(entry))
      .set("role", name_of(entry.role))
      .set("trainable", entry.trainable);
}

// What people are to know of a tensor that is no trained weight.
std::string_view remark_on(const Manifest::Entry& entry) {
  if (entry.role == VariableRole::kWeight) return entry.trainable ? "" : "  not trained";
  return entry.role == VariableRole::kAverage ? "  average" : "  state";
}

// The width of the column of names. A few long names may exceed it.
int column_of_names(const Manifest& manifest) {
  constexpr std::size_t kLeastColumn = 8, kMostColumn = 48;
  std::size_t longest = kLeastColumn;
  for (const auto& [name, entry] : manifest.tensors) longest = std::max(longest, name.size());
  return static_cast<int>(std::min(longest, kMostColumn));
}

std::string tensor_line(const std::string& name, const Manifest::Entry& entry, int column) {
  return cat("  ", belfry::padded(shown(name), -column), "  ",
             belfry::padded(std::string(name_of(entry.dtype)), -4), "  ",
             belfry::padded(entry.shape.str(), -18), "  ", belfry::padded(cat(bytes_of(entry)), 12),
             remark_on(entry), "\n");
}

struct Totals {
  std::size_t tensors = 0;
  std::int64_t elements = 0;
  std::uint64_t bytes = 0;

  void add(const Manifest::Entry& entry) {
    ++tensors;
    elements += entry.shape.elements();
    bytes += bytes_of(entry);
  }
  std::string str(std::string_view what) const {
    return cat(what, ": ", tensors, tensors == 1 ? " tensor, " : " tensors, ", elements,
               " elements, ", bytes, " bytes\n");
  }
};

struct RunRow {
  RunCheckpoint checkpoint;
  std::string step, bytes, time, error;

  std::string text() const {
    const std::string head = cat("  ", belfry::padded(checkpoint.name, -16), "  ");
    if (!error.empty()) return cat(head, "cannot be read: ", error, "\n");
    std::string links;
    if (checkpoint.is_latest) links += "  latest";
    if (checkpoint.is_best) links += "  best";
    return cat(head, belfry::padded(step, 10), belfry::padded(bytes, 14), "  ", time, links, "\n");
  }
  JsonValue json(const Manifest* manifest) const {
    return JsonValue::object()
        .set("name", checkpoint.name)
        .set("step", manifest ? JsonValue(manifest->shown_step()) : JsonValue())
        .set("bytes", manifest ? JsonValue(stored_bytes(*manifest)) : JsonValue())
        .set("time", text_or_null(time))
        .set("latest", checkpoint.is_latest)
        .set("best", checkpoint.is_best)
        .set("error", text_or_null(error));
  }
};

// Appends a row. If a checkpoint cannot be read, its row says so, and others are still listed.
void add_row(const RunCheckpoint& checkpoint, Listing& listing, JsonValue& rows,
             FileSystem& files) {
  RunRow row{.checkpoint = checkpoint, .time = saved_at(checkpoint.path, files)};
  std::optional<CheckpointHead> head;
  try {
    head = read_checkpoint_head(checkpoint.path, files);
    row.step = cat(head->manifest.shown_step());
    row.bytes = cat(stored_bytes(head->manifest));
  } catch (const Error& error) {
    row.error = error.what();
  }
  listing.text += row.text();
  rows.push(row.json(head ? &head->manifest : nullptr));
}

}  // namespace

std::uint64_t stored_bytes(const Manifest& manifest) {
  std::uint64_t bytes = 0;
  for (const auto& [name, file] : manifest.files) bytes += file.bytes;
  return bytes;
}

Listing list_checkpoint(const CheckpointHead& head, FileSystem& files) {
  const Manifest& manifest = head.manifest;
  const std::string time = saved_at(head.directory, files);
  Listing listing;
  listing.text = cat("checkpoint ", head.directory, "\nstep ", manifest.shown_step(),
                     added_text(manifest, "epoch"), added_text(manifest, "seed"),
                     added_text(manifest, "shards"), time.empty() ? "" : ", saved " + time, "\n");
  JsonValue tensors = JsonValue::array();
  std::map<VariableRole, Totals> totals;
  std::int64_t trained = 0;
  const int column = column_of_names(manifest);
  for (const auto& [name, entry] : manifest.tensors) {
    listing.text += tensor_line(name, entry, column);
    tensors.push(tensor_json(name, entry));
    totals[entry.role].add(entry);
    if (entry.trainable) trained += entry.shape.elements();
  }
  const ChosenWeights chosen = choose_weights(manifest, WeightChoice::kValidated, head.directory);
  const Totals& averages = totals[VariableRole::kAverage];
  listing.text += totals[VariableRole::kWeight].str("weights");
  if (averages.tensors > 0)
    listing.text += averages.str("averages") + cat("validated: the ", chosen.what(), "\n");
  listing.text += totals[VariableRole::kState].str("state");
  listing.json.set("path", head.directory).set("step", manifest.shown_step());
  for (const char* key : {"epoch", "seed", "shards"}) listing.json.set(key, added(manifest, key));
  listing.json.set("bytes", stored_bytes(manifest))
      .set("time", text_or_null(time))
      .set("extra", manifest.extra)
      .set("validated", name_of(chosen.values))
      .set("weight_elements", totals[VariableRole::kWeight].elements)
      .set("trainable_elements", trained)
      .set("tensors", std::move(tensors));
  return listing;
}

Listing list_run(const std::string& run, FileSystem& files) {
  const std::vector<RunCheckpoint> all = checkpoints_of_run(run, files);
  Listing listing;
  listing.text = cat("run ", files.resolve(run), "\n  ", belfry::padded("checkpoint", -16), "  ",
                     belfry::padded("step", 10), belfry::padded("bytes", 14), "  saved\n");
  JsonValue rows = JsonValue::array();
  for (const RunCheckpoint& checkpoint : all) add_row(checkpoint, listing, rows, files);
  listing.json.set("run", files.resolve(run)).set("checkpoints", std::move(rows));
  return listing;
}

}  // namespace belfry
