#include "belfry/trainers/util/hash.h"

#include <set>

#include <gtest/gtest.h>

#include "belfry/framework/base/text.h"
#include "belfry/framework/core_ops/initializers.h"
#include "belfry/framework/graph/scopes.h"
#include "belfry/framework/graph/weights.h"

namespace belfry {
namespace hash_test {

std::uint64_t fnv(std::string_view text) {
  Fnv1a hash;
  hash.add(std::as_bytes(std::span(text)));
  return hash.value();
}

TEST(Fnv1a, HasThePublishedValues) {
  EXPECT_EQ(fnv(""), 0xcbf29ce484222325u);
  EXPECT_EQ(fnv("a"), 0xaf63dc4c8601ec8cu);
  EXPECT_EQ(fnv("foobar"), 0x85944171f73967e8u);
}

TEST(HashTensors, CoversNameDtypeShapeAndBytes) {
  const Tensor value({2}, std::vector<float>{1, 2});
  const std::string hash = hash_tensors({{"w", value}});
  EXPECT_EQ(hash.size(), 16u);
  EXPECT_EQ(hash, hash_tensors({{"w", Tensor({2}, std::vector<float>{1, 2})}}));
  EXPECT_NE(hash, hash_tensors({{"v", value}}));
  EXPECT_NE(hash, hash_tensors({{"w", Tensor({2, 1}, std::vector<float>{1, 2})}}));
  EXPECT_NE(hash, hash_tensors({{"w", Tensor({2}, std::vector<float>{1, 3})}}));
  EXPECT_NE(hash_tensors({{"w", Tensor({1}, std::vector<float>{0})}}),
            hash_tensors({{"w", Tensor({1}, std::vector<std::int32_t>{0})}}));
  EXPECT_NE(hash_tensors({{"w", Tensor(0.0f)}}), hash_tensors({{"w", Tensor(-0.0f)}}));
}

TEST(HashTensors, IsTheHashOfTheDocumentedBytes) {
  const Tensor value({1, 2}, std::vector<std::uint8_t>{7, 9});
  const std::string bytes = std::string("w\0u8\0", 5) + std::string("\2\0\0\0\0\0\0\0", 8) +
                            std::string("\1\0\0\0\0\0\0\0", 8) +
                            std::string("\2\0\0\0\0\0\0\0", 8) + "\x07\x09";
  EXPECT_EQ(hash_tensors({{"w", value}}), hex(fnv(bytes), 16));
}

TEST(HashTensors, DoesNotDependOnTheOrderGiven) {
  const Tensor a(1.0f), b(2.0f);
  EXPECT_EQ(hash_tensors({{"a", a}, {"b", b}}), hash_tensors({{"b", b}, {"a", a}}));
  EXPECT_NE(hash_tensors({{"a", a}, {"b", b}}), hash_tensors({{"a", b}, {"b", a}}));
}

// A variable, one that is not trained, one of an optimizer, and a replica of the first.
struct Copies {
  Copies() {
    w = variable(graph, "w", {2}, {.initializer = init::ones()});
    frozen = variable(graph, "frozen", {}, {.initializer = init::ones(), .trainable = false});
    state =
        variable(graph, "state", {},
                 {.initializer = init::zeros(),
                  .trainable = false,
                  .collections = {std::string(kGlobalVariables), std::string(kStateVariables)}});
    const ReplicaScope replica(graph, "tower1/", 1);
    copy = variable(graph, "tower1/w", {2},
                    {.initializer = init::ones(),
                     .collections = {std::string(kLocalVariables)},
                     .copy_of = &w.node()});
  }
  Graph graph;
  Variable w, frozen, state, copy;
};

TEST(ParamsHash, CoversTheWeightsOfTowerZeroFrozenOnesToo) {
  Copies c;
  Session session(c.graph);
  const Tensor ones({2}, std::vector<float>{1, 1}), other({2}, std::vector<float>{1, 5}), one(1.0f);
  const auto weights = [&](const Tensor& w, const Tensor& frozen) {
    return hash_tensors({{"w", w}, {"frozen", frozen}});
  };
  EXPECT_EQ(params_hash(session, c.graph), weights(ones, one));
  EXPECT_EQ(state_hash(session, c.graph),
            hash_tensors({{"w", ones}, {"frozen", one}, {"state", Tensor(0.0f)}}));
  session.write(c.copy, other);
  EXPECT_EQ(params_hash(session, c.graph), weights(ones, one));
  session.write(c.state, Tensor(4.0f));
  EXPECT_EQ(params_hash(session, c.graph), weights(ones, one));
  EXPECT_EQ(state_hash(session, c.graph),
            hash_tensors({{"w", ones}, {"frozen", one}, {"state", Tensor(4.0f)}}));
  session.write(c.frozen, Tensor(3.0f));
  EXPECT_EQ(params_hash(session, c.graph), weights(ones, Tensor(3.0f)));
  session.write(c.w, other);
  EXPECT_EQ(params_hash(session, c.graph), weights(other, Tensor(3.0f)));
}

TEST(DifferingReplicas, NamesTheCopiesThatDiffer) {
  Copies c;
  Session session(c.graph);
  EXPECT_TRUE(differing_replicas(session, c.graph).empty());
  session.write(c.copy, Tensor({2}, std::vector<float>{1, 5}));
  EXPECT_EQ(differing_replicas(session, c.graph), std::vector<std::string>{"tower1/w"});
  session.write(c.w, Tensor({2}, std::vector<float>{1, 5}));
  EXPECT_TRUE(differing_replicas(session, c.graph).empty());
}

}  // namespace hash_test
}  // namespace belfry
