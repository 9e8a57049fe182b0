#include "belfry/trainers/core/equal_processes.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "belfry/framework/base/check_hash.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/base/some_names.h"
#include "belfry/framework/base/text.h"
#include "belfry/trainers/util/hash.h"

namespace belfry {
namespace {
namespace equal_processes {

// In one order in all processes.
std::vector<Variable> compared_variables(const Graph& graph) {
  std::vector<Variable> variables = original_variables(graph);
  std::erase_if(variables, [](Variable v) { return v.node().variable().part.has_value(); });
  std::ranges::sort(variables, {}, &Variable::logical_name);
  return variables;
}

constexpr std::size_t kDigits = 16;

// kDigits characters for each.
std::string text_of(const std::vector<std::uint64_t>& hashes) {
  std::string text;
  for (const std::uint64_t hash : hashes) text += hex(hash, kDigits);
  return text;
}

std::string_view hash_in(std::string_view text, std::size_t variable) {
  return text.substr(variable * kDigits, kDigits);
}

// The bits of numbers, kDigits characters for each.
std::string bits_of(const std::vector<double>& numbers) {
  std::string text;
  for (const double number : numbers) text += hex(std::bit_cast<std::uint64_t>(number), kDigits);
  return text;
}

std::vector<double> numbers_in(std::string_view text) {
  std::vector<double> numbers;
  for (; text.size() >= kDigits; text.remove_prefix(kDigits)) {
    std::uint64_t bits = 0;
    const std::from_chars_result read =
        std::from_chars(text.data(), text.data() + kDigits, bits, 16);
    require(read.ptr == text.data() + kDigits, "'", shown(text), "' has no bits of a loss");
    numbers.push_back(std::bit_cast<double>(bits));
  }
  return numbers;
}

// "'fc0/W' and 2 other variables".
std::string in_variables(const std::vector<std::string>& names) {
  return cat("'", names[0], "'",
             names.size() > 1 ? cat(" and ", names.size() - 1,
                                    names.size() == 2 ? " other variable" : " other variables")
                              : "");
}

std::vector<std::string> differing_names(const std::vector<std::string>& names,
                                         std::string_view one, std::string_view other) {
  std::vector<std::string> differing;
  for (std::size_t v = 0; v < names.size(); ++v)
    if (hash_in(one, v) != hash_in(other, v)) differing.push_back(names[v]);
  return differing;
}

// What most processes have: the first of several such texts. `decides`: no other is as frequent.
struct Majority {
  std::string text;
  bool decides;
};

Majority majority_of(const std::vector<std::string>& of_all) {
  std::map<std::string, int> counts;
  for (const std::string& one : of_all) ++counts[one];
  const std::string& most =
      *std::ranges::max_element(of_all, {}, [&](auto& one) { return counts.at(one); });
  const auto as_many = std::ranges::count_if(
      counts, [&](const auto& count) { return count.second == counts.at(most); });
  return {most, as_many == 1};
}

ReplicaDifference difference_of(const Processes& processes, const ReplicaHashes& own,
                                const std::vector<std::string>& of_all) {
  ReplicaDifference difference{.steps = own.steps};
  difference.replicas.resize(of_all.size());
  for (std::size_t r = 0; r < of_all.size(); ++r)
    difference.replicas[r].host = processes.host(static_cast<int>(r));
  for (std::size_t v = 0; v < own.names.size(); ++v) {
    const auto has_other = [&](const std::string& one) {
      return hash_in(one, v) != hash_in(of_all[0], v);
    };
    if (std::ranges::none_of(of_all, has_other)) continue;
    difference.variables.push_back(own.names[v]);
    for (std::size_t r = 0; r < of_all.size(); ++r)
      difference.replicas[r].hashes.emplace_back(hash_in(of_all[r], v));
  }
  return difference;
}

[[noreturn]] void refuse(Processes& processes, const ReplicaHashes& own,
                         const std::vector<std::string>& of_all) {
  wait_for_all(processes);
  const Majority most = majority_of(of_all);
  std::vector<std::string> ranks, variables;
  int reference = -1;
  for (int r = 0; r < processes.size(); ++r) {
    const std::string& one = of_all[static_cast<std::size_t>(r)];
    if (one == most.text && reference < 0) reference = r;
    if (one == most.text) continue;
    ranks.push_back(cat("rank ", r, " on ", processes.host(r)));
    if (variables.empty()) variables = differing_names(own.names, one, most.text);
  }
  throw ReplicasDiffer(
      cat("after step ", own.steps, " ", join(ranks), ranks.size() == 1 ? " has" : " have",
          " other bits than rank ", reference, " on ", processes.host(reference), " in ",
          in_variables(variables),
          most.decides ? ""
                       : "; no majority tells which of them is right, but a run that computes "
                         "these steps again does",
          "; the memory of a machine or a device may be faulty, or code of yours writes to "
          "variables in one process alone; start the same command again, which resumes from the "
          "newest checkpoint; if this happens again, leave out that machine"),
      difference_of(processes, own, of_all));
}

}  // namespace equal_processes
}  // namespace

std::uint64_t ReplicaHashes::all() const {
  return std::max<std::uint64_t>(check_hash_of_blocks(hashes), 1);
}

std::uint64_t check_hash_of(Session& session, Variable variable) {
  std::uint64_t hash = 0;
  session.look_at(variable, [&](std::span<const std::byte> bytes) {
    hash = check_hash_of_blocks(check_hashes_of_blocks(bytes, size_of(variable.dtype())));
  });
  return hash;
}

ReplicaHashes replica_hashes(Session& session, const Graph& graph, std::int64_t steps) {
  ReplicaHashes result{.steps = steps};
  for (const Variable variable : equal_processes::compared_variables(graph)) {
    result.names.emplace_back(variable.logical_name());
    result.hashes.push_back(check_hash_of(session, variable));
  }
  return result;
}

void wait_for_all(Processes& processes) try {
  processes.gather("");
} catch (const Error&) {  // this process has an error of its own to throw
}

void require_equal_processes(Processes& processes, const ReplicaHashes& own) {
  using namespace equal_processes;
  const std::vector<std::string> all = processes.gather(hex(own.all(), kDigits));
  if (std::ranges::all_of(all, [&](auto& one) { return one == all[0]; })) return;
  refuse(processes, own, processes.gather(text_of(own.hashes)));
}

JsonValue ReplicaDifference::json() const {
  using namespace equal_processes;
  const auto list = [](const std::vector<std::string>& texts) {
    JsonValue array = JsonValue::array();
    for (const std::string& text : texts) array.push(text);
    return array;
  };
  JsonValue of_ranks = JsonValue::array();
  for (const Replica& replica : replicas)
    of_ranks.push(
        JsonValue::object().set("host", replica.host).set("hashes", list(replica.hashes)));
  JsonValue of_steps = JsonValue::array();
  for (const Losses& of_step : losses)
    of_steps.push(
        JsonValue::object().set("step", of_step.step).set("bits", bits_of(of_step.of_towers)));
  return JsonValue::object()
      .set("step", steps)
      .set("variables", list(variables))
      .set("ranks", std::move(of_ranks))
      .set("losses", std::move(of_steps));
}

ReplicaDifference ReplicaDifference::read(const JsonValue& json) {
  using namespace equal_processes;
  const auto texts = [](const JsonValue& array) {
    std::vector<std::string> list;
    for (const JsonValue& text : array.items()) list.push_back(text.text());
    return list;
  };
  ReplicaDifference difference{
      .steps = json.at("step").integer(), .variables = texts(json.at("variables")), .replicas = {}};
  for (const JsonValue& rank : json.at("ranks").items()) {
    difference.replicas.push_back({rank.at("host").text(), texts(rank.at("hashes"))});
    require(difference.replicas.back().hashes.size() == difference.variables.size(),
            "a rank has not one hash for each variable");
  }
  for (const JsonValue& of_step : json.at("losses").items())
    difference.losses.push_back(
        {of_step.at("step").integer(), numbers_in(of_step.at("bits").text())});
  return difference;
}

std::string ReplicaDifference::judged_by(const ReplicaHashes& right) const {
  using namespace equal_processes;
  std::vector<std::string> wrong, others;
  for (std::size_t r = 0; r < replicas.size(); ++r) {
    std::vector<std::string> names;
    for (std::size_t v = 0; v < variables.size(); ++v) {
      const auto at = std::ranges::find(right.names, variables[v]);
      if (at == right.names.end()) continue;
      const std::uint64_t hash = right.hashes[static_cast<std::size_t>(at - right.names.begin())];
      if (replicas[r].hashes[v] != hex(hash, kDigits)) names.push_back(variables[v]);
    }
    const std::string rank = cat("rank ", r, " on ", replicas[r].host);
    if (names.empty())
      others.push_back(rank);
    else
      wrong.push_back(cat(rank, " had wrong bits in ", in_variables(names)));
  }
  if (wrong.empty()) return "";
  return cat("step ", steps,
             ", after which processes differed, has been computed again: ", join(wrong),
             others.empty() ? "; none had the right ones"
                            : cat("; ", some_names(others), " had the right ones"));
}

std::string ReplicaDifference::judged_by(const Losses& right) const {
  const auto noted = std::ranges::find(losses, right.step, &Losses::step);
  const std::size_t towers = right.of_towers.size();
  if (noted == losses.end() || noted->of_towers.size() != towers || towers % replicas.size() != 0)
    return "";
  const std::size_t of_rank = towers / replicas.size();
  std::vector<std::string> wrong;
  for (std::size_t r = 0; r < replicas.size(); ++r)
    for (std::size_t t = r * of_rank; t < (r + 1) * of_rank; ++t) {
      const auto bits = [t](const Losses& of) {
        return std::bit_cast<std::uint64_t>(of.of_towers[t]);
      };
      if (bits(*noted) == bits(right)) continue;
      wrong.push_back(cat("rank ", r, " on ", replicas[r].host));
      break;
    }
  if (wrong.empty() || wrong.size() == replicas.size()) return "";
  return cat("step ", right.step,
             " has been computed again, since which processes differed (after ", "step ", steps,
             " in ", equal_processes::in_variables(variables), "): ", join(wrong),
             " had wrong bits in variables or data, and so another loss");
}

}  // namespace belfry
