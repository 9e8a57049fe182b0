#include "belfry/framework/core_ops/between_processes.h"

#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/core_ops/add_pieces.h"
#include "belfry/framework/core_ops/covering_nodes.h"
#include "belfry/framework/graph/exchange.h"
#include "belfry/framework/group/tags.h"

namespace belfry {
namespace {

constexpr char kCollection[] = "exchanges";
constexpr const char* kExchangeHasNoGradient = "gradients are taken in each process";

// Processes that exchange pieces: all of them, those of a host, or one of each host. They have
// their own ranks.
struct Peers {
  int rank, size;  // of this process, and how many there are
  int first = 0, stride = 1;
  bool all = true;

  int process(int r) const { return first + r * stride; }
  std::string str() const { return cat(rank, ',', size, ',', first, ',', stride); }
  bool operator==(const Peers&) const = default;
};

struct ScatterOptions {
  Peers peers;
  int towers;  // of each process
  int tag;
  Cuts cuts;
};
struct GatherOverProcesses {
  Peers peers;
  int tag;
  Cuts cuts;  // of a row; none: rows of a tensor, equally many of each process
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
  const auto [rank, size, first, stride, all] = peers;
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

// Each row of the output receives this process's piece of a covering node of another process.
Exchange scatter_exchange(const Node& node, const KernelPointers& p) {
  const auto& [peers, towers, tag, cuts] = node.options<ScatterOptions>();
  const TensorType& type = node.input(0).type();
  const std::int64_t length = piece_of(cuts, peers.rank).size();
  Exchange exchange;
  std::int64_t row = 0;
  for (int r = 0; r < peers.size; ++r) {
    if (r == peers.rank) continue;
    const int process = peers.process(r);
    const std::size_t nodes = covering_nodes_of(r, peers.size, towers).size();
    for (std::size_t i = 0; i < nodes; ++i, ++row)
      exchange.received.push_back(
          {process, tag,
           bytes_at(p.output<void>(), {row * length, (row + 1) * length}, type.dtype)});
    for (std::size_t i = 0; i < p.inputs(); ++i)
      exchange.sent.push_back(
          {process, tag, bytes_at(p.input<void>(i), piece_of(cuts, r), type.dtype)});
  }
  return exchange;
}

// Where the piece of a process is in the output.
WorkRange gathered_piece(const GatherOverProcesses& options, std::int64_t own, int rank) {
  return options.cuts.empty() ? WorkRange{rank * own, (rank + 1) * own}
                              : piece_of(options.cuts, rank);
}

// Whether the input is as long as all pieces together, with the own piece in its place.
bool has_whole(const GatherOverProcesses& options, const Shape& input) {
  return !options.cuts.empty() && input == Shape{options.cuts.back()};
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
  shape[0] *= options.peers.size;
  return {shape};
}

Exchange all_gather_exchange(const Node& node, const KernelPointers& p) {
  const auto& options = node.options<GatherOverProcesses>();
  const Peers& peers = options.peers;
  const TensorType& type = node.input(0).type();
  const bool whole = has_whole(options, type.shape);
  const WorkRange place =
      whole ? piece_of(options.cuts, peers.rank) : WorkRange{0, type.shape.elements()};
  const std::int64_t own = place.size();
  const auto piece = bytes_at(p.input<void>(0), place, type.dtype);
  Exchange exchange;
  bool alike = peers.all;
  for (int r = 0; r < peers.size; ++r) {
    const WorkRange where = gathered_piece(options, own, r);
    const auto to = bytes_at(p.output<void>(), where, type.dtype);
    alike &= where.size() == own;
    if (r == peers.rank) {
      if (piece.data() != to.data()) exchange.kept.push_back({piece, to});
      continue;
    }
    exchange.received.push_back({peers.process(r), options.tag, to});
    exchange.sent.push_back({peers.process(r), options.tag, piece});
  }
  if (alike)
    exchange.gathered = {piece, bytes_at(p.output<void>(), {0, own * peers.size}, type.dtype)};
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

Peers all_of(ProcessPlace place) { return {place.rank, place.size}; }
Peers of_host(ProcessPlace place) {
  const int rank = place.rank % place.per_host;
  return {
      .rank = rank, .size = place.per_host, .first = place.rank - rank, .stride = 1, .all = false};
}
// The processes that have the same piece on their hosts.
Peers one_of_each_host(ProcessPlace place) {
  const int n = place.per_host;
  return {.rank = place.rank / n,
          .size = place.size / n,
          .first = place.rank % n,
          .stride = n,
          .all = false};
}

Output sum_of_piece(std::span<const Output> own, const Peers& peers, const PieceOptions& options,
                    At at) {
  Graph& graph = own[0].graph();
  const ScatterOptions scatter{peers, options.towers, next_tag(graph), options.cuts};
  return add_pieces(own, exchanged(graph, kReduceScatter, own, NodeOptions(scatter), at), options,
                    at);
}

Output gather(Output piece, const Peers& peers, const Cuts& cuts, At at) {
  Graph& graph = piece.graph();
  return exchanged(graph, kAllGather, {&piece, 1},
                   NodeOptions(GatherOverProcesses{peers, next_tag(graph), cuts}), at);
}

// Two processes on two hosts send each other whole rows, and both add them: as many bytes as two
// pieces each, in half the time if the link has a delay. On one host, and on GPUs, memory is what
// costs.
bool both_add(Output own, const Peers& peers) {
  const int per_host = own.graph().process().per_host;
  return peers.size == 2 && peers.process(0) / per_host != peers.process(1) / per_host &&
         !own.device().is_gpu();
}

Output sum_among(std::span<const Output> own, const Peers& peers, int towers, bool mean, At at) {
  const ProcessPlace place{peers.rank, peers.size};
  const std::int64_t elements = own[0].shape().elements();
  if (both_add(own[0], peers))
    return sum_of_piece(own, peers, {place, towers, mean, one_piece(elements)}, at);
  const Cuts cuts = even_cuts(elements, peers.size);
  return gather(sum_of_piece(own, peers, {place, towers, mean, cuts, true}, at), peers, cuts, at);
}

}  // namespace

const Op kReduceScatter{.name = "ReduceScatter",
                        .inputs = kVariadicInputs,
                        .shape = scatter_shape,
                        .no_gradient = kExchangeHasNoGradient,
                        .exchange = scatter_exchange,
                        .reference = messages_alone};

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
  const bool has_tag =
      &node.op() == &kReduceScatter || &node.op() == &kAllGather || &node.op() == &kRingSend;
  return has_tag && node.graph().collection(kCollection).size() <= kStepTags;
}

std::vector<Node*> exchanges(const Graph& graph) { return graph.nodes(kCollection); }

std::int64_t row_bytes(const Node& node) {
  const auto of_pieces = [&](const Cuts& cuts) {
    return cuts.back() * static_cast<std::int64_t>(size_of(node.input(0).type().dtype));
  };
  if (&node.op() == &kReduceScatter) return of_pieces(node.options<ScatterOptions>().cuts);
  if (&node.op() == &kRingSend) return of_pieces(node.options<RingSendOptions>().cuts);
  return node.output_type(0).bytes();
}

Output reduce_scatter(std::span<const Output> own, ProcessPlace place, int towers, bool mean,
                      const Cuts& cuts, At at) {
  return sum_of_piece(own, all_of(place), {place, towers, mean, cuts}, at);
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
  if (!adds_within_hosts(place, towers)) return sum_among(own, all_of(place), towers, mean, at);
  const Peers host = of_host(place);
  const Cuts cuts = even_cuts(own[0].shape().elements(), host.size);
  const PieceOptions within{{host.rank, host.size}, towers, false, cuts};
  const Output piece = sum_of_piece(own, host, within, at);
  const int towers_of_host = place.per_host * towers;
  return gather(sum_among({&piece, 1}, one_of_each_host(place), towers_of_host, mean, at), host,
                cuts, at);
}

Output ring_send(Output piece, ProcessPlace place, const Cuts& cuts, int arriving, At at) {
  Graph& graph = piece.graph();
  const RingSendOptions options{place.rank, place.size, arriving, next_tag(graph), cuts};
  return exchanged(graph, kRingSend, {&piece, 1}, NodeOptions(options), at);
}

Output all_gather(Output piece, ProcessPlace place, const Cuts& cuts, At at) {
  return gather(piece, all_of(place), cuts, at);
}

Output mpi_all_reduce(Output tensor, At at) {
  return exchanged(tensor.graph(), kMpiAllReduce, {&tensor, 1}, {}, at);
}

Output gather_over_processes(Output rows, ProcessPlace place, At at) {
  return gather(rows, all_of(place), {}, at);
}

}  // namespace belfry
