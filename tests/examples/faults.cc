// Trains with each fault of numerics, and with good data, as one of several processes or alone, and
// prints how each training ends. faults_test.cc runs it.
#include "belfry/tests/trainers/core/faults.h"

#include <iostream>

#include "belfry/framework/base/text.h"
#include "belfry/trainers/core/divergence.h"
#include "belfry/trainers/core/trainer.h"
#include "belfry/trainers/program/program_processes.h"

using namespace belfry;

namespace {

std::string end_of(const faults::Fault& fault, bool is_good,
                   const std::shared_ptr<Processes>& processes) {
  const auto samples = faults::data(is_good);
  TrainerOptions options = faults::options_for(fault, 1);
  if (processes) options.batch_size /= processes->size();
  options.session = {.threads = 1, .processes = processes};
  Trainer trainer(find_trainer("replicated"), std::move(options), *samples);
  try {
    trainer.train();
  } catch (const Diverged& diverged) {
    return diverged.what();
  }
  return "ended well";
}

}  // namespace

int main() {
  const std::shared_ptr<Processes> processes = join_processes(TrainFlags{});
  return run_process(processes.get(), [&] {
    for (const faults::Fault& fault : faults::kFaults)
      for (const bool is_good : {true, false})
        std::cout << fault.name << (is_good ? ", good: " : ", bad: ")
                  << end_of(fault, is_good, processes) << std::endl;  // whole lines beside warnings
    return 0;
  });
}
