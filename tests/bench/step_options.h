// The command line of step_bench.
#pragma once
#include <charconv>
#include <string>
#include <string_view>
#include <vector>

#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/trainers/program/flags.h"

namespace belfry::bench {

inline constexpr int kGlobalBatch = 256;

inline constexpr const char* kUsage =
    R"(step_bench: times training steps with one global batch of 256 on K logical CPU devices
  --models=LIST     of mlp, convnet, averages, launch (default: all)
  --devices=LIST    numbers K of devices (default: mlp 1,2,8; convnet 1,2,4,8; averages 1,8)
  --steps=N         timed steps per K and round (default: mlp 100, convnet 10, others 200)
  --warmup=N        steps before those, in each round (default: 3)
  --rounds=N        rounds over all K, one after another (default: 5)
  --allreduce=NAME  collective (default), naive, hierarchical; colocate spreads the variables
  --bucket_mb=X     most MiB of gradients combined at once; 0: no buckets (default)
  --threads=N       workers; 0: one per usable core (default)
  --json=FILE       writes the figures to FILE too
)";

struct StepOptions {
  std::vector<std::string> models{"mlp", "convnet", "averages", "launch"};
  std::vector<int> devices;  // empty: the defaults of the model
  int steps = 0;             // 0: the default of the model
  int warmup = 3, rounds = 5, threads = 0;
  double bucket_mb = 0;
  std::string allreduce = "collective", json;
  bool help = false;
};

inline std::vector<std::string> split(std::string_view text) {
  std::vector<std::string> parts;
  for (std::size_t comma; (comma = text.find(',')) != text.npos; text.remove_prefix(comma + 1))
    parts.emplace_back(text.substr(0, comma));
  parts.emplace_back(text);
  return parts;
}

inline int parse_number(std::string_view flag, std::string_view text, int least) {
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  require<FlagError>(error == std::errc() && end == text.data() + text.size() && number >= least,
                     flag, "=", text, ": needs a whole number from ", least);
  return number;
}

inline void set_option(StepOptions& options, std::string_view flag, std::string_view value) {
  if (flag == "--models") {
    options.models = split(value);
  } else if (flag == "--devices") {
    options.devices.clear();
    for (const std::string& part : split(value)) {
      options.devices.push_back(parse_number(flag, part, 1));
      require<FlagError>(kGlobalBatch % options.devices.back() == 0, flag, "=", value, ": ", part,
                         " devices cannot share a batch of ", kGlobalBatch, " equally");
    }
  } else if (flag == "--steps") {
    options.steps = parse_number(flag, value, 1);
  } else if (flag == "--warmup") {
    options.warmup = parse_number(flag, value, 0);
  } else if (flag == "--rounds") {
    options.rounds = parse_number(flag, value, 1);
  } else if (flag == "--threads") {
    options.threads = parse_number(flag, value, 0);
  } else if (flag == "--allreduce") {
    options.allreduce = value;
  } else if (flag == "--bucket_mb") {
    options.bucket_mb = belfry::parse_number<double>(cat(flag, "=", value), value);
  } else if (flag == "--json") {
    options.json = value;
  } else {
    throw FlagError(cat("unknown flag ", flag, "; see --help"));
  }
}

inline StepOptions parse(int argc, char** argv) {
  StepOptions options;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument == "--help") {
      options.help = true;
      continue;
    }
    const std::size_t equals = argument.find('=');
    require<FlagError>(equals != argument.npos, argument, ": flags are given as --name=value");
    set_option(options, argument.substr(0, equals), argument.substr(equals + 1));
  }
  return options;
}

}  // namespace belfry::bench
