// A training program as one of several processes, on stand-in GPUs. Threads stand in for processes.
#include "belfry/trainers/program/program_processes.h"

#include <cstdlib>
#include <functional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/framework/base/error_origin.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/group/peer_error.h"
#include "belfry/tests/framework/framework_test_support.h"
#include "belfry/tests/support/process_threads.h"
#include "belfry/tests/support/stand_in_gpus.h"
#include "belfry/tests/trainers/program/parsed_flags.h"
#include "belfry/trainers/program/program.h"
#include "belfry/trainers/util/flag_values.h"
#include "belfry/trainers/util/option_error.h"

namespace belfry {
namespace program_processes_test {

using testing::AllOf;
using testing::HasSubstr;

std::string refusal_in_processes(int size, const TrainFlags& flags) {
  std::vector<std::string> said(static_cast<std::size_t>(size));
  test::run_processes(size, [&](const std::shared_ptr<Processes>& processes) {
    said[static_cast<std::size_t>(processes->rank())] =
        message_of<Error>([&] { flags_in_group(flags, processes); });
  });
  EXPECT_THAT(said, testing::Each(testing::Not("")));
  return said[0];
}

// Of a program whose body runs so.
int exit_code(const std::function<int()>& body, Processes* processes) {
  try {
    return run_process(processes, body);
  } catch (const std::exception& error) {
    return exit_code_of(fields_of(error));
  }
}

TEST(ProgramProcesses, NameTheFlagOfAnOption) {
  test::run_processes(1, [](const std::shared_ptr<Processes>& processes) {
    EXPECT_THAT(message_of<Error>([&] {
                  const FlagsNameOptions flags_name_options;  // as programs do
                  run_process(
                      processes.get(),
                      []() -> int { refuse_option("uneven", "=error: ", 3, " left"); },
                      [] { return 75; });
                }),
                AllOf(HasSubstr("[rank 0, "), HasSubstr("] --uneven=error: 3 left")));
  });
}

TEST(ProgramProcesses, AreRefusedTrainersOfOneProcess) {
  for (const char* const trainer : {"--trainer=async", "--trainer=parameter_server"})
    EXPECT_EQ(refusal_in_processes(2, parse({trainer, "--devices=cpu:2"})),
              cat(trainer,
                  " is for one process, and this is one of several; --mpi=off makes each a "
                  "training of its own, and --trainer=replicated trains with all"));
}

// Programs exit with 2 for a FlagError, and `belfry run` starts such a command line once.
TEST(ProgramProcesses, TellAMistakeOnTheCommandLineFromOtherErrors) {
  test::run_processes(1, [](const std::shared_ptr<Processes>& processes) {
    const auto code_of = [&](const auto& error) {
      return exit_code([&]() -> int { throw error; }, processes.get());
    };
    EXPECT_EQ(code_of(FlagError("--seed=x")), 2);
    EXPECT_EQ(code_of(OptionMistake("uneven=error: 3 left")), 2);
    EXPECT_EQ(code_of(OptionError("shards=3")), 1);
    EXPECT_EQ(code_of(CommError("rank 1 has gone")), 1);
    EXPECT_EQ(code_of(StallError("rank 1 is silent")), kStallExitCode);
  });
}

// So all processes return one exit code, whichever ends first.
TEST(ProgramProcesses, MakeAMistakeInOneAMistakeInAll) {
  test::run_processes(2, [](const std::shared_ptr<Processes>& processes) {
    const auto body = [&] {
      if (processes->rank() == 1) throw FlagError("--seed=x");
      processes->gather("what rank 1 never gives");
      return 0;
    };
    EXPECT_EQ(exit_code(body, processes.get()), 2);
  });
}

TEST(ProgramProcesses, DivideTheGpusOfAHost) {
  const test::StandInGpus gpus(5);
  const test::UseGpus use(gpus);
  test::run_processes(2, [&](const std::shared_ptr<Processes>& processes) {
    const TrainFlags flags =
        flags_in_group(parse({"--devices=gpu:2", "--allreduce=nccl"}), processes);
    EXPECT_EQ(flags.trainer.session.visible_devices, processes->rank() == 0 ? "0,1" : "2,3");
  });
}

TEST(ProgramProcesses, DivideAllGpusOfAHostIfNoneAreNamed) {
  const test::StandInGpus gpus(4);
  const test::UseGpus use(gpus);
  const auto devices = [](std::vector<const char*> arguments) {
    return parse_flags(arguments, {.program = "test"}).trainer.devices;
  };
  EXPECT_EQ(devices({}).size(), 4u);
  ::setenv("OMPI_COMM_WORLD_SIZE", "4", 1);
  ::setenv("OMPI_COMM_WORLD_LOCAL_SIZE", "2", 1);
  const auto own = devices({}), all = devices({"--devices=gpu:all"});
  const auto named = devices({"--devices=gpu:4"});
  ::unsetenv("OMPI_COMM_WORLD_SIZE");
  ::unsetenv("OMPI_COMM_WORLD_LOCAL_SIZE");
  EXPECT_EQ(own.size(), 2u);
  EXPECT_EQ(all, own);
  EXPECT_EQ(named.size(), 4u) << "and is refused once the processes have met";
}

TEST(ProgramProcesses, MakeTheBatchFitAllGpusIfNoneAreNamed) {
  const test::StandInGpus gpus(5);
  const test::UseGpus use(gpus);
  const FlagDefaults defaults{.program = "p", .global_batch_size = 12};
  EXPECT_EQ(parse_flags(std::vector<const char*>{}, defaults).trainer.batch_size, 3) << "of 15";
}

TEST(ProgramProcesses, AskForNoGpusOnCpus) {
  const test::StandInGpus gpus(1);
  const test::UseGpus use(gpus);
  test::run_processes(2, [&](const std::shared_ptr<Processes>& processes) {
    const TrainFlags flags =
        flags_in_group(parse({"--devices=cpu:1", "--trainer=replicated"}), processes);
    EXPECT_EQ(flags.trainer.session.visible_devices, "");
  });
}

TEST(ProgramProcesses, PlanForGpusThatAreNotThere) {
  const test::StandInGpus gpus(0);
  const test::UseGpus use(gpus);
  test::run_processes(2, [&](const std::shared_ptr<Processes>& processes) {
    const TrainFlags flags =
        flags_in_group(parse({"--dry_run", "--devices=gpu:2", "--allreduce=nccl"}), processes);
    EXPECT_EQ(flags.trainer.session.visible_devices, "");
  });
}

TEST(ProgramProcesses, AreRefusedMoreDevicesThanTheirShareOfTheGpus) {
  const test::StandInGpus gpus(3);
  const test::UseGpus use(gpus);
  EXPECT_THAT(refusal_in_processes(2, parse({"--devices=gpu:2", "--allreduce=nccl"})),
              AllOf(HasSubstr("--devices asks for 2 GPUs in each process"), HasSubstr("rank 0"),
                    HasSubstr("has 1 of 3")));
}

TEST(ProgramProcesses, AreRefusedOneGpuForTwoOfThem) {
  const test::StandInGpus gpus(1);
  const test::UseGpus use(gpus);
  EXPECT_THAT(refusal_in_processes(
                  2, parse({"--devices=gpu:1", "--trainer=replicated", "--allreduce=nccl"})),
              AllOf(HasSubstr("2 processes on "), HasSubstr("would share 1 GPUs (GPU-0)")));
}

TEST(ProgramProcesses, AreRefusedStrategiesThatCannotServeTheirDevices) {
  EXPECT_THAT(refusal_in_processes(2, parse({"--devices=cpu:2", "--allreduce=naive"})),
              AllOf(HasSubstr("--allreduce=naive"), HasSubstr("use collective, ring or mpi")));
  EXPECT_THAT(
      refusal_in_processes(2, parse({"--devices=cpu:2", "--allreduce=collective:1k:naive"})),
      AllOf(HasSubstr("--allreduce=collective:1k:naive"),
            HasSubstr("use collective, ring or mpi")));
}

TEST(ProgramProcesses, AreRefusedMpiInAnyRangeWhereTcpCarriesMessages) {
  TrainFlags flags = parse({"--devices=cpu:1", "--trainer=replicated"});
  for (const char* spec : {"mpi", "collective:1k:mpi", "mpi:1k:ring"}) {
    flags.trainer.aggregation.allreduce = spec;  // one process alone would refuse it
    EXPECT_THAT(
        refusal_in_processes(2, flags),
        HasSubstr(cat("--allreduce=", spec, " adds by MPI, and TCP carries messages here")));
  }
}

}  // namespace program_processes_test
}  // namespace belfry
