// The flags that say which devices a program uses, and what sessions need for them.
#pragma once
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "belfry/framework/device/gpus.h"
#include "belfry/framework/graph/device_spec.h"
#include "belfry/trainers/flags/flag_spellings.h"
#include "belfry/trainers/options/option.h"
#include "belfry/trainers/util/device_list.h"
#include "belfry/trainers/util/flag_values.h"

namespace belfry {

class FlagParser;

// As many as this machine has, or logical ones. Several processes of the machine divide them.
inline constexpr std::string_view kAllGpus = "gpu:all";

// The variables that the flags set.
struct DeviceFlags {
  std::vector<DeviceSpec>& devices;  // as parse_devices() gives them
  int& logical_gpus;                 // per physical GPU, as in SessionOptions
  bool& deterministic;               // as in SessionOptions
  std::string& algorithms;           // path of AlgorithmsFile; "" for none
};

// The rows of --devices, --logical_gpus, --deterministic and --algorithms. `devices` is the default
// of --devices; "": all GPUs of this machine, else cpu:1.
Options<DeviceFlags> device_options(const std::string& devices = "");
void add_device_flags(FlagParser& parser, const DeviceFlags& flags,
                      const std::string& devices = "");

// The flags of tf_cnn_benchmarks that name devices, for FlagParser::add_spellings(): --num_gpus and
// --device.
std::vector<FlagSpelling> device_spellings();

// How many devices a command line asks for; 0 if that is unknown.
int count_devices(const WrittenFlags& line);

// Call it once the flags are read. Makes --devices=gpu:all as many as there are, logical ones by
// --logical_gpus. Throws FlagError for --logical_gpus or --algorithms without a GPU. Unless the
// program only `plans`, it also throws for GPUs that the program cannot use. Calls `find` only if
// there are GPUs among the devices, so that programs on CPUs load no module.
void resolve_devices(const FlagParser& parser, const DeviceFlags& flags, bool plans,
                     const std::function<const Gpus&()>& find = gpus);

}  // namespace belfry
