#include "belfry/trainers/runs/memory_saves.h"

#include <algorithm>
#include <atomic>
#include <ctime>
#include <map>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include <unistd.h>

#include "belfry/framework/base/allocator.h"
#include "belfry/framework/base/error.h"
#include "belfry/framework/base/host_memory.h"
#include "belfry/framework/base/log.h"
#include "belfry/framework/base/memory_folder.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/trainers/core/trainer.h"
#include "belfry/trainers/core/training_checkpoint.h"
#include "belfry/trainers/machine/planned_memory.h"
#include "belfry/trainers/runs/run_saver.h"
#include "belfry/trainers/util/hash.h"
#include "belfry/trainers/util/option_error.h"

namespace belfry {
namespace {
namespace memory_saves {

std::string name_of_user_folders() { return cat("belfry-", ::geteuid(), "-"); }

// The lowest rank of the host of `rank`, which reads and writes the host's saves.
int first_of_host(const Processes& processes, int rank) {
  int first = 0;
  while (processes.host(first) != processes.host(rank)) ++first;
  return first;
}

bool is_first_of_host(const Processes* processes) {
  return !processes || first_of_host(*processes, processes->rank()) == processes->rank();
}

std::int64_t processes_beside(const Processes* processes) {
  std::int64_t others = 0;
  for (int rank = 0; processes && rank < processes->size(); ++rank)
    if (rank != processes->rank() && processes->host(rank) == processes->host(processes->rank()))
      ++others;
  return others;
}

std::int64_t bytes_in(const std::string& checkpoint) {
  FileSystem& files = local_file_system();
  std::int64_t bytes = 0;
  for (const std::string& name : files.list(checkpoint))
    bytes += static_cast<std::int64_t>(files.open(cat(checkpoint, "/", name))->size());
  return bytes;
}

// The bytes of each save in a folder, by step. A folder that cannot be read has none.
std::map<std::int64_t, std::int64_t> saves_in(const std::string& folder) try {
  std::map<std::int64_t, std::int64_t> saves;
  if (!is_private_folder(folder)) return saves;
  for (const std::int64_t step : checkpoints_in(local_file_system(), folder))
    saves[step] = bytes_in(checkpoint_in(folder, step));
  return saves;
} catch (const IoError&) {
  return {};
}

// Of saves, and of what is left of a save that was not finished.
std::int64_t bytes_of_saves(const std::string& folder) try {
  FileSystem& files = local_file_system();
  const std::string saves = cat(folder, "/checkpoints");
  if (!is_private_folder(folder) || files.kind(saves) != FileKind::kDirectory) return 0;
  std::int64_t bytes = 0;
  for (const std::string& name : files.list(saves))
    if (const std::string path = cat(saves, "/", name); files.kind(path) == FileKind::kDirectory)
      bytes += bytes_in(path);
  return bytes;
} catch (const Error&) {
  return 0;
}

// What a process knows of saves.
struct Holder {
  std::string id;             // of the run in its run directory
  std::int64_t on_disk = -1;  // the newest step of that
  std::int64_t room = 0;      // bytes
  std::map<std::int64_t, std::int64_t> saves;

  std::string str() const {
    JsonValue steps = JsonValue::object();
    for (const auto& [step, bytes] : saves) steps.set(cat(step), bytes);
    return JsonValue::object()
        .set("id", id)
        .set("on_disk", on_disk)
        .set("room", room)
        .set("saves", std::move(steps))
        .str();
  }
  static Holder read(const std::string& text) {
    const JsonValue json = JsonValue::parse(text);
    Holder holder{.id = json.at("id").text(),
                  .on_disk = json.at("on_disk").integer(),
                  .room = json.at("room").integer(),
                  .saves = {}};
    for (const auto& [step, bytes] : json.at("saves").members())
      holder.saves[std::stoll(step)] = bytes.integer();
    return holder;
  }
};

Holder this_holder(const Processes* processes, const std::string& run_dir,
                   const std::string& root) {
  Holder own{.id = run_id_of(run_dir), .saves = {}};
  if (const auto steps = checkpoints_in(local_file_system(), run_dir); !steps.empty())
    own.on_disk = steps.back();
  if (own.id.empty() || !is_first_of_host(processes)) return own;
  own.room = free_bytes_at(root);
  own.saves = saves_in(memory_folder_of(own.id, root));
  return own;
}

// A save, who sends it, and who receives it.
struct Choice {
  std::int64_t step;
  int from;
  std::vector<int> to;
};

// All processes make the same choice. A process has the saves of the run only if it knows it by the
// id that rank 0 knows.
std::optional<Choice> choose(const Processes* processes, const std::vector<Holder>& holders) {
  const auto holds = [&](const Holder& one, std::int64_t step) {
    return one.id == holders[0].id && one.saves.contains(step);
  };
  std::map<std::int64_t, std::int64_t> saves;
  for (const Holder& one : holders)
    if (one.id == holders[0].id) saves.insert(one.saves.begin(), one.saves.end());
  for (auto save = saves.rbegin(); save != saves.rend() && save->first >= holders[0].on_disk;
       ++save) {
    Choice choice{.step = save->first, .from = -1, .to = {}};
    bool fits = true;
    for (int rank = 0; rank < std::ssize(holders); ++rank) {
      if (processes && first_of_host(*processes, rank) != rank) continue;
      const Holder& one = holders[static_cast<std::size_t>(rank)];
      if (holds(one, save->first)) {
        if (choice.from < 0) choice.from = rank;
      } else {
        choice.to.push_back(rank);
        fits = fits && one.room >= save->second;
      }
    }
    if (fits) return choice;
    log_warning("the save of step ", save->first,
                " in memory is not used: a host that lacks it has no room for ",
                byte_text(save->second));
  }
  return {};
}

// Writes the files of a checkpoint that another process sends. Without commit() they vanish.
class ReceivedCheckpoint {
 public:
  explicit ReceivedCheckpoint(std::string path)
      : path_(std::move(path)), temporary_(temporary_name(path_)) {
    local_file_system().create_directory(temporary_);
  }
  ~ReceivedCheckpoint() {
    if (!committed_) try {
        remove_tree(local_file_system(), temporary_);
      } catch (const IoError&) {  // the next run tidies
      }
  }
  ReceivedCheckpoint(const ReceivedCheckpoint&) = delete;
  ReceivedCheckpoint& operator=(const ReceivedCheckpoint&) = delete;

  void begin_file(const std::string& name) {
    file_ = local_file_system().create(cat(temporary_, "/", name));
  }
  void append(std::span<const std::byte> bytes) { file_->append(bytes); }
  void end_file() { file_->close(); }
  void commit() {
    local_file_system().rename(temporary_, path_);
    committed_ = true;
  }

 private:
  const std::string path_, temporary_;
  std::unique_ptr<WritableFile> file_;
  bool committed_ = false;
};

// Sends bytes of one process to some others. All call it: those receive them in `bytes`.
void send_range(Processes& processes, const Choice& choice, std::span<std::byte> bytes) {
  const std::uint64_t key = processes.next_number();
  const int rank = processes.rank();
  if (rank == choice.from) {
    const std::atomic<std::uint64_t> runs{0};
    MemoryBlock memory(host_allocator(), bytes.size());
    memory.store(bytes.data(), 0, bytes.size());
    processes.parts().publish(
        key, {.memory = &memory, .first = 0, .bytes = bytes.size(), .runs = &runs});
    processes.parts().withdraw(key);  // keeps a copy until all have it
  } else if (std::ranges::find(choice.to, rank) != choice.to.end()) {
    std::vector<std::span<std::byte>> parts(static_cast<std::size_t>(processes.size()));
    parts[static_cast<std::size_t>(choice.from)] = bytes;
    processes.fetch(key, 0, parts);
  }
  processes.gather("");
}

// Ranges keep the memory small that a transfer takes.
void send(Processes& processes, const Choice& choice, const std::string& path) {
  constexpr std::uint64_t kRange = 16 << 20;
  FileSystem& files = local_file_system();
  const bool sends = processes.rank() == choice.from;
  const bool receives = std::ranges::find(choice.to, processes.rank()) != choice.to.end();
  JsonValue sizes = JsonValue::object();
  if (sends)
    for (const std::string& name : files.list(path))
      sizes.set(name, files.open(cat(path, "/", name))->size());
  sizes = JsonValue::parse(processes.gather(sizes.str())[static_cast<std::size_t>(choice.from)]);
  std::optional<ReceivedCheckpoint> received;
  if (receives) received.emplace(path);
  for (const auto& [name, size] : sizes.members()) {
    const std::unique_ptr<ReadableFile> file = sends ? files.open(cat(path, "/", name)) : nullptr;
    if (received) received->begin_file(name);
    const std::uint64_t end = size.unsigned_integer();
    for (std::uint64_t at = 0; at < end; at += kRange) {
      std::vector<std::byte> bytes(sends || receives ? std::min(kRange, end - at) : 0);
      if (file)
        require<IoError>(file->read(bytes) == bytes.size(), path, "/", name,
                         " became shorter while it was sent");
      send_range(processes, choice, bytes);
      if (received) received->append(bytes);
    }
    if (received) received->end_file();
  }
  if (received) received->commit();
  processes.gather("");  // so that the others of that host find it
}

// A live run holds the lock of its folder.
bool remove_unless_live(const std::string& folder) try {
  FileSystem& files = local_file_system();
  const std::unique_ptr<FileLock> lock = files.lock(cat(folder, "/", kRunLock));
  if (lock) remove_tree(files, folder);
  return lock != nullptr;
} catch (const IoError& error) {
  log_debug("saves in memory stay: ", error.what());
  return false;
}

// Removes the saves of runs that were killed and not started again.
void remove_dead_saves(const std::string& own) try {
  constexpr std::int64_t kMostSeconds = 24 * 3600;
  FileSystem& files = local_file_system();
  const std::string root = memory_file_system();
  for (const std::string& name : files.list(root)) {
    const std::string folder = cat(root, "/", name);
    if (!name.starts_with(name_of_user_folders()) || folder == own || !is_private_folder(folder))
      continue;
    const std::string written = cat(folder, "/checkpoints");
    const std::int64_t age =
        std::time(nullptr) - files.modified(files.exists(written) ? written : folder);
    if (age < kMostSeconds) continue;
    if (remove_unless_live(folder))
      log_info("removed ", folder, ": saves in memory of a run that was killed ", age / 3600,
               " hours ago");
  }
} catch (const IoError& error) {
  log_debug("saves of dead runs in memory stay: ", error.what());
}

}  // namespace memory_saves
}  // namespace

std::string new_run_id() {
  constexpr std::size_t kDigits = 8;
  std::random_device random;
  return hex(random(), kDigits) + hex(random(), kDigits);
}

std::string run_id_of(const std::string& run_dir, FileSystem& files) try {
  const std::optional<JsonValue> config = run_config(files, run_dir);
  const JsonValue* const id = config ? config->at(kChosen).find(kRunId) : nullptr;
  const std::string text = id ? id->text() : "";
  const bool is_id = std::ranges::all_of(text, [](unsigned char c) { return std::isxdigit(c); });
  return is_id ? text : "";
} catch (const Error&) {
  return "";
}

std::string memory_folder_of(const std::string& id, const std::string& root) {
  return id.empty() || root.empty() ? "" : cat(root, "/", memory_saves::name_of_user_folders(), id);
}

std::string find_in_memory(Processes* processes, const std::string& run_dir,
                           const std::string& root) {
  using namespace memory_saves;
  const Holder own = this_holder(processes, run_dir, root);
  std::vector<Holder> holders{own};
  if (processes) {
    holders.clear();
    for (const std::string& text : processes->gather(own.str()))
      holders.push_back(Holder::read(text));
  }
  const std::optional<Choice> choice = choose(processes, holders);
  if (!choice) return "";
  const std::string folder = memory_folder_of(holders[0].id, root);
  if (!choice->to.empty()) {
    std::unique_ptr<RunDirectory> taken;
    if (std::ranges::find(choice->to, processes->rank()) != choice->to.end()) {
      make_private_folder(folder);
      taken = std::make_unique<RunDirectory>(folder);
    }
    send(*processes, *choice, checkpoint_in(folder, choice->step));
  }
  return checkpoint_in(folder, choice->step);
}

void remove_memory_saves(const std::string& id) {
  if (const std::string folder = memory_folder_of(id); is_private_folder(folder))
    memory_saves::remove_unless_live(folder);
}

void remove_damaged_save(const std::string& path) try {
  FileSystem& files = local_file_system();
  const std::string gone = temporary_name(path);
  files.rename(path, gone);
  remove_tree(files, gone);
} catch (const Error& error) {  // another process of this host has removed it
  log_debug("a damaged save in memory: ", error.what());
}

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

bool MemorySaver::is_first_of_host() const { return memory_saves::is_first_of_host(processes_); }

std::string MemorySaver::why_no_room(Trainer& trainer) const {
  const std::string root = memory_file_system();
  if (root.empty()) return "this machine has no folder /dev/shm that can be written";
  MemoryNeeds needs{.state = bytes_of_snapshot(trainer.graph()),
                    .room = free_bytes_at(root),
                    .planned = 0,
                    .memory = host_memory()};
  needs.room += memory_saves::bytes_of_saves(memory_folder_of(id_));
  const MemoryReport report = trainer.session().memory_report();
  needs.planned = host_bytes(report, {.saved = needs.state}) +
                  memory_saves::processes_beside(processes_) * host_bytes(report, {});
  return refusal_of_memory_saves(needs);
}

void MemorySaver::check(Trainer& trainer) const {
  if (options_.every_steps == 0 || !options_.refuses || !is_first_of_host()) return;
  if (const std::string why = why_no_room(trainer); !why.empty())
    refuse_option<OptionMistake>("memory_save_every_steps", "=", options_.every_steps, ": ", why,
                                 "; make room, or leave the option out");
}

// Takes the folder of this host. Returns why it cannot; "" if it can.
std::string MemorySaver::take_folder(Trainer& trainer) try {
  if (!is_first_of_host()) return "";
  const std::string path = memory_folder_of(id_);
  if (is_private_folder(path)) RunDirectory(path).tidy();
  if (const std::string why = why_no_room(trainer); !why.empty()) return why;
  make_private_folder(path);
  folder_ = std::make_unique<RunDirectory>(path);
  for (const std::int64_t step : folder_->checkpoints())
    if (step > trainer.steps()) folder_->remove_checkpoint(step);
  memory_saves::remove_dead_saves(path);
  return "";
} catch (const Error& error) {
  return error.what();
}

// One host without room is enough to keep none.
void MemorySaver::agree(Trainer& trainer) {
  const std::string before = id_;
  if (processes_) id_ = processes_->gather(id_)[0];
  if (id_ != before && is_first_of_host()) remove_memory_saves(before);
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
    log_warning("no saves in memory, so after a failure the run goes on from the disk: ",
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
  saving_.begin(CheckpointSnapshot(trainer.session(), state),
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
  if (is_first_of_host()) remove_memory_saves(id_);
}

}  // namespace belfry
