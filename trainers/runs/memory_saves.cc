#include "belfry/trainers/runs/memory_saves.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "belfry/framework/base/error.h"
#include "belfry/framework/base/host_memory.h"
#include "belfry/framework/base/log.h"
#include "belfry/framework/base/memory_folder.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/trainers/core/trainer.h"
#include "belfry/trainers/core/training_checkpoint.h"
#include "belfry/trainers/machine/planned_memory.h"
#include "belfry/trainers/runs/find_in_memory.h"
#include "belfry/trainers/runs/memory_folders.h"
#include "belfry/trainers/runs/run_saver.h"
#include "belfry/trainers/util/option_error.h"

namespace belfry {
namespace {
std::int64_t processes_beside(const Processes* processes) {
  std::int64_t others = 0;
  for (int rank = 0; processes && rank < processes->size(); ++rank)
    if (rank != processes->rank() && processes->host(rank) == processes->host(processes->rank()))
      ++others;
  return others;
}

}  // namespace

std::string refusal_of_memory_saves(const MemoryNeeds& needs) {
  const std::int64_t saves = kSavesInMemory * needs.state;
  if (saves > needs.room)
    return cat("/dev/shm has ", byte_text(needs.room), " left, and the last ", kSavesInMemory,
               " saves take ", byte_text(saves));
  if (needs.planned + saves > needs.memory)
    return cat("the training and its last ", kSavesInMemory, " saves take ",
               byte_text(needs.planned + saves),
               " of memory, and this machine or its control group has ", byte_text(needs.memory));
  return "";
}

MemorySaver::MemorySaver(Options options, Processes* processes, RunSaver* saver)
    : options_(options), processes_(processes), saver_(saver) {
  for (int rank = 1; processes_ && rank < processes_->size(); ++rank)
    spans_hosts_ = spans_hosts_ || processes_->host(rank) != processes_->host(0);
}

std::string MemorySaver::why_no_room(Trainer& trainer) const {
  const std::string root = memory_file_system();
  if (root.empty()) return "this machine has no folder /dev/shm that can be written";
  MemoryNeeds needs{.state = bytes_of_snapshot(trainer.graph()),
                    .room = free_bytes_at(root),
                    .planned = 0,
                    .memory = host_memory()};
  needs.room += bytes_of_saves(memory_folder_of(id_));
  const MemoryReport report = trainer.session().memory_report();
  needs.planned = host_bytes(report, {.saved = needs.state}) +
                  processes_beside(processes_) * host_bytes(report, {});
  return refusal_of_memory_saves(needs);
}

void MemorySaver::check(Trainer& trainer) const {
  if (options_.every_steps == 0 || !options_.refuses || !is_first_of_host(processes_)) return;
  if (const std::string why = why_no_room(trainer); !why.empty())
    refuse_option<OptionMistake>("memory_save_every_steps", "=", options_.every_steps, ": ", why,
                                 "; make room, or leave the option out");
}

// Takes the folder of this host. Returns why it cannot; "" if it can.
std::string MemorySaver::take_folder(Trainer& trainer) try {
  if (!is_first_of_host(processes_)) return "";
  const std::string path = memory_folder_of(id_);
  if (is_private_folder(path)) RunDirectory(path).tidy();
  if (const std::string why = why_no_room(trainer); !why.empty()) return why;
  make_private_folder(path);
  folder_ = std::make_unique<RunDirectory>(path);
  for (const std::int64_t step : folder_->checkpoints())
    if (step > trainer.steps()) folder_->remove_checkpoint(step);
  remove_dead_saves(path);
  return "";
} catch (const Error& error) {
  return error.what();
}

// One host without room is enough to keep none.
void MemorySaver::agree(Trainer& trainer) {
  const std::string before = id_;
  if (processes_) id_ = processes_->gather(id_)[0];
  if (id_ != before && is_first_of_host(processes_)) remove_memory_saves(before);
  is_on_ = options_.every_steps > 0 && !id_.empty();
  std::string why = is_on_ ? take_folder(trainer) : "";
  int rank = 0;
  if (processes_) {
    const std::vector<std::string> all = processes_->gather(why);
    const auto first = std::ranges::find_if(all, [](const auto& one) { return !one.empty(); });
    rank = first == all.end() ? 0 : static_cast<int>(first - all.begin());
    why = all[static_cast<std::size_t>(rank)];
  }
  if (!why.empty()) is_on_ = false;
  if (!why.empty() && (!processes_ || processes_->rank() == 0))
    log_warning("no saves in memory, so after a failure the run resumes from the disk: ",
                processes_ ? cat(processes_->host(rank), ": ") : "", why);
}

void MemorySaver::setup(Trainer& trainer) {
  agree(trainer);
  begun_at_ = trainer.steps();
}

// Saves come after a comparison of all processes, as those on disk do.
void MemorySaver::before_step(Trainer& trainer, const StepInfo& info) {
  if (!is_on_) return;
  if (saving_.is_written()) settle();
  if (info.step % options_.every_steps == 0 && info.step > begun_at_ &&
      trainer.loop().is_compared())
    save(trainer, info.step);
  if ((info.step + 1) % options_.every_steps == 0) trainer.loop().compare_processes_soon();
}

// What rank 0 would add to a checkpoint on disk: it alone knows where the lines of files end. Null
// if nothing is to be saved.
JsonValue MemorySaver::state_of_rank_0(Trainer& trainer) {
  const bool is_rank_0 = !processes_ || processes_->rank() == 0;
  JsonValue state;
  if (is_rank_0 && saver_ && !saver_->lines_wait())
    state = saver_->with_line_positions(training_state(trainer));
  if (!spans_hosts_) return state;
  const bool has_state = state.kind() == JsonValue::Kind::kObject;
  const std::string text = processes_->gather(has_state ? state.str() : "")[0];
  return text.empty() ? JsonValue() : JsonValue::parse(text);
}

// A save that is still being written is not waited for: the next one will be newer.
void MemorySaver::save(Trainer& trainer, std::int64_t steps) {
  if (trainer.record().watch().losses().not_finite_since()) return;
  require_equal_replicas(trainer.session(), trainer.graph(), steps);
  const JsonValue state = state_of_rank_0(trainer);
  if (state.kind() != JsonValue::Kind::kObject || !folder_ || saving_.is_under_way()) return;
  settle();
  saving_.begin(CheckpointSnapshot(trainer.session(), state, &copies_),
                [this, steps](const CheckpointSnapshot& snapshot) { write(snapshot, steps); });
}

// Makes room first, so that there are never more than kSavesInMemory.
void MemorySaver::write(const CheckpointSnapshot& snapshot, std::int64_t steps) {
  std::vector<std::int64_t> old = folder_->checkpoints();
  std::erase(old, steps);
  if (folder_->checkpoints().size() > old.size()) folder_->remove_checkpoint(steps);
  old.resize(old.size() - std::min<std::size_t>(old.size(), kSavesInMemory - 1));
  for (const std::int64_t step : old) folder_->remove_checkpoint(step);
  snapshot.save(folder_->checkpoint_path(steps), folder_->files(), {.refuse_not_finite = true});
}

// A save in memory that fails ends no run: those on disk remain.
void MemorySaver::settle() try { saving_.settle(); } catch (const NotFiniteError& error) {
  log_debug("not saved in memory: ", error.what());
} catch (const Error& error) {
  if (!std::exchange(has_warned_, true)) log_warning("a save in memory failed: ", error.what());
}

void MemorySaver::after_training(Trainer&, const StepInfo& info) {
  settle();
  const bool is_on_disk = !saver_ || saver_->saved_step() == info.step;
  if (is_on_disk) remove_all();
}

void MemorySaver::on_error(Trainer&, const std::exception&) {
  settle();
  if (folder_ && folder_->checkpoints().empty()) remove_all();
}

void MemorySaver::remove_all() {
  folder_.reset();
  if (is_first_of_host(processes_)) remove_memory_saves(id_);
}

}  // namespace belfry
