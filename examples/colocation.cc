// Where gradients run, and what it costs: colocated with the operations that they differentiate,
// or not. Writes true.json and false.json, for https://ui.perfetto.dev, into a folder.
//   colocation [FOLDER]
#include <cstdio>

#include "belfry/belfry.h"
using namespace belfry;

// Variables go to `ps`, all else to `worker`.
DeviceFunction assign_to_device(DeviceSpec worker, DeviceSpec ps = "/device:CPU:0") {
  return [=](const Node& node) { return node.is_variable() ? ps : worker; };
}

void run(bool colocate, const std::string& path) {
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
  // What is not colocated runs where the worker is.
  DeviceScope on(graph, "/cpu:1");
  const Output g = gradients(c, {a}, {.colocate = colocate})[0];
  const Output sum = g + c;
  Session session(graph, {.device_count = {{"CPU", 2}}});
  session.run({sum});  // the first run takes longer
  Trace trace;
  session.run({sum}, {}, {.trace = &trace});
  trace.save(path);
  std::printf("colocate = %s: %lld bytes crossed devices (%s)\n", colocate ? "true" : "false",
              static_cast<long long>(trace.transferred_bytes()), path.c_str());
  for (const Trace::Transfer& t : trace.transfers())
    std::printf("  %s: %lld bytes, %s to %s\n", t.name.c_str(), static_cast<long long>(t.bytes),
                t.from.c_str(), t.to.c_str());
}

int main(int argc, char** argv) {
  return run_program([&] {
    FlagParser parser(
        "Runs a gradient beside the operations that it differentiates, and elsewhere, and prints "
        "what crosses devices. Writes two traces, true.json and false.json, for "
        "https://ui.perfetto.dev.",
        program_name(argc > 0 ? argv[0] : nullptr));
    std::string folder = ".";
    parser.add_argument("FOLDER", folder, "an existing folder for the traces [.]");
    const std::string help = parser.parse(arguments(argc, argv));
    if (!help.empty()) {
      std::fputs(help.c_str(), stdout);
      return 0;
    }
    run(true, folder + "/true.json");
    run(false, folder + "/false.json");
    return 0;
  });
}
