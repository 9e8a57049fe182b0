#include "belfry/trainers/runs/hash_log.h"

#include <algorithm>
#include <map>
#include <span>
#include <utility>

#include "belfry/framework/base/error.h"
#include "belfry/framework/base/option_name.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/trainers/core/trainer.h"
#include "belfry/trainers/util/hash.h"

namespace belfry {
namespace {

constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 30;

constexpr std::string_view kOfGradient = "the gradient of ";

using Hashes = std::vector<std::pair<std::string, std::string>>;  // by variable or gradient

JsonValue hashes_of(std::vector<NamedTensor> tensors) {
  JsonValue hashes = JsonValue::object();
  for (NamedTensor& tensor : tensors) {
    std::string name = tensor.name;
    hashes.set(name, hash_tensors({std::move(tensor)}));
  }
  return hashes;
}

// The text that the file had when it was opened. A run may add lines meanwhile.
std::string text_so_far(FileSystem& files, const std::string& path) {
  const auto file = files.open(path);
  require<IoError>(file->size() <= kMostBytes, path, ": has ", file->size(),
                   " bytes, more than the ", kMostBytes, " that such a file may have");
  std::string text(file->size(), '\0');
  text.resize(file->read(std::as_writable_bytes(std::span(text))));
  return text;
}

std::map<std::int64_t, Hashes> read_hashes(FileSystem& files, const std::string& path) {
  const bool is_run = files.target_kind(path) == FileKind::kDirectory;
  const std::string file = is_run ? cat(path, "/", kHashesFile) : path;
  if (!files.exists(file))
    throw NotFoundError(about_option("hash_every", file,
                                     ": no such file; a run writes it if it is asked to (",
                                     the_option("hash_every"), ")"));
  const std::string text = text_so_far(files, file);
  std::map<std::int64_t, Hashes> steps;
  std::int64_t number = 0;
  // The last line may be half of one.
  for (const std::string_view line :
       split(std::string_view(text).substr(0, text.rfind('\n') + 1), '\n'))
    try {
      ++number;
      if (line.empty()) continue;
      const JsonValue json = JsonValue::parse(line);
      Hashes& hashes = steps[json.at("step").integer()];
      hashes.clear();  // of a run that made this step before
      if (const JsonValue* const gradients = json.find("gradients"))
        for (const auto& [name, hash] : gradients->members())
          hashes.emplace_back(cat(kOfGradient, name), hash.text());
      for (const auto& [name, hash] : json.at("variables").members())
        hashes.emplace_back(name, hash.text());
    } catch (const InvalidArgument& error) {
      throw IoError(cat(file, ": line ", number, " has no hashes: ", error.what()));
    }
  return steps;
}

bool is_of_gradient(const Hashes::value_type& hash) { return hash.first.starts_with(kOfGradient); }

// Names that differ, or that only one of them has. If one run has hashes of no gradient, as when
// processes update parts, only variables count.
std::vector<std::string> differing(Hashes a, Hashes b) {
  std::vector<std::string> names;
  if (std::ranges::none_of(a, is_of_gradient) || std::ranges::none_of(b, is_of_gradient)) {
    std::erase_if(a, is_of_gradient);
    std::erase_if(b, is_of_gradient);
  }
  for (const auto& variable : a)
    if (std::ranges::find(b, variable) == b.end()) names.push_back(variable.first);
  for (const auto& [name, hash] : b)
    if (std::ranges::find(a, name, &Hashes::value_type::first) == a.end()) names.push_back(name);
  return names;
}

}  // namespace

HashLog::HashLog(FileSystem& files, std::string path, std::int64_t every, OnSaveError on_error)
    : file_(files, std::move(path), on_error), every_(every) {
  require(every >= 1, "hash_every is ", every, "; it must be at least 1");
}

void HashLog::after_step(Trainer& trainer, const StepInfo& info) {
  const std::int64_t steps = info.step + 1;
  if (steps % every_ != 0) return;
  file_.add(JsonValue::object()
                .set("step", steps)
                .set("gradients", hashes_of(trainer.record().gradients()))
                .set("variables", hashes_of(read_state(trainer.session(), trainer.graph())))
                .str() +
            "\n");
}

Parting find_parting(const std::string& run_a, const std::string& run_b, FileSystem& files) {
  const auto a = read_hashes(files, run_a), b = read_hashes(files, run_b);
  Parting parting;
  for (const auto& [step, hashes] : a) {
    const auto other = b.find(step);
    if (other == b.end()) continue;
    ++parting.compared;
    parting.variables = differing(hashes, other->second);
    if (!parting.variables.empty()) {
      parting.differs = step;
      return parting;
    }
    parting.equal = step;
  }
  require(parting.compared > 0, run_a, " and ", run_b,
          " have no step in common; give both runs the same hash_every");
  return parting;
}

}  // namespace belfry
