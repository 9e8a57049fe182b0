#include "belfry/framework/group/launcher.h"

#include <cstdlib>
#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "belfry/framework/base/error.h"
#include "belfry/framework/base/file_system.h"
#include "belfry/framework/base/text.h"
#include "belfry/tests/framework/framework_test_support.h"
#include "belfry/tests/support/programs.h"

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
  EXPECT_EQ(found({{"PMIX_RANK", "0"}}).kind, Kind::kNone);
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

// As in the second of four tasks of step 2 of job 4711.
const std::map<std::string, std::string> kSlurm = {
    {"SLURM_STEP_NUM_TASKS", "4"},   {"SLURM_PROCID", "1"},
    {"SLURM_LOCALID", "1"},          {"SLURM_STEP_NODELIST", "a[01-02]-ib"},
    {"SLURM_DISTRIBUTION", "block"}, {"SLURM_STEP_TASKS_PER_NODE", "2(x2)"},
    {"SLURM_JOB_ID", "4711"},        {"SLURM_STEP_ID", "2"},
    {"BELFRY_TOKEN", "secret"}};
// As in pod 1 of an indexed Job whose container sets the other three.
const std::map<std::string, std::string> kKubernetes = {{"JOB_COMPLETION_INDEX", "1"},
                                                        {"WORLD_SIZE", "4"},
                                                        {"MASTER_ADDR", "train-0.train"},
                                                        {"BELFRY_TOKEN", "secret"}};

// As in pod 1 of four of a TrainJob, before torchrun has read its arguments.
const std::map<std::string, std::string> kKubeflow = {
    {"JOB_COMPLETION_INDEX", "1"},        {"PET_NNODES", "4"},
    {"PET_NPROC_PER_NODE", "1"},          {"PET_NODE_RANK", "1"},
    {"PET_MASTER_ADDR", "train-0.train"}, {"PET_MASTER_PORT", "29500"}};
const std::map<std::string, std::string> kNothing = {};

std::map<std::string, std::string> with(std::map<std::string, std::string> environment,
                                        const std::map<std::string, std::string>& more) {
  for (const auto& [name, value] : more) environment[name] = value;
  return environment;
}

TEST(Launcher, TasksOfSlurmMeetOnTheFirstHost) {
  const LauncherFound slurm = found(kSlurm);
  ASSERT_EQ(slurm.kind, Kind::kTcp);
  EXPECT_EQ(slurm.evidence, "SLURM_STEP_NUM_TASKS=4");
  EXPECT_EQ(slurm.local_size, 2);
  EXPECT_EQ(slurm.tcp.rank, 1);
  EXPECT_EQ(slurm.tcp.size, 4);
  EXPECT_EQ(slurm.tcp.address, "a01-ib");
  EXPECT_EQ(slurm.tcp.token, "secret");
  EXPECT_EQ(slurm.tcp.round, 0);
  EXPECT_EQ(found(with(kSlurm, {{"SLURM_RESTART_COUNT", "2"}})).tcp.round, 2) << "after a requeue";
  // Cyclic and plane distributions place task 0 there, too.
  for (const char* const distribution : {"cyclic", "block:cyclic", "plane=2"})
    EXPECT_EQ(found(with(kSlurm, {{"SLURM_DISTRIBUTION", distribution}})).tcp.address, "a01-ib");
  for (const auto& by_hand :
       {std::pair("SLURM_DISTRIBUTION", "arbitrary"), {"SLURM_HET_SIZE", "2"}})
    EXPECT_EQ(found(with(kSlurm, {{"MASTER_ADDR", "a02-ib"}, by_hand})).tcp.address, "a02-ib");
  // Scripts set these for other programs.
  EXPECT_EQ(found(with(kSlurm, {{"WORLD_SIZE", "4"}, {"MASTER_ADDR", "b"}})).tcp.address, "b");
}

TEST(Launcher, EachStepOfSlurmHasPortsOfItsOwn) {
  const auto ports_of = [](const std::string& job, const std::string& step) {
    return found(with(kSlurm, {{"SLURM_JOB_ID", job}, {"SLURM_STEP_ID", step}})).tcp;
  };
  const TcpGroupOptions one = ports_of("4711", "2");
  EXPECT_EQ(one.port, ports_of("4711", "2").port);
  for (const auto& [job, step] : {std::pair("4711", "3"), {"4712", "2"}, {"4294967295", "0"}}) {
    const TcpGroupOptions other = ports_of(job, step);
    EXPECT_GE(std::abs(one.port - other.port), one.ports) << job << "." << step;
    EXPECT_GE(other.port, 10'000);
    EXPECT_LE(other.port + other.ports, 32'768);
    EXPECT_NE(one.run, other.run) << "two jobs may have one token";
  }
  for (const char* const name : {"MASTER_PORT", "BELFRY_PORT"}) {
    const TcpGroupOptions given = found(with(kSlurm, {{name, "4000"}})).tcp;
    EXPECT_EQ(given.port, 4000);
    EXPECT_EQ(given.ports, 1);
  }
}

TEST(Launcher, PodsOfAnIndexedJobMeetAtPodZero) {
  const LauncherFound pod = found(kKubernetes);
  ASSERT_EQ(pod.kind, Kind::kTcp);
  EXPECT_EQ(pod.evidence, "WORLD_SIZE=4");
  EXPECT_EQ(pod.local_size, 1);
  EXPECT_EQ(pod.tcp.rank, 1);
  EXPECT_EQ(pod.tcp.size, 4);
  EXPECT_EQ(pod.tcp.address, "train-0.train");
  EXPECT_EQ(pod.tcp.port, 29500);
  EXPECT_EQ(pod.tcp.token, "secret");
  EXPECT_EQ(found(with(kKubernetes, {{"MASTER_PORT", "4000"}})).tcp.port, 4000);
  EXPECT_EQ(found(with(kKubernetes, {{"LOCAL_WORLD_SIZE", "2"}})).local_size, 2);
  EXPECT_EQ(found(with(kKubernetes, kKubeflow)).tcp.size, 4);
  EXPECT_EQ(found(with(kTorchrun, kKubeflow)).tcp.size, 2) << "as torchrun says";
  EXPECT_EQ(found(with(kKubeflow, {{"PET_NNODES", "1"}})).kind, Kind::kNone);
  // Pods of other indexed Jobs do not belong together.
  EXPECT_EQ(found({{"JOB_COMPLETION_INDEX", "1"}}).kind, Kind::kNone);
  EXPECT_EQ(found({{"JOB_COMPLETION_INDEX", "0"}, {"WORLD_SIZE", "1"}}).kind, Kind::kNone);
}

// Each row takes one variable away from a whole environment, or gives it another value, and has
// what the error must say. Else the process would train alone, or wait for others in vain.
TEST(Launcher, WhatIsHalfSetIsNamed) {
  const auto& torchrun = kTorchrun;
  const struct {
    const std::map<std::string, std::string>& whole;
    const char* name;
    const char* value;  // null: it is missing
    const char* told;
  } rows[] = {
      {torchrun, "RANK", nullptr, "WORLD_SIZE=2 and MASTER_ADDR=node1, but no RANK"},
      {torchrun, "WORLD_SIZE", nullptr, "RANK=1 and MASTER_ADDR=node1, but no WORLD_SIZE"},
      {torchrun, "MASTER_ADDR", nullptr, "RANK=1 and WORLD_SIZE=2, but no MASTER_ADDR"},
      {torchrun, "MASTER_PORT", nullptr, "RANK=1 and WORLD_SIZE=2, but no MASTER_PORT"},
      {torchrun, "MASTER_ADDR", "", "an empty MASTER_ADDR; set it to the host of rank 0"},
      {torchrun, "RANK", "2", "RANK=2; it must be a number from 0 to 1"},
      {torchrun, "WORLD_SIZE", "two", "WORLD_SIZE=two"},
      {torchrun, "MASTER_PORT", "tcp://10.0.0.1:80", "MASTER_PORT=tcp://10.0.0.1:80"},
      {kSlurm, "SLURM_PROCID", nullptr, "SLURM_STEP_NUM_TASKS=4, but no SLURM_PROCID; start all"},
      {kSlurm, "SLURM_STEP_NUM_TASKS", nullptr, "SLURM_PROCID=1, but no SLURM_STEP_NUM_TASKS"},
      {kSlurm, "SLURM_STEP_NODELIST", nullptr,
       "SLURM_STEP_NUM_TASKS=4, but no SLURM_STEP_NODELIST; set MASTER_ADDR to the host of task 0"},
      {kSlurm, "SLURM_JOB_ID", nullptr,
       "SLURM_STEP_NUM_TASKS=4, but no SLURM_JOB_ID; set MASTER_PORT to a free port"},
      {kSlurm, "SLURM_STEP_ID", nullptr, "but no SLURM_STEP_ID; set MASTER_PORT"},
      {kSlurm, "SLURM_PROCID", "4", "SLURM_PROCID=4; it must be a number from 0 to 3"},
      {kSlurm, "SLURM_STEP_NUM_TASKS", "four", "SLURM_STEP_NUM_TASKS=four"},
      {kSlurm, "SLURM_STEP_NODELIST", "a[01-", "SLURM_STEP_NODELIST: 'a[01-' is no list of hosts"},
      {kSlurm, "SLURM_JOB_ID", "x", "SLURM_JOB_ID=x"},
      {kSlurm, "SLURM_RESTART_COUNT", "-1", "SLURM_RESTART_COUNT=-1"},
      {kSlurm, "SLURM_DISTRIBUTION", "arbitrary",
       "SLURM_DISTRIBUTION=arbitrary, so task 0 may be on any host; set MASTER_ADDR"},
      {kSlurm, "SLURM_HET_SIZE", "2", "SLURM_HET_SIZE=2: in a heterogeneous job"},
      {kSlurm, "RANK", "0", "RANK=0, but SLURM_PROCID=1; unset RANK"},
      {kSlurm, "WORLD_SIZE", "8", "WORLD_SIZE=8, but SLURM_STEP_NUM_TASKS=4; unset WORLD_SIZE"},
      {kSlurm, "MASTER_ADDR", "", "an empty MASTER_ADDR"},
      {kKubernetes, "WORLD_SIZE", nullptr,
       "JOB_COMPLETION_INDEX=1 and MASTER_ADDR, BELFRY_TOKEN, but no WORLD_SIZE; the pods"},
      {kKubernetes, "MASTER_ADDR", nullptr,
       "JOB_COMPLETION_INDEX=1 and WORLD_SIZE, BELFRY_TOKEN, but no MASTER_ADDR; the pods"},
      {kKubernetes, "JOB_COMPLETION_INDEX", nullptr,
       "WORLD_SIZE=4 and MASTER_ADDR=train-0.train, but no RANK"},
      {kKubernetes, "JOB_COMPLETION_INDEX", "4",
       "JOB_COMPLETION_INDEX=4; it must be a number from 0 to 3"},
      {kKubernetes, "MASTER_PORT", "tcp://10.0.0.1:80", "MASTER_PORT=tcp://10.0.0.1:80"},
      {kKubeflow, "RANK", nullptr, "PET_NNODES=4, an argument of torchrun, but no RANK"},
      {kNothing, "OMPI_COMM_WORLD_RANK", "1", "WORLD_RANK=1, but no OMPI_COMM_WORLD_SIZE"},
      {kNothing, "PMI_RANK", "1", "PMI_RANK=1, but no PMI_SIZE, the number of processes"},
      {kNothing, "PMIX_RANK", "1", "PMIX_RANK=1, but no OMPI_COMM_WORLD_SIZE"},
  };
  for (const auto& [whole, name, value, told] : rows) {
    auto environment = whole;
    environment.erase(name);
    if (value) environment[name] = value;
    const std::string message = message_of<InvalidArgument>([&] { found(environment); });
    EXPECT_THAT(message, HasSubstr(told)) << name;
    EXPECT_EQ(message.find("secret"), message.npos) << message;
  }
  // A secret and nothing to meet by.
  EXPECT_THAT(message_of<InvalidArgument>([&] {
                found({{"JOB_COMPLETION_INDEX", "0"}, {"BELFRY_TOKEN", "x"}});
              }),
              HasSubstr("BELFRY_TOKEN, but no WORLD_SIZE and no MASTER_ADDR"));
  try {
    found({{"SLURM_STEP_NUM_TASKS", "4"}});
    ADD_FAILURE() << "threw nothing";
  } catch (const InvalidArgument& error) {
    EXPECT_TRUE(error.fields().is_mistake) << "no launcher is to try again";
  }
  // Only the token is left to whoever connects: on one machine nobody needs one.
  EXPECT_TRUE(lacks_token(found(with(kSlurm, {{"BELFRY_TOKEN", ""}})).tcp));
  EXPECT_TRUE(lacks_token(found(with(kKubernetes, {{"BELFRY_TOKEN", ""}})).tcp));
}

TEST(Launcher, OthersWithinTasksOfSlurmSayMore) {
  auto torchrun = kTorchrun;
  torchrun.insert(kSlurm.begin(), kSlurm.end());
  EXPECT_EQ(found(torchrun).tcp.address, "node1");
  for (const char* const name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"}) {
    EXPECT_EQ(found(with(kSlurm, {{name, "1"}})).kind, Kind::kNone) << name;
    EXPECT_EQ(found(with(kSlurm, {{name, "4"}})).kind, Kind::kMpi) << name;
  }
  EXPECT_EQ(found(with(kSlurm, {{"PMIX_RANK", "1"}})).kind, Kind::kMpi);
  EXPECT_EQ(found(with(kSlurm, {{"RANK", "0"}, {"WORLD_SIZE", "1"}})).kind, Kind::kNone);
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
  EXPECT_EQ(sign(kKubernetes), "JOB_COMPLETION_INDEX=1 and WORLD_SIZE=4");
  EXPECT_EQ(sign({{"JOB_COMPLETION_INDEX", "1"}}), "");
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

TEST(Launcher, ATokenMayBeInTheHomeOfItsOwner) {
  const std::string home = temporary_path(".home"), path = home + "/.belfry/token";
  FileSystem& files = local_file_system();
  const auto token = [&](const std::map<std::string, std::string>& more = {}) {
    auto environment = with(torchrun_with("HOME", home), more);
    return found(environment).tcp.token;
  };
  EXPECT_EQ(token(), "");
  files.create_directory(home + "/.belfry");
  EXPECT_EQ(token(), "");
  write_text_file(files, path, "kept\n");
  ASSERT_EQ(::chmod(path.c_str(), 0600), 0);
  EXPECT_EQ(token(), "kept");
  EXPECT_EQ(token({{"BELFRY_TOKEN", "secret"}}), "secret");
  EXPECT_EQ(token({{"TORCHELASTIC_RUN_ID", "4711"}}), "4711");
  EXPECT_EQ(token({{"MASTER_ADDR", "127.0.0.1"}}), "") << "nobody needs it there";
  for (const auto& [mode, told] : {std::pair(0644, "0644"), {0640, "0640"}, {0602, "0602"}}) {
    ASSERT_EQ(::chmod(path.c_str(), static_cast<mode_t>(mode)), 0);
    EXPECT_THAT(message_of<InvalidArgument>([&] { token(); }),
                HasSubstr(cat("the token in ", path, " has mode ", told)));
  }
  write_text_file(files, path, " \n");
  ASSERT_EQ(::chmod(path.c_str(), 0600), 0);
  EXPECT_THAT(message_of<InvalidArgument>([&] { token(); }), HasSubstr("holds no token"));
  remove_tree(files, home);
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
