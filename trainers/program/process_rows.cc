// Rows about several processes, and about runs that hang.
#include <algorithm>
#include <cmath>

#include "belfry/framework/base/text.h"
#include "belfry/trainers/options/option_fields.h"
#include "belfry/trainers/program/flag_groups_impl.h"

namespace belfry {
namespace {

constexpr double kMostStallSeconds = 1e9;
constexpr double kMostLostSeconds = 1e6;  // beats are counted by an int
constexpr int kMostExitCode = 255;

double stall_seconds(const WrittenFlag& flag) {
  double seconds = 0;
  read_number(
      flag, "a number of at least 0", [](double x) { return x >= 0; }, seconds);
  return std::min(seconds, kMostStallSeconds);
}

std::chrono::milliseconds stall_milliseconds(double seconds) {
  return std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1000));
}

std::chrono::milliseconds meeting_timeout(const WrittenFlag& flag) {
  double seconds = 0;
  read_number(
      flag, "a number above 0", [](double x) { return x > 0; }, seconds);
  return std::chrono::ceil<std::chrono::milliseconds>(
      std::chrono::duration<double>(std::min(seconds, kMostStallSeconds)));
}

// Sets the number of heartbeats that may fail to come.
void read_lost_after(WatchOptions& watch, const WrittenFlag& flag) {
  double seconds = 0;
  read_number(
      flag, "0 or a number of at least 1", [](double x) { return x == 0 || x >= 1; }, seconds);
  const double beat = std::chrono::duration<double>(watch.beat).count();
  watch.most_silent = static_cast<int>(std::ceil(std::min(seconds, kMostLostSeconds) / beat));
}

// A row whose flag sets more than one field, or one of another type.
Option<TrainFlags> special_option(OptionRow row, void (*read)(TrainFlags&, const WrittenFlag&)) {
  Option<TrainFlags> option{std::move(row)};
  option.read = read;
  return option;
}

Option<TrainFlags> option_of_group(const Option<GroupFlags>& option) {
  return of_part<TrainFlags>(
      option, [](auto& flags) -> auto& { return flags.group; });
}

// About runs that hang.
Options<TrainFlags> hanging_rows() {
  Options<TrainFlags> rows;
  rows.push_back(special_option(
      {.name = "stall_warn_seconds",
       .unit = "X",
       .text = "warn when a run has made no progress for X seconds, and name the op, data set or "
               "callback that it waits for. With several processes, also warn when a message has "
               "waited so long, and name the late ones; 0: never",
       .otherwise = "10"},
      [](TrainFlags& flags, const WrittenFlag& flag) {
        flags.group.watch.stall_warn = stall_milliseconds(stall_seconds(flag));
      }));
  rows.push_back(special_option(
      {.name = "stall_abort_seconds",
       .unit = "X",
       .text = "end with an error when an op, data set or callback has made no progress for X "
               "seconds, or when one of these has waited so long: a message for a process that "
               "computes, all processes for each other, or a collective of `allreduce=nccl`; 0: "
               "never",
       .otherwise = "600"},
      [](TrainFlags& flags, const WrittenFlag& flag) {
        const double seconds = stall_seconds(flag);
        flags.group.watch.stall_end = stall_milliseconds(seconds);
        flags.trainer.session.stall_abort_seconds = seconds > 0 ? seconds : kMostStallSeconds;
      }));
  rows.push_back(option_of_group(
      whole_number(&GroupFlags::stall_exit_code, 1, kMostExitCode,
                   {.name = "stall_exit_code",
                    .unit = "N",
                    .text = "the exit code of a run that `stall_abort_seconds` has ended",
                    .otherwise = cat(kStallExitCode),
                    .noted = false})));
  return rows;
}

}  // namespace

Options<TrainFlags> process_options() {
  Options<TrainFlags> rows;
  rows.push_back(special_option(
      {.name = "mpi",
       .unit = "auto|off",
       .text = "off: this process trains alone, even if a launcher has started others with it, "
               "by MPI or with RANK and WORLD_SIZE",
       .otherwise = "auto"},
      [](TrainFlags& flags, const WrittenFlag& flag) {
        flags.group.alone = is_second(flag, "auto", "off");
      }));
  rows.push_back(special_option(
      {.name = "lost_after_seconds",
       .unit = "X",
       .text = "with several processes: end with an error when one sends no heartbeat for X "
               "seconds. A host that is paused, or a link that is down, for a shorter time only "
               "delays the others; 0: never",
       .otherwise = "5"},
      [](TrainFlags& flags, const WrittenFlag& flag) {
        read_lost_after(flags.group.watch, flag);
      }));
  rows.push_back(option_of_group(
      parsed(&GroupFlags::meeting_timeout, meeting_timeout,
             {.name = "meeting_timeout_s",
              .unit = "X",
              .text = "with several processes that connect by TCP: end with an error if they are "
                      "not all connected within X seconds",
              .otherwise = "300",
              .scope = Scope::kThisCall,
              .own_process = true})));
  rows.push_back(option_of_group(
      on_off(&GroupFlags::insecure,
             {.name = "insecure",
              .text = "let processes connect without a token (BELFRY_TOKEN) where other machines "
                      "can reach them; BELFRY_INSECURE=1 does the same. Anybody who can reach "
                      "the port can then join",
              .otherwise = "false",
              .scope = Scope::kThisCall,
              .own_process = true})));
  for (Option<TrainFlags>& row : hanging_rows()) rows.push_back(std::move(row));
  return rows;
}

}  // namespace belfry
