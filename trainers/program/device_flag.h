// The flags that say which devices a program uses, and what sessions need for them.
#pragma once
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "belfry/framework/device/gpus.h"
#include "belfry/framework/graph/device_spec.h"
#include "belfry/trainers/program/flag_spellings.h"
#include "belfry/trainers/util/device_list.h"
#include "belfry/trainers/util/flag_values.h"

namespace belfry {

class FlagParser;

// As typed.
struct RawDevices {
  FlagValue list = "cpu:2";
  FlagValue logical_gpus = {};
  bool deterministic = false;
  FlagValue algorithms = {};
};

// Adds --devices, --logical_gpus, --deterministic and --algorithms.
void add_device_flags(FlagParser& parser, RawDevices& raw);

// Those of tf_cnn_benchmarks that name devices, for FlagParser::add_spellings(): --num_gpus and
// --device.
std::vector<FlagSpelling> device_spellings();

// How many devices a command line asks for, 0 if that cannot be told.
int count_devices(const WrittenFlags& line);

// What they stand for.
struct DeviceFlags {
  std::vector<DeviceSpec> devices;  // as parse_devices() gives them
  int logical_gpus = 1;             // per physical GPU, as in SessionOptions
  bool deterministic = false;       // as in SessionOptions
  std::string algorithms;           // the file of AlgorithmsFile; "" for none
};

// Throws FlagError for what parse_devices() refuses, for a --logical_gpus that is no such number,
// for one or an --algorithms that has no GPU to serve, and, unless the program only `plans`, for
// GPUs that it cannot use. `find` is asked about those alone, so that programs on CPUs load no
// module.
DeviceFlags read_devices(const RawDevices& raw, bool plans,
                         const std::function<const Gpus&()>& find = gpus);

}  // namespace belfry
