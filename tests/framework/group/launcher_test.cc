#include "belfry/framework/group/launcher.h"

#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/framework/base/error.h"
#include "belfry/tests/framework/framework_test_support.h"

namespace belfry {
namespace launcher_test {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Kind = LauncherFound::Kind;

LauncherFound found(const std::map<std::string, std::string>& environment) {
  return find_launcher([&](const char* name) {
    const auto variable = environment.find(name);
    return variable == environment.end() ? nullptr : variable->second.c_str();
  });
}

TEST(Launcher, MpiIsKnownByItsVariables) {
  EXPECT_EQ(found({{"OMPI_COMM_WORLD_SIZE", "4"}}).kind, Kind::kMpi);
  EXPECT_EQ(found({{"OMPI_COMM_WORLD_SIZE", "4"}}).size, 4);
  EXPECT_EQ(found({{"PMI_SIZE", "2"}}).kind, Kind::kMpi);
  EXPECT_EQ(found({{"PMIX_RANK", "0"}, {"SLURM_STEP_NUM_TASKS", "3"}}).size, 3);
}

TEST(Launcher, OneProcessIsAlone) {
  EXPECT_EQ(found({}).kind, Kind::kNone);
  EXPECT_EQ(found({{"OMPI_COMM_WORLD_SIZE", "1"}}).kind, Kind::kNone);
  // A batch script has these.
  EXPECT_EQ(found({{"SLURM_NTASKS", "8"}}).kind, Kind::kNone);
  EXPECT_EQ(found({{"SLURM_STEP_NUM_TASKS", "1"}}).kind, Kind::kNone);
}

const std::map<std::string, std::string> kTorchrun = {
    {"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "node1"}, {"MASTER_PORT", "29500"}};

std::map<std::string, std::string> torchrun_with(const std::string& name,
                                                 const std::string& value) {
  auto environment = kTorchrun;
  environment[name] = value;
  return environment;
}

std::map<std::string, std::string> torchrun_without(const std::string& name) {
  auto environment = kTorchrun;
  environment.erase(name);
  return environment;
}

TEST(Launcher, TcpIsWhatTorchrunSets) {
  const LauncherFound tcp = found(kTorchrun);
  ASSERT_EQ(tcp.kind, Kind::kTcp);
  EXPECT_EQ(tcp.tcp.rank, 1);
  EXPECT_EQ(tcp.tcp.size, 2);
  EXPECT_EQ(tcp.tcp.address, "node1");
  EXPECT_EQ(tcp.tcp.port, 29500);
}

TEST(Launcher, SaysHowManyProcessesShareAMachine) {
  EXPECT_EQ(found(kTorchrun).local_size, 2) << "all, if nothing says otherwise";
  EXPECT_EQ(found(torchrun_with("LOCAL_WORLD_SIZE", "1")).local_size, 1);
  const auto of_mpi = [](const char* name, const char* value) {
    return found({{"OMPI_COMM_WORLD_SIZE", "8"}, {name, value}}).local_size;
  };
  EXPECT_EQ(of_mpi("OMPI_COMM_WORLD_LOCAL_SIZE", "4"), 4);
  EXPECT_EQ(of_mpi("MPI_LOCALNRANKS", "2"), 2);
  EXPECT_EQ(of_mpi("SLURM_STEP_TASKS_PER_NODE", "3(x2),2"), 3);
  EXPECT_EQ(of_mpi("LOCAL_WORLD_SIZE", "many"), 8);
  EXPECT_EQ(of_mpi("LOCAL_WORLD_SIZE", "99"), 8);
}

// Else each of several processes would train alone.
TEST(Launcher, AMissingMeetingPlaceIsNamed) {
  for (const std::string name : {"MASTER_ADDR", "MASTER_PORT"}) {
    auto environment = torchrun_without(name);
    EXPECT_THAT(message_of<InvalidArgument>([&] { found(environment); }),
                HasSubstr("RANK=1 and WORLD_SIZE=2, but no " + name));
    environment["PMI_SIZE"] = "3";
    EXPECT_EQ(found(environment).kind, Kind::kMpi);
  }
  EXPECT_EQ(found({{"RANK", "0"}, {"WORLD_SIZE", "1"}}).kind, Kind::kNone);
}

// One of both shows a launcher if there is a place to meet.
TEST(Launcher, AMissingRankOrSizeIsNamed) {
  EXPECT_THAT(message_of<InvalidArgument>([&] { found(torchrun_without("RANK")); }),
              HasSubstr("WORLD_SIZE=2 and MASTER_ADDR=node1, but no RANK"));
  EXPECT_THAT(message_of<InvalidArgument>([&] { found(torchrun_without("WORLD_SIZE")); }),
              HasSubstr("RANK=1 and MASTER_ADDR=node1, but no WORLD_SIZE"));
  EXPECT_THAT(
      message_of<InvalidArgument>([&] {
        found({{"RANK", "1"}, {"MASTER_PORT", "29500"}});
      }),
      AllOf(HasSubstr("RANK=1 and MASTER_PORT=29500, but no WORLD_SIZE"), HasSubstr("mpi=off")));
  // Launchers of other kinds have one of these for themselves.
  EXPECT_EQ(found({{"RANK", "1"}}).kind, Kind::kNone);
  EXPECT_EQ(found({{"WORLD_SIZE", "2"}}).kind, Kind::kNone);
  EXPECT_EQ(found({{"MASTER_ADDR", "node1"}, {"MASTER_PORT", "29500"}}).kind, Kind::kNone);
  EXPECT_EQ(found({{"WORLD_SIZE", "1"}, {"MASTER_ADDR", "node1"}}).kind, Kind::kNone);
}

TEST(Launcher, AnEmptyMeetingPlaceIsNamed) {
  EXPECT_THAT(message_of<InvalidArgument>([&] { found(torchrun_with("MASTER_ADDR", "")); }),
              HasSubstr("the environment has an empty MASTER_ADDR; set it to the host of rank 0"));
  auto alone = torchrun_with("MASTER_ADDR", "");
  alone["RANK"] = "0";
  alone["WORLD_SIZE"] = "1";
  EXPECT_EQ(found(alone).kind, Kind::kNone);
}

// srun starts tasks without an MPI unless it is told to, and each would train alone.
TEST(Launcher, TasksThatCannotMeetAreRefused) {
  std::map<std::string, std::string> tasks{{"SLURM_STEP_NUM_TASKS", "4"}, {"SLURM_PROCID", "0"}};
  EXPECT_THAT(message_of<InvalidArgument>([&] { found(tasks); }),
              AllOf(HasSubstr("SLURM_STEP_NUM_TASKS=4"), HasSubstr("srun --mpi=pmix"),
                    HasSubstr("mpi=off")));
  tasks["SLURM_STEP_NUM_TASKS"] = "four";
  EXPECT_THAT(message_of<InvalidArgument>([&] { found(tasks); }), HasSubstr("TASKS=four"));
  // Another launcher within the step, or variables that a script has set, say more.
  tasks["SLURM_STEP_NUM_TASKS"] = "4";
  auto torchrun = kTorchrun;
  torchrun.insert(tasks.begin(), tasks.end());
  EXPECT_EQ(found(torchrun).kind, Kind::kTcp);
  for (const char* const name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"}) {
    auto one = tasks;
    one[name] = "1";
    EXPECT_EQ(found(one).kind, Kind::kNone) << name;
  }
  tasks.insert({{"RANK", "0"}, {"WORLD_SIZE", "1"}});
  EXPECT_EQ(found(tasks).kind, Kind::kNone);
}

TEST(Launcher, SaysWhatShowsThatThereAreOthers) {
  const auto sign = [](const std::map<std::string, std::string>& environment) {
    return launcher_variables([&](const char* name) {
      const auto variable = environment.find(name);
      return variable == environment.end() ? nullptr : variable->second.c_str();
    });
  };
  EXPECT_EQ(sign({}), "");
  EXPECT_EQ(sign(kTorchrun), "RANK=1 and WORLD_SIZE=2");
  EXPECT_EQ(sign({{"RANK", "0"}, {"WORLD_SIZE", "2"}}), "RANK=0 and WORLD_SIZE=2");
  EXPECT_EQ(sign({{"RANK", "0"}, {"WORLD_SIZE", "1"}, {"SLURM_STEP_NUM_TASKS", "2"}}), "");
  EXPECT_EQ(sign({{"SLURM_STEP_NUM_TASKS", "2"}}), "SLURM_STEP_NUM_TASKS=2");
  EXPECT_EQ(sign({{"SLURM_STEP_NUM_TASKS", "1"}, {"SLURM_NTASKS", "4"}}), "");
  // mpirun starts a daemon for each host by srun.
  EXPECT_EQ(sign({{"OMPI_COMM_WORLD_SIZE", "1"}, {"SLURM_STEP_NUM_TASKS", "2"}}), "");
  EXPECT_EQ(sign({{"OMPI_COMM_WORLD_SIZE", "4"}}), "OMPI_COMM_WORLD_SIZE=4");
  EXPECT_THAT(message_of<InvalidArgument>([&] {
                sign({{"PMI_SIZE", "no"}});
              }),
              HasSubstr("PMI_SIZE=no"));
}

TEST(Launcher, ThePortOfTheAgentIsLeftToIt) {
  EXPECT_EQ(found(torchrun_with("TORCHELASTIC_USE_AGENT_STORE", "True")).tcp.port, 29501);
  EXPECT_EQ(found(torchrun_with("TORCHELASTIC_USE_AGENT_STORE", "False")).tcp.port, 29500);
  EXPECT_EQ(found(torchrun_with("BELFRY_PORT", "4000")).tcp.port, 4000);
}

TEST(Launcher, ATokenIsOneOfThisRunAlone) {
  EXPECT_EQ(found(kTorchrun).tcp.token, "");
  EXPECT_EQ(found(torchrun_with("TORCHELASTIC_RUN_ID", "4711")).tcp.token, "4711");
  // What torchrun says if it was given none.
  EXPECT_EQ(found(torchrun_with("TORCHELASTIC_RUN_ID", "none")).tcp.token, "");
  auto both = torchrun_with("TORCHELASTIC_RUN_ID", "4711");
  both["BELFRY_TOKEN"] = "secret";
  EXPECT_EQ(found(both).tcp.token, "secret");
  both["BELFRY_TOKEN"] = "";
  EXPECT_EQ(found(both).tcp.token, "4711");
}

TEST(Launcher, RoundAndInsecurityAreInTheEnvironment) {
  EXPECT_EQ(found(kTorchrun).tcp.round, 0);
  EXPECT_EQ(found(torchrun_with("TORCHELASTIC_RESTART_COUNT", "3")).tcp.round, 3);
  EXPECT_FALSE(found(kTorchrun).tcp.insecure);
  EXPECT_FALSE(found(torchrun_with("BELFRY_INSECURE", "0")).tcp.insecure);
  EXPECT_TRUE(found(torchrun_with("BELFRY_INSECURE", "1")).tcp.insecure);
}

TEST(Launcher, WhatCannotBeIsNamed) {
  for (const auto& [name, value] :
       std::map<std::string, std::string>{{"RANK", "2"},
                                          {"RANK", "x"},
                                          {"WORLD_SIZE", "0"},
                                          {"MASTER_PORT", "70000"},
                                          {"BELFRY_INSECURE", "yes"},
                                          {"TORCHELASTIC_RESTART_COUNT", "-1"}})
    EXPECT_THAT(message_of<InvalidArgument>([&] { found(torchrun_with(name, value)); }),
                HasSubstr(name + "=" + value));
}

}  // namespace launcher_test
}  // namespace belfry
