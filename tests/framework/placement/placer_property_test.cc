// Random requests, colocations, writes and ops without GPU kernels. The placer gives every node a
// device with a kernel, or says clearly why it cannot.
#include <algorithm>
#include <set>

#include "belfry/framework/base/text.h"
#include "belfry/framework/core_ops/add_n.h"
#include "belfry/framework/core_ops/assign.h"
#include "belfry/framework/core_ops/identity.h"
#include "belfry/framework/core_ops/initializers.h"
#include "belfry/framework/placement/placer.h"
#include "belfry/ops/all_reduce.h"
#include "belfry/ops/shape_of.h"
#include "belfry/tests/framework/placement/placement_support.h"

namespace belfry {
namespace placer_property_test {

using ::testing::AnyOf;
using ::testing::StartsWith;

class RandomPlacement {
 public:
  explicit RandomPlacement(unsigned seed) : random_(seed) {
    values_.push_back(fill(graph, {2}, 1));
    grow(1 + draw(random_, 12));
  }

  void grow(int nodes) {
    for (int i = 0; i < nodes; ++i) add_node();
  }
  // Some nodes, in any order.
  std::vector<Fetch> any_fetches() {
    std::vector<Node*> some(nodes_);
    std::ranges::shuffle(some, random_);
    some.resize(1 + at(draw(random_, static_cast<int>(some.size()))));
    std::vector<Fetch> fetches;
    for (Node* node : some) fetches.emplace_back(*node);
    return fetches;
  }
  // Variables, outputs, and others.
  const std::vector<Node*>& nodes() const { return nodes_; }

  Graph graph;

 private:
  Output any() {
    return values_[static_cast<std::size_t>(draw(random_, static_cast<int>(values_.size())))];
  }

  DeviceSpec request() {
    DeviceSpec spec;
    if (draw(random_, 3) == 0) return spec;
    if (draw(random_, 12) == 0) spec.job = "ps";
    if (draw(random_, 6) == 0) spec.task = 0;
    if (draw(random_, 5) > 0) spec.type = draw(random_, 2) == 0 ? "CPU" : "GPU";
    if (draw(random_, 4) > 0) spec.index = draw(random_, 4);
    return spec;
  }

  void add_node() {
    std::optional<ColocateWith> beside;
    if (draw(random_, 3) == 0) beside.emplace(any());
    DeviceScope scope(graph, request());
    switch (draw(random_, 9)) {
      case 0: return keep(fill(graph, {2}, 1));
      case 1: return keep(host_only(any()));
      case 2: return keep(add_n({any(), any()}));
      case 3: return keep(identity(any()));
      case 4: nodes_.push_back(&shape_of(any()).node()); return;
      case 5: return collective();
      case 6: return keep(graph.add(gpu_only_op(), {}).output());
      default: {
        const std::string name = cat("v", nodes_.size());
        const Variable v = variable(graph, name, {2}, {.initializer = init::zeros()});
        nodes_.push_back(&v.node());
        if (draw(random_, 4) == 0) keep(v.read());
        keep(assign(v, any()).output());
      }
    }
  }

  void collective() {
    const Output parts[] = {any(), any()};
    for (const Output& sum : all_reduce(parts)) keep(sum);
  }

  void keep(const Output& output) {
    values_.push_back(output);
    nodes_.push_back(&output.node());
  }

  std::mt19937 random_;
  std::vector<Output> values_;
  std::vector<Node*> nodes_;
};

bool has_kernel(const Op& op, const Device& device) {
  return device.spec.type == "GPU" ? !op.cpu_only : op.on_host();
}

SessionOptions options_of(bool soft) {
  return {.device_count = {{"CPU", 3}}, .allow_soft_placement = soft, .dry_run = true};
}

// Checks the promises of a placement. A collective is where its inputs are, whatever its set.
void check(const Graph& graph, Placer& placer, const PlacementContext& context) {
  const bool soft = context.allow_soft_placement;
  const std::vector<int>& device_of = placer.devices();
  for (std::size_t n = 0; n < graph.size(); ++n) {
    const Node& node = graph.node(n);
    if (node.op().collective || device_of[n] < 0) continue;
    const Device& device = context.device(device_of[n]);
    EXPECT_TRUE(has_kernel(node.op(), device)) << node.describe();
    EXPECT_EQ(placer.colocation().set(node.id()).device, device_of[n]);
    EXPECT_TRUE(soft || node.device().matches(device.spec)) << node.describe();
    for (int w = 0; w < node.op().writes; ++w)
      EXPECT_EQ(device_of[at(node.input(at(w)).node().id())], device_of[n]) << node.describe();
    for (const Node* other : node.request().colocation) {
      const bool together = !soft && !other->op().collective;
      EXPECT_TRUE(!together || device_of[at(other->id())] == device_of[n])
          << node.describe() << " and " << other->name();
    }
  }
}

void expect_clear(const InvalidArgument& error) {
  EXPECT_THAT(error.what(), AnyOf(StartsWith("Cannot assign a device for operation "),
                                  StartsWith("Cannot colocate nodes "),
                                  StartsWith("Cannot place the graph because "),
                                  StartsWith("Nodes were connected by a reference "),
                                  StartsWith("No OpKernel was registered to support ")));
}

TEST(Placer, NeverAssignsADeviceWithoutAKernel) {
  const std::vector<std::unique_ptr<Device>> machines[] = {
      declared_devices(2, 0), declared_devices(1, 2), declared_devices(3, 3)};
  int placed = 0, refused = 0;
  for (unsigned seed = 0; seed < 3000; ++seed) {
    RandomPlacement random(seed);
    for (const auto& devices : machines)
      for (const bool soft : {false, true}) {
        const PlacementContext context{devices, soft, false, {}};
        Placer placer(random.graph, context);
        check(random.graph, placer, context);
        for (std::size_t n = 0; n < random.graph.size(); ++n) {
          if (placer.devices()[n] >= 0) {
            ++placed;
            continue;
          }
          ++refused;
          try {
            placer.refuse(static_cast<int>(n));
          } catch (const InvalidArgument& error) {
            expect_clear(error);
          }
        }
        ASSERT_FALSE(::testing::Test::HasFailure()) << "seed " << seed << ", soft " << soft;
      }
  }
  EXPECT_GT(placed, 3000);
  EXPECT_GT(refused, 3000);
}

// The placements of all nodes, by id; "" for nodes without one.
std::vector<std::string> placement_of(Session& session) {
  std::vector<std::string> result;
  for (std::size_t id = 0; id < session.graph().size(); ++id) try {
      result.push_back(session.placement(Output(session.graph().node(id), 0)).str());
    } catch (const InvalidArgument& error) {
      expect_clear(error);
      result.emplace_back();
    }
  return result;
}

// Whether a fetch, or a node that it needs, has no device.
bool needs_one_without(const std::vector<std::string>& devices, const std::vector<Fetch>& fetches) {
  std::set<const Node*> seen;
  std::vector<const Node*> open;
  const auto want = [&](const Node& node) {
    if (seen.insert(&node).second) open.push_back(&node);
  };
  for (const Fetch& fetch : fetches) want(*fetch.node);
  while (!open.empty()) {
    const Node& node = *open.back();
    open.pop_back();
    if (devices[at(node.id())].empty()) return true;
    for (const Output& input : node.inputs()) want(input.node());
    for (const Node* before : node.control_inputs()) want(*before);
  }
  return false;
}

// Prepares some fetches. If there is a plan, its nodes are where the graph has them.
void prepare_some(Session& session, RandomPlacement& random) {
  const std::vector<std::string> devices = placement_of(session);
  const std::vector<Fetch> fetches = random.any_fetches();
  const bool refused = needs_one_without(devices, fetches);
  try {
    const Plan& plan = *session.prepare(fetches).plan();
    EXPECT_FALSE(refused);
    for (const PlanNode& planned : plan.nodes) {
      const Node& node = *planned.node;
      if (plan.find(node) != NodeIndex(&planned - plan.nodes.data())) continue;
      EXPECT_EQ(session.devices()[at(planned.device())].str(), devices[at(node.id())])
          << node.describe();
    }
  } catch (const InvalidArgument& error) {
    EXPECT_TRUE(refused) << error.what();
    expect_clear(error);
  }
}

TEST(Placer, PlacesEachNodeAlikeWhateverIsFetchedInWhateverOrder) {
  for (unsigned seed = 0; seed < 150; ++seed)
    for (const bool soft : {false, true}) {
      RandomPlacement random(seed);
      std::set<std::vector<std::string>> placements;
      for (int s = 0; s < 3; ++s) {
        Session session(random.graph, options_of(soft));
        for (int i = 0; i < 4; ++i) prepare_some(session, random);
        placements.insert(placement_of(session));
      }
      Session untouched(random.graph, options_of(soft));
      placements.insert(placement_of(untouched));
      EXPECT_EQ(placements.size(), 1u) << "seed " << seed << ", soft " << soft;
      ASSERT_FALSE(::testing::Test::HasFailure()) << "seed " << seed << ", soft " << soft;
    }
}

TEST(Placer, KeepsVariablesWhereTheirMemoryIsHoweverTheGraphGrows) {
  int held = 0;
  for (unsigned seed = 0; seed < 150; ++seed)
    for (const bool soft : {false, true}) {
      RandomPlacement random(seed);
      Session session(random.graph, options_of(soft));
      std::map<const Node*, std::string> memory;
      for (int i = 0; i < 5; ++i) {
        prepare_some(session, random);
        for (Node* node : random.nodes()) {
          if (!node->is_variable()) continue;
          const auto known = memory.find(node);
          if (known != memory.end()) {
            EXPECT_EQ(session.placement(node->output()).str(), known->second) << node->describe();
          } else if (i == 0 && !needs_one_without(placement_of(session), {*node})) {
            session.prepare({*node});
            memory.emplace(node, session.placement(node->output()).str());
            ++held;
          }
        }
        random.grow(3);
      }
      ASSERT_FALSE(::testing::Test::HasFailure()) << "seed " << seed << ", soft " << soft;
    }
  EXPECT_GT(held, 100);
}

}  // namespace placer_property_test
}  // namespace belfry
