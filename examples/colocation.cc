// Compares gradients that are colocated with the operations that they differentiate with gradients
// that are not: where they run, and what that costs. With FOLDER it writes true.json and false.json
// there, for https://ui.perfetto.dev.
//   colocation [FOLDER]
#include <cstdio>

#include "belfry/belfry.h"
#include "belfry/trainers/util/output_file.h"
using namespace belfry;

// Puts variables on `ps`, and all other nodes on `worker`.
DeviceFunction assign_to_device(DeviceSpec worker, DeviceSpec ps = "/device:CPU:0") {
  return [=](const Node& node) { return node.is_variable() ? ps : worker; };
}

void run(bool colocate, OutputFile* file) {
  constexpr std::int64_t kSize = 1'000'000;
  Graph graph;
  Variable a;
  Output b, c;
  {
    DeviceScope on(graph, assign_to_device("/device:CPU:1"));
    a = variable(graph, "a", {kSize}, {.initializer = init::ones()});
    b = sin(a);
  }
  {
    DeviceScope on(graph, "/cpu:0");
    c = cos(b);
  }
  // Nodes that are not colocated run on the worker's device.
  DeviceScope on(graph, "/cpu:1");
  const Output g = gradients(c, {a}, {.colocate = colocate})[0];
  const Output sum = g + c;
  Session session(graph, {.device_count = {{"CPU", 2}}});
  session.run({sum});  // the first run takes longer
  Trace trace;
  session.run({sum}, {}, {.trace = &trace});
  if (file) file->write(trace.str());
  std::printf("colocate = %s: %lld bytes crossed devices\n", colocate ? "true" : "false",
              static_cast<long long>(trace.transferred_bytes()));
  for (const Trace::Transfer& t : trace.transfers())
    std::printf("  %s: %lld bytes, %s to %s\n", t.name.c_str(), static_cast<long long>(t.bytes),
                t.from.c_str(), t.to.c_str());
}

struct Flags {
  std::string help, folder;
};

Flags parse(std::span<const char* const> arguments, const std::string& program) {
  FlagParser parser(
      "Runs a gradient beside the operations that it differentiates, and elsewhere, and prints "
      "what crosses devices. With FOLDER it writes two traces, true.json and false.json, for "
      "https://ui.perfetto.dev.",
      program);
  Flags flags;
  parser.add_argument("FOLDER", flags.folder, "an existing folder for the traces [none]");
  flags.help = parser.parse(arguments);
  return flags;
}

int run_both(const Flags& flags) {
  OutputFiles outputs(local_file_system());
  const auto trace = [&](const char* name) {
    return outputs.open("FOLDER", flags.folder.empty() ? "" : flags.folder + name);
  };
  OutputFile* const with = trace("/true.json");
  OutputFile* const without = trace("/false.json");
  run(true, with);
  run(false, without);
  outputs.finish();
  return 0;
}

int main(int argc, char** argv) { return run_program(argc, argv, parse, run_both); }
