#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/framework/core_ops/assign.h"
#include "belfry/framework/core_ops/assign_gathered.h"
#include "belfry/framework/core_ops/between_processes.h"
#include "belfry/framework/core_ops/constant.h"
#include "belfry/framework/core_ops/initializers.h"
#include "belfry/framework/core_ops/no_op.h"
#include "belfry/framework/plan/plan.h"
#include "belfry/framework/run/session.h"
#include "belfry/ops/operand.h"
#include "belfry/ops/slice.h"
#include "belfry/tests/framework/framework_test_support.h"
#include "belfry/tests/support/process_threads.h"

namespace belfry {
namespace passes_gather_first_test {

using ::testing::ElementsAre;

// A step that adds rank + 1 to this process's part of two variables, and returns their sum from
// before. It gathers the last variable first, as training does.
struct Step {
  explicit Step(ProcessPlace place) : graph(1, place) {
    for (const char* name : {"a", "b"})
      variables.push_back(variable(graph, name, {4}, {.initializer = init::ones()}));
    sum = static_cast<Output>(variables[0]) + variables[1];
    std::vector<Node*> written;
    for (const Variable v : {variables[1], variables[0]}) {
      Output delta = constant(graph, place.rank + 1);
      {
        const ControlDependencies after(graph, {&sum.node()});
        delta = delta + constant(graph, {0, 0, 0, 0}, {4});
      }
      const ControlDependencies behind(graph, {&assign_add(v, delta)});
      const Cuts cuts{0, 1, 4};
      const std::int64_t begin = cuts[at(place.rank)];
      const Output part = slice(v.read(), {begin}, {piece_of(cuts, place.rank).size()});
      written.push_back(&assign_gathered(v, all_gather(part, place, cuts), {0, place.rank, cuts}));
    }
    all = &group(graph, written);
  }

  Graph graph;
  std::vector<Variable> variables;
  Output sum;
  Node* all;
};

std::vector<std::string> order_of(const Plan& plan) {
  std::vector<std::string> order;
  for (const Launch& launch : plan.launches) {
    const PlanNode& node = plan.node(launch.node);
    const std::string name = node.op->name;
    if (name == "AllGather" || name == "AssignAdd" || &node.node->op() == &kAssignGathered ||
        (name == "Add" && node.node->name() == "Add"))
      order.push_back(name);
  }
  return order;
}

void in_two_processes(const std::function<void(Step&, Session&)>& f) {
  test::run_processes(2, [&](const std::shared_ptr<Processes>& processes) {
    Step step(processes->place());
    Session session(step.graph, {.threads = 1, .processes = processes});
    f(step, session);
    processes->gather("");
  });
}

TEST(GatherFirst, MovesGathersBeforeWhatReadsTheirVariables) {
  in_two_processes([](Step& step, Session& session) {
    const std::vector<Fetch> fetches{*step.all, step.sum};
    const Plan& last = *session.prepare(fetches).plan();
    EXPECT_TRUE(last.gathered_first.empty());
    EXPECT_EQ(order_of(last).front(), "Add");
    EXPECT_EQ(order_of(last).back(), "AssignGathered");
    const Plan& first = *session.prepare(fetches, {}, {.gathers_first = true}).plan();
    EXPECT_EQ(first.gathered_first.size(), 2u);
    EXPECT_THAT(order_of(first), ElementsAre("AllGather", "AllGather", "AssignGathered",
                                             "AssignGathered", "Add", "AssignAdd", "AssignAdd"));
  });
}

std::vector<float> values_of(const Tensor& tensor) {
  return {tensor.data<float>().begin(), tensor.data<float>().end()};
}

// Each run adds 1 to part 0 and 2 to part 1.
std::vector<float> after(float runs) {
  return {1 + runs, 1 + 2 * runs, 1 + 2 * runs, 1 + 2 * runs};
}

TEST(GatherFirst, LeavesTheNewestValuesToAllThatReadThem) {
  in_two_processes([](Step& step, Session& session) {
    const std::vector<Fetch> fetches{*step.all, step.sum};
    CompiledStep& run = session.prepare(fetches, {}, {.gathers_first = true});
    const Variable a = step.variables[0];
    for (float runs = 1; runs <= 3; ++runs) {
      run.run();
      std::vector<float> twice = after(runs - 1);
      for (float& value : twice) value *= 2;
      EXPECT_EQ(values_of(run.fetched(1)), twice);
      if (runs == 1) {
        EXPECT_EQ(values_of(session.read(a)), after(1));
      }
      if (runs == 2 && step.graph.process().rank == 1) {  // rank 1 alone
        EXPECT_EQ(values_of(session.run(a)), after(2));
      }
    }
    EXPECT_EQ(values_of(session.run(static_cast<Output>(a) + 0)), after(3));
    EXPECT_EQ(values_of(session.read(step.variables[1])), after(3));
  });
}

TEST(GatherFirst, GoesOnFromWhatIsWrittenAndRestored) {
  in_two_processes([](Step& step, Session& session) {
    const Fetch fetch(*step.all);
    CompiledStep& run = session.prepare({&fetch, 1}, {}, {.gathers_first = true});
    run.run();
    session.write(step.variables[0], floats({5, 5, 5, 5}));
    run.run();
    EXPECT_EQ(values_of(session.read(step.variables[0])), (std::vector<float>{6, 7, 7, 7}));
    EXPECT_EQ(values_of(session.read(step.variables[1])), after(2));
    run.run();
    const std::vector<float> ones(4, 1);
    std::vector<VariableBytes> values;
    for (const Variable v : step.variables) values.push_back({v, std::as_bytes(std::span(ones))});
    session.restore(values, 0);
    run.run();
    for (const Variable v : step.variables) EXPECT_EQ(values_of(session.read(v)), after(1));
  });
}

// A node that reads a gathered value in the same run would find the value of the run before.
TEST(GatherFirst, ChangesNothingWhereTheRunReadsWhatItGathers) {
  in_two_processes([](Step& step, Session& session) {
    const ControlDependencies behind(step.graph, {step.all});
    const Output newest = step.variables[0].read();
    const Fetch fetch(newest);
    CompiledStep& run = session.prepare({&fetch, 1}, {}, {.gathers_first = true});
    EXPECT_TRUE(run.plan()->gathered_first.empty());
    run.run();
    EXPECT_EQ(values_of(run.fetched(0)), after(1));
  });
}

TEST(GatherFirst, IsRefusedForStepsBesideOthers) {
  in_two_processes([](Step& step, Session& session) {
    const Fetch fetch(*step.all);
    EXPECT_THROW(session.prepare({&fetch, 1}, {},
                                 {.locks = LockDuration::kEachVariable, .gathers_first = true}),
                 InvalidArgument);
  });
}

}  // namespace passes_gather_first_test
}  // namespace belfry
