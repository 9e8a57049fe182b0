#include "belfry/framework/core_ops/between_processes.h"

#include <algorithm>

#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/core_ops/add_pieces.h"
#include "belfry/framework/core_ops/covering_nodes.h"
#include "belfry/framework/core_ops/received_sum.h"
#include "belfry/framework/graph/exchange.h"
#include "belfry/framework/group/tags.h"

namespace belfry {
namespace {

constexpr char kCollection[] = "exchanges";
constexpr const char* kExchangeHasNoGradient = "gradients are taken in each process";

// Rows of all processes are gathered in rounds, each of which gives a process this many times the
// rows that it had.
constexpr int kRoundFactor = 4;

// Processes that exchange pieces: all of them, or those of one level of a sum. They have their own
// ranks.
struct Peers {
  int rank, size;  // of this process, and how many there are
  int first = 0, stride = 1;
  bool all = true;
  // About as many elements as they exchange: the same number in all processes, even where the rows
  // are pieces of different sizes.
  std::int64_t row = 0;

  int process(int r) const { return first + r * stride; }
  // The peer that comes so many ranks later; after the last comes the first.
  int later(int ranks) const { return (rank + ranks) % size; }
  std::string str() const { return cat(rank, ',', size, ',', first, ',', stride); }
  bool operator==(const Peers&) const = default;
};

struct ScatterOptions {
  Peers peers;
  int towers;  // of each process
  int tag;
  Cuts cuts;
};
// Two processes add: each has one row, and gets its piece of the other row.
struct AddReceivedOptions {
  Peers peers;
  int divisor;
  int tag;
  Cuts cuts;
};
// A process has the pieces of `known` ranks before this exchange, and of `after` ranks after it:
// its own, and those of the ranks that come next.
struct GatherOverProcesses {
  Peers peers;
  int tag;
  Cuts cuts;  // of a row; none: rows of a tensor, equally many of each process
  int known, after;
};

struct RingSendOptions {
  int rank, size;
  int arriving;  // which piece comes
  int tag;
  Cuts cuts;
};

std::span<std::byte> bytes_at(const void* tensor, WorkRange elements, DType dtype) {
  const std::size_t size = size_of(dtype);
  // The cast is safe: messages to be sent are not written.
  auto* const begin = static_cast<std::byte*>(const_cast<void*>(tensor));
  return {begin + static_cast<std::size_t>(elements.begin) * size,
          static_cast<std::size_t>(elements.size()) * size};
}

OutputTypes scatter_shape(const ShapeContext& c) {
  const auto& [peers, towers, tag, cuts] = c.options<ScatterOptions>();
  const int rank = peers.rank, size = peers.size;
  c.require_same_dtype();
  c.require(c.dtype() == DType::kF32 || c.dtype() == DType::kF64,
            "sums over processes are of f32 or f64, not of ", name_of(c.dtype()));
  c.require(c.inputs() == covering_nodes_of(rank, size, towers).size(), "takes ",
            covering_nodes_of(rank, size, towers).size(), " tensors, not ", c.inputs());
  c.require(c.input(0).rank() == 1 && c.input(0).is_fully_known(),
            "takes tensors of one dimension "
            "whose size is known, not ",
            c.input(0));
  c.require(cuts.back() == c.input(0)[0], "cuts ", cuts.back(), " elements, but has ",
            c.input(0)[0]);
  return {Shape{count_nodes_of_others(rank, size, towers), piece_of(cuts, rank).size()}};
}

// The kernel of ops whose exchange does everything.
KernelRun messages_alone(KernelPlan&) {
  return [](const KernelPointers&) {};
}

// Adds a message, unless it has no bytes: its receiver expects none then.
void add_message(std::vector<GroupMessage>& messages, int process, int tag,
                 std::span<std::byte> bytes) {
  if (!bytes.empty()) messages.push_back({process, tag, bytes});
}

// Each row of the output receives this process's piece of a covering node of another process. Each
// process begins with the next rank, so that not all send to one first.
Exchange scatter_exchange(const Node& node, const KernelPointers& p) {
  const auto& [peers, towers, tag, cuts] = node.options<ScatterOptions>();
  const TensorType& type = node.input(0).type();
  const std::int64_t length = piece_of(cuts, peers.rank).size();
  std::vector<std::int64_t> rows{0};  // where those of each rank begin, and where they end
  for (int r = 0; r < peers.size; ++r)
    rows.push_back(rows.back() +
                   (r == peers.rank ? 0 : std::ssize(covering_nodes_of(r, peers.size, towers))));
  Exchange exchange;
  for (int i = 1; i < peers.size; ++i) {
    const int r = peers.later(i), process = peers.process(r);
    for (std::int64_t row = rows[static_cast<std::size_t>(r)];
         row < rows[static_cast<std::size_t>(r) + 1]; ++row)
      add_message(exchange.received, process, tag,
                  bytes_at(p.output<void>(), {row * length, (row + 1) * length}, type.dtype));
    for (std::size_t k = 0; k < p.inputs(); ++k)
      add_message(exchange.sent, process, tag,
                  bytes_at(p.input<void>(k), piece_of(cuts, r), type.dtype));
  }
  return exchange;
}

Exchange add_received_exchange(const Node& node, const KernelPointers& p) {
  const auto& [peers, divisor, tag, cuts] = node.options<AddReceivedOptions>();
  const DType dtype = node.input(0).type().dtype;
  const int other = 1 - peers.rank, process = peers.process(other);
  const WorkRange piece = piece_of(cuts, peers.rank);
  Exchange exchange;
  add_message(exchange.received, process, tag, bytes_at(p.workspace(), {0, piece.size()}, dtype));
  for (GroupMessage& message : exchange.received)
    message.use = ReceivedSum{.own = bytes_at(p.input<void>(0), piece, dtype),
                              .sum = bytes_at(p.output<void>(), piece, dtype),
                              .own_first = peers.rank == 0,
                              .divisor = divisor,
                              .dtype = dtype};
  add_message(exchange.sent, process, tag,
              bytes_at(p.input<void>(0), piece_of(cuts, other), dtype));
  return exchange;
}

OutputTypes add_received_shape(const ShapeContext& c) {
  const Cuts& cuts = c.options<AddReceivedOptions>().cuts;
  c.require(c.dtype() == DType::kF32 || c.dtype() == DType::kF64,
            "sums over processes are of f32 or f64, not of ", name_of(c.dtype()));
  c.require(c.input(0) == Shape{cuts.back()}, "cuts ", cuts.back(), " elements, but has ",
            c.input(0));
  return {c.input(0)};
}

// Memory for the message: by TCP and MPI all of it arrives before it is added.
KernelRun room_for_message(KernelPlan& plan) {
  const auto& options = plan.options<AddReceivedOptions>();
  plan.workspace(piece_of(options.cuts, options.peers.rank).size() *
                 static_cast<std::int64_t>(size_of(plan.dtype())));
  return messages_alone(plan);
}

// Whether the input is as long as all pieces together, with the known pieces in their places.
bool has_whole(const GatherOverProcesses& options, const Shape& input) {
  return options.known > 1 || (!options.cuts.empty() && input == Shape{options.cuts.back()});
}

OutputTypes all_gather_shape(const ShapeContext& c) {
  const auto& options = c.options<GatherOverProcesses>();
  if (!options.cuts.empty()) {
    const std::int64_t piece = piece_of(options.cuts, options.peers.rank).size();
    c.require(c.input(0) == Shape{piece} || has_whole(options, c.input(0)), "takes a piece of ",
              piece, " elements, or ", options.cuts.back(), ", not ", c.input(0));
    return {Shape{options.cuts.back()}};
  }
  c.require(c.input(0).rank() > 0 && c.input(0).is_fully_known(),
            "takes rows, of which the number is known, not ", c.input(0));
  Shape shape = c.input(0);
  if (!has_whole(options, shape)) shape[0] *= options.peers.size;
  return {shape};
}

// Where pieces lie in the output of an all-gather.
struct GatheredPieces {
  const Cuts& cuts;  // if there are none, each has `own` elements
  std::int64_t own;
  int size;

  WorkRange of(int rank) const {
    return cuts.empty() ? WorkRange{rank * own, (rank + 1) * own} : piece_of(cuts, rank);
  }
  // Those of `count` ranks. After the last rank comes rank 0, so they may lie in two places.
  std::vector<WorkRange> of_ranks(int first, int count) const {
    const int up_to_last = std::min(count, size - first);
    std::vector<WorkRange> places{{of(first).begin, of(first + up_to_last - 1).end}};
    if (count > up_to_last) places.push_back({0, of(count - up_to_last - 1).end});
    return places;
  }
};

Exchange all_gather_exchange(const Node& node, const KernelPointers& p) {
  const auto& [peers, tag, cuts, known, after] = node.options<GatherOverProcesses>();
  const TensorType& type = node.input(0).type();
  const bool whole = has_whole(node.options<GatherOverProcesses>(), type.shape);
  const std::int64_t elements = type.shape.elements();
  const std::int64_t own =
      cuts.empty() ? elements / (whole ? peers.size : 1) : piece_of(cuts, peers.rank).size();
  const GatheredPieces pieces{cuts, own, peers.size};
  const auto given = [&](WorkRange place) {
    return bytes_at(p.input<void>(0), whole ? place : WorkRange{0, own}, type.dtype);
  };
  const auto gathered = [&](WorkRange place) {
    return bytes_at(p.output<void>(), place, type.dtype);
  };
  Exchange exchange;
  for (const WorkRange& place : pieces.of_ranks(peers.rank, known))
    if (given(place).data() != gathered(place).data())
      exchange.kept.push_back({given(place), gathered(place)});
  for (int shift = known; shift < after; shift += known) {
    const int from = peers.later(shift), to = peers.later(peers.size - shift);
    const int count = std::min(known, after - shift);
    for (const WorkRange& place : pieces.of_ranks(from, count))
      add_message(exchange.received, peers.process(from), tag, gathered(place));
    for (const WorkRange& place : pieces.of_ranks(peers.rank, count))
      add_message(exchange.sent, peers.process(to), tag, given(place));
  }
  bool alike = peers.all && known == 1 && after == peers.size;
  for (int r = 0; alike && r < peers.size; ++r) alike = pieces.of(r).size() == own;
  if (alike) exchange.gathered = {given(pieces.of(peers.rank)), gathered({0, own * peers.size})};
  return exchange;
}

OutputTypes ring_send_shape(const ShapeContext& c) {
  c.require_rank(0, 1);
  const auto& options = c.options<RingSendOptions>();
  return {Shape{piece_of(options.cuts, options.arriving).size()}};
}

Exchange ring_send_exchange(const Node& node, const KernelPointers& p) {
  const auto& [rank, size, arriving, tag, cuts] = node.options<RingSendOptions>();
  const TensorType& sent = node.input(0).type();
  const auto message = [&](int peer, const void* tensor, std::int64_t elements) {
    return GroupMessage{peer, tag, bytes_at(tensor, {0, elements}, sent.dtype)};
  };
  const std::int64_t received = piece_of(cuts, arriving).size();
  return {.received = {message((rank + size - 1) % size, p.output<void>(), received)},
          .sent = {message((rank + 1) % size, p.input<void>(0), sent.shape.elements())}};
}

OutputTypes mpi_all_reduce_shape(const ShapeContext& c) {
  c.require(c.dtype() == DType::kF32 || c.dtype() == DType::kF64, "MPI adds f32 or f64, not ",
            name_of(c.dtype()));
  return {c.input(0)};
}

Exchange mpi_all_reduce_exchange(const Node& node, const KernelPointers& p) {
  const TensorType& type = node.input(0).type();
  const WorkRange all{0, type.shape.elements()};
  const auto sum = bytes_at(p.output<void>(), all, type.dtype);
  Exchange exchange;
  exchange.kept = {{bytes_at(p.input<void>(0), all, type.dtype), sum}};  // what it adds itself
  exchange.summed = {{.bytes = sum}};
  exchange.dtype = type.dtype;
  return exchange;
}

// A tag for each exchange of a graph. After kStepTags exchanges, tags start over.
int next_tag(Graph& graph) {
  return static_cast<int>(graph.collection(kCollection).size() % kStepTags);
}

Output exchanged(Graph& graph, const Op& op, std::span<const Output> inputs, NodeOptions options,
                 At at) {
  Node& node = graph.add(op, inputs, at, std::move(options));
  graph.add_to_collection(kCollection, node);
  return node.output();
}

Peers all_of(ProcessPlace place, std::int64_t row) {
  return {.rank = place.rank, .size = place.size, .row = row};
}

Output sum_of_piece(std::span<const Output> own, const Peers& peers, const PieceOptions& options,
                    At at) {
  Graph& graph = own[0].graph();
  const ScatterOptions scatter{peers, options.towers, next_tag(graph), options.cuts};
  return add_pieces(own, exchanged(graph, kReduceScatter, own, NodeOptions(scatter), at), options,
                    at);
}

Output gather(Output piece, const Peers& peers, const Cuts& cuts, At at, int known = 1,
              int after = 0) {
  Graph& graph = piece.graph();
  const GatherOverProcesses options{peers, next_tag(graph), cuts, known,
                                    after ? after : peers.size};
  return exchanged(graph, kAllGather, {&piece, 1}, NodeOptions(options), at);
}

// Two processes on two hosts send each other whole rows, and both add them: as many bytes as two
// pieces each, in half the time if the link has a delay. On one host, and on GPUs, memory is what
// costs.
bool both_add(Output own, const Peers& peers) {
  const int per_host = own.graph().process().per_host;
  return peers.size == 2 && peers.process(0) / per_host != peers.process(1) / per_host &&
         !own.device().is_gpu();
}

// Two processes on one host that have a row each. More of them add in the order of the tree, once
// all rows have arrived.
bool adds_what_arrives(std::span<const Output> own, const Peers& peers, int towers) {
  return peers.size == 2 && own.size() == 1 &&
         count_nodes_of_others(peers.rank, peers.size, towers) == 1 && !own[0].device().is_gpu();
}

Output sum_among(std::span<const Output> own, const Peers& peers, int towers, bool mean, At at) {
  const ProcessPlace place{peers.rank, peers.size};
  const std::int64_t elements = own[0].shape().elements();
  if (both_add(own[0], peers))
    return sum_of_piece(own, peers, {place, towers, mean, one_piece(elements)}, at);
  const Cuts cuts = even_cuts(elements, peers.size);
  if (adds_what_arrives(own, peers, towers)) {
    Graph& graph = own[0].graph();
    const AddReceivedOptions options{peers, mean ? peers.size * towers : 1, next_tag(graph), cuts};
    return gather(exchanged(graph, kAddReceived, own, NodeOptions(options), at), peers, cuts, at);
  }
  return gather(sum_of_piece(own, peers, {place, towers, mean, cuts, true}, at), peers, cuts, at);
}

// The sum over groups of `stride` successive processes, each of which has added its `towers`. This
// process has its piece of the sum of its group.
Output sum_over_groups(std::span<const Output> own, ProcessPlace place, int stride, int towers,
                       bool mean, std::int64_t row, At at) {
  const int groups = place.size / stride;
  int size = tree_levels(groups).front();
  if (own[0].device().is_gpu()) size = groups;  // NCCL has algorithms of its own
  if (stride == 1 && adds_within_hosts(place, towers)) size = place.per_host;
  const int rank = place.rank / stride % size;
  const Peers peers{.rank = rank,
                    .size = size,
                    .first = place.rank - rank * stride,
                    .stride = stride,
                    .all = size == place.size,
                    .row = row / stride};
  if (size == groups) return sum_among(own, peers, towers, mean, at);
  const Cuts cuts = even_cuts(own[0].shape().elements(), size);
  const PieceOptions within{{rank, size}, towers, false, cuts};
  const Output piece = sum_of_piece(own, peers, within, at);
  return gather(sum_over_groups({&piece, 1}, place, stride * size, towers * size, mean, row, at),
                peers, cuts, at);
}

}  // namespace

const Op kReduceScatter{.name = "ReduceScatter",
                        .inputs = kVariadicInputs,
                        .shape = scatter_shape,
                        .no_gradient = kExchangeHasNoGradient,
                        .exchange = scatter_exchange,
                        .reference = messages_alone};

const Op kAddReceived{.name = "AddReceived",
                      .inputs = 1,
                      .shape = add_received_shape,
                      .no_gradient = kExchangeHasNoGradient,
                      .in_place = InPlace::kFirst,
                      .exchange = add_received_exchange,
                      .reference = room_for_message,
                      .cpu_only = "it adds in the memory of hosts"};

const Op kAllGather{.name = "AllGather",
                    .inputs = 1,
                    .shape = all_gather_shape,
                    .no_gradient = kExchangeHasNoGradient,
                    .in_place = InPlace::kFirst,
                    .exchange = all_gather_exchange,
                    .reference = messages_alone,
                    .half = true};

const Op kRingSend{.name = "RingSend",
                   .inputs = 1,
                   .shape = ring_send_shape,
                   .no_gradient = kExchangeHasNoGradient,
                   .exchange = ring_send_exchange,
                   .reference = messages_alone};

const Op kMpiAllReduce{.name = "MpiAllReduce",
                       .inputs = 1,
                       .shape = mpi_all_reduce_shape,
                       .no_gradient = kExchangeHasNoGradient,
                       .exchange = mpi_all_reduce_exchange,
                       .reference = messages_alone,
                       .cpu_only = "MPI sums memory of hosts"};

bool may_overtake(const Node& node) {
  const Op* const with_tags[] = {&kReduceScatter, &kAddReceived, &kAllGather, &kRingSend};
  const bool has_tag = std::ranges::find(with_tags, &node.op()) != std::end(with_tags);
  return has_tag && node.graph().collection(kCollection).size() <= kStepTags;
}

std::vector<Node*> exchanges(const Graph& graph) { return graph.nodes(kCollection); }

std::int64_t row_bytes(const Node& node) {
  const auto bytes = [&](std::int64_t elements) {
    return elements * static_cast<std::int64_t>(size_of(node.input(0).type().dtype));
  };
  if (&node.op() == &kReduceScatter) return bytes(node.options<ScatterOptions>().peers.row);
  if (&node.op() == &kAddReceived) return bytes(node.options<AddReceivedOptions>().peers.row);
  if (&node.op() == &kAllGather) return bytes(node.options<GatherOverProcesses>().peers.row);
  if (&node.op() == &kRingSend) return bytes(node.options<RingSendOptions>().cuts.back());
  return node.output_type(0).bytes();
}

bool exchanges_pieces(const Node& node) {
  if (&node.op() == &kReduceScatter) return !node.options<ScatterOptions>().peers.all;
  if (&node.op() == &kAddReceived) return !node.options<AddReceivedOptions>().peers.all;
  if (&node.op() == &kAllGather) return !node.options<GatherOverProcesses>().peers.all;
  return &node.op() == &kRingSend;
}

Output reduce_scatter(std::span<const Output> own, ProcessPlace place, int towers, bool mean,
                      const Cuts& cuts, At at) {
  return sum_of_piece(own, all_of(place, cuts.back()), {place, towers, mean, cuts}, at);
}

bool adds_within_hosts(ProcessPlace place, int towers) {
  const int of_host = place.per_host * towers, all = place.size * towers;
  if (place.per_host == 1 || place.per_host == place.size) return false;
  for (int first = 0; first < all; first += of_host)
    if (covering_nodes({first, first + of_host}, all).size() > 1) return false;
  return true;
}

Output sum_over_processes(std::span<const Output> own, ProcessPlace place, int towers, bool mean,
                          At at) {
  return sum_over_groups(own, place, 1, towers, mean, own[0].shape().elements(), at);
}

Output ring_send(Output piece, ProcessPlace place, const Cuts& cuts, int arriving, At at) {
  Graph& graph = piece.graph();
  const RingSendOptions options{place.rank, place.size, arriving, next_tag(graph), cuts};
  return exchanged(graph, kRingSend, {&piece, 1}, NodeOptions(options), at);
}

Output all_gather(Output piece, ProcessPlace place, const Cuts& cuts, At at) {
  return gather(piece, all_of(place, cuts.back()), cuts, at);
}

Output mpi_all_reduce(Output tensor, At at) {
  return exchanged(tensor.graph(), kMpiAllReduce, {&tensor, 1}, {}, at);
}

Output gather_over_processes(Output rows, ProcessPlace place, At at) {
  const Peers peers = all_of(place, rows.shape().elements() * place.size);
  Output gathered = rows;
  for (int known = 1; known < place.size; known *= kRoundFactor)
    gathered = gather(gathered, peers, {}, at, known, std::min(place.size, kRoundFactor * known));
  return gathered;
}

}  // namespace belfry
