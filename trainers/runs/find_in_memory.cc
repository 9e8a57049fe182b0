#include "belfry/trainers/runs/find_in_memory.h"

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "belfry/framework/base/host_memory.h"
#include "belfry/framework/base/json.h"
#include "belfry/framework/base/log.h"
#include "belfry/framework/base/text.h"
#include "belfry/trainers/runs/memory_folders.h"
#include "belfry/trainers/runs/run_directory.h"
#include "belfry/trainers/runs/send_checkpoint.h"

namespace belfry {
namespace {

// What a process knows of saves.
struct HolderOfSaves {
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
  static HolderOfSaves read(const std::string& text) {
    const JsonValue json = JsonValue::parse(text);
    HolderOfSaves holder{.id = json.at("id").text(),
                         .on_disk = json.at("on_disk").integer(),
                         .room = json.at("room").integer(),
                         .saves = {}};
    for (const auto& [step, bytes] : json.at("saves").members())
      holder.saves[std::stoll(step)] = bytes.integer();
    return holder;
  }
};

HolderOfSaves this_holder(const Processes* processes, const std::string& run_dir,
                          const std::string& root) {
  HolderOfSaves own{.id = run_id_of(run_dir), .saves = {}};
  if (const auto steps = checkpoints_in(local_file_system(), run_dir); !steps.empty())
    own.on_disk = steps.back();
  if (own.id.empty() || !is_first_of_host(processes)) return own;
  own.room = free_bytes_at(root);
  own.saves = saves_in_memory(memory_folder_of(own.id, root));
  return own;
}

struct SaveChoice {
  std::int64_t step;
  CheckpointRoute route;  // to the hosts that lack it
};

// All processes make the same choice. A process has the saves of the run only if it knows it by the
// id that rank 0 knows.
std::optional<SaveChoice> choose_save(const Processes* processes,
                                      const std::vector<HolderOfSaves>& holders) {
  const auto holds = [&](const HolderOfSaves& one, std::int64_t step) {
    return one.id == holders[0].id && one.saves.contains(step);
  };
  std::map<std::int64_t, std::int64_t> saves;
  for (const HolderOfSaves& one : holders)
    if (one.id == holders[0].id) saves.insert(one.saves.begin(), one.saves.end());
  for (auto save = saves.rbegin(); save != saves.rend() && save->first >= holders[0].on_disk;
       ++save) {
    SaveChoice choice{.step = save->first, .route = {.from = -1, .to = {}}};
    bool fits = true, knows_run = true;
    for (int rank = 0; rank < std::ssize(holders); ++rank) {
      if (processes && first_of_host(*processes, rank) != rank) continue;
      const HolderOfSaves& one = holders[static_cast<std::size_t>(rank)];
      if (holds(one, save->first)) {
        if (choice.route.from < 0) choice.route.from = rank;
      } else {
        choice.route.to.push_back(rank);
        knows_run = knows_run && !one.id.empty();
        fits = fits && one.room >= save->second;
      }
    }
    if (fits) return choice;
    if (processes && processes->rank() != 0) continue;
    log_warning("the save of step ", save->first, " in memory is not used: a host that lacks it ",
                knows_run ? cat("has no room for ", byte_text(save->second))
                          : std::string("does not see the configuration of the run"));
  }
  return {};
}

}  // namespace

int first_of_host(const Processes& processes, int rank) {
  int first = 0;
  while (processes.host(first) != processes.host(rank)) ++first;
  return first;
}

bool is_first_of_host(const Processes* processes) {
  return !processes || first_of_host(*processes, processes->rank()) == processes->rank();
}

std::string find_in_memory(Processes* processes, const std::string& run_dir,
                           const std::string& root) {
  const HolderOfSaves own = this_holder(processes, run_dir, root);
  std::vector<HolderOfSaves> holders{own};
  if (processes) {
    holders.clear();
    for (const std::string& text : processes->gather(own.str()))
      holders.push_back(HolderOfSaves::read(text));
  }
  const std::optional<SaveChoice> choice = choose_save(processes, holders);
  if (!choice) return "";
  const std::string folder = memory_folder_of(holders[0].id, root);
  if (!choice->route.to.empty()) {
    std::unique_ptr<RunDirectory> taken;
    if (choice->route.leads_to(processes->rank())) {
      make_private_folder(folder);
      taken = std::make_unique<RunDirectory>(folder);
    }
    send_checkpoint(*processes, choice->route, checkpoint_in(folder, choice->step));
  }
  return checkpoint_in(folder, choice->step);
}

}  // namespace belfry
