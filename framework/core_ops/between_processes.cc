#include "belfry/framework/core_ops/between_processes.h"

#include <algorithm>

#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/graph/exchange.h"
#include "belfry/framework/kernels/reduce.h"

namespace belfry {
namespace {

constexpr char kCollection[] = "exchanges";
constexpr std::int64_t kCutUnit = 16;  // elements: a cache line of f32
constexpr const char* kExchangeHasNoGradient = "gradients are taken in each process";

// Processes that exchange pieces: all of them, those of a host, or one of each host. They number
// themselves.
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
struct GatherOptions {
  Peers peers;
  int tag;
  Cuts cuts;  // of a row; none: rows of a tensor, equally many of each process
};

struct PassOnOptions {
  int rank, size;
  int arriving;  // which piece comes
  int tag;
  Cuts cuts;
};

WorkRange piece_of(const Cuts& cuts, int rank) {
  const auto r = static_cast<std::size_t>(rank);
  return {cuts[r], cuts[r + 1]};
}

std::int64_t nodes_of_others(int rank, int size, int towers) {
  return std::ssize(all_covering_nodes(size, towers)) -
         std::ssize(covering_nodes_of(rank, size, towers));
}

std::span<std::byte> bytes_at(const void* tensor, WorkRange elements, DType dtype) {
  const std::size_t size = size_of(dtype);
  // Messages that are sent are not written.
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
  return {Shape{nodes_of_others(rank, size, towers), piece_of(cuts, rank).size()}};
}

// Of ops whose exchange does everything.
KernelRun messages_alone(KernelPlan&) {
  return [](const Pointers&) {};
}

// Each row of the output is this process's piece of a covering node of another one.
Exchange scatter_exchange(const Node& node, const Pointers& p) {
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

// Adds covering nodes, at least two, as the canonical tree does.
class CoveringSum {
 public:
  CoveringSum(int size, int towers)
      : nodes_(all_covering_nodes(size, towers)), root_{0, size * towers} {}

  template <class T>
  void add(std::span<const void* const> rows, T* sum, std::int64_t begin, std::int64_t end) const {
    for (std::int64_t from = begin; from < end; from += kBlock)
      add_block(rows, nodes_, root_, sum + from, from, std::min(kBlock, end - from));
  }

 private:
  static constexpr std::int64_t kBlock = 1024;
  using Nodes = std::span<const TreeNode>;
  using Rows = std::span<const void* const>;

  template <class T>
  void add_block(Rows rows, Nodes nodes, TreeNode node, T* sum, std::int64_t from,
                 std::int64_t size) const {
    const int middle = middle_of(node);
    const std::size_t left = count_left(nodes, node);
    T terms[2][kBlock];
    // A row itself, or the sum of several.
    const auto half = [&](Rows some, Nodes of_some, TreeNode over, T* term) -> const void* {
      if (some.size() == 1) return static_cast<const T*>(some[0]) + from;
      add_block(some, of_some, over, term, from, size);
      return term;
    };
    const void* const both[] = {
        half(rows.first(left), nodes.first(left), {node.begin, middle}, terms[0]),
        half(rows.subspan(left), nodes.subspan(left), {middle, node.end}, terms[1])};
    void* const into[] = {sum};
    kernels::tree_sum<T>(both, into, 0, size);
  }

  const std::vector<TreeNode> nodes_;
  const TreeNode root_;
};

OutputTypes add_shape(const ShapeContext& c) {
  const auto& [place, towers, mean, cuts, whole] = c.options<PieceOptions>();
  c.require_same_dtype();
  const Shape others{nodes_of_others(place.rank, place.size, towers),
                     piece_of(cuts, place.rank).size()};
  const std::size_t own = covering_nodes_of(place.rank, place.size, towers).size();
  c.require(c.inputs() == own + 1, "takes ", own, " rows of its own, not ", c.inputs() - 1);
  c.require(c.input(own) == others, "takes rows ", others, ", not ", c.input(own));
  for (std::size_t i = 0; i < own; ++i)
    c.require(c.input(i) == Shape{cuts.back()}, "cuts ", cuts.back(), " elements, but has ",
              c.input(i));
  return {Shape{whole ? cuts.back() : others[1]}};
}

template <class T>
KernelRun add_kernel_of(KernelPlan& plan) {
  const auto& options = plan.options<PieceOptions>();
  const ProcessPlace place = options.place;
  return
      [sum = CoveringSum(place.size, options.towers), form = piece_sum(plan)](const Pointers& p) {
        const std::int64_t length = form.piece.size();
        std::vector<const void*> terms;
        for (std::int64_t r = 0; r < std::ssize(form.additions) - form.own; ++r)
          terms.push_back(p.input<T>(p.inputs() - 1) + r * length);
        for (int i = 0; i < form.own; ++i)
          terms.insert(terms.begin() + form.first_own + i,
                       p.input<T>(static_cast<std::size_t>(i)) + form.piece.begin);
        T* const result = p.output<T>() + (form.whole ? form.piece.begin : 0);
        const WorkRange range = form.in_piece(p);
        sum.add(terms, result, range.begin, range.end);
        if (form.divisor == 1) return;
        for (std::int64_t i = range.begin; i < range.end; ++i)
          result[i] /= static_cast<T>(form.divisor);
      };
}

KernelRun add_kernel(KernelPlan& plan) {
  return plan.dtype() == DType::kF32 ? add_kernel_of<float>(plan) : add_kernel_of<double>(plan);
}

// Where a process's piece lies in the output.
WorkRange gathered_piece(const GatherOptions& options, std::int64_t own, int rank) {
  return options.cuts.empty() ? WorkRange{rank * own, (rank + 1) * own}
                              : piece_of(options.cuts, rank);
}

// Whether the input is as long as all pieces together, and has the own one in its place.
bool has_whole(const GatherOptions& options, const Shape& input) {
  return !options.cuts.empty() && input == Shape{options.cuts.back()};
}

OutputTypes gather_pieces_shape(const ShapeContext& c) {
  const auto& options = c.options<GatherOptions>();
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

Exchange gather_pieces_exchange(const Node& node, const Pointers& p) {
  const auto& options = node.options<GatherOptions>();
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

OutputTypes pass_on_shape(const ShapeContext& c) {
  c.require_rank(0, 1);
  const auto& options = c.options<PassOnOptions>();
  return {Shape{piece_of(options.cuts, options.arriving).size()}};
}

Exchange pass_on_exchange(const Node& node, const Pointers& p) {
  const auto& [rank, size, arriving, tag, cuts] = node.options<PassOnOptions>();
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

Exchange mpi_all_reduce_exchange(const Node& node, const Pointers& p) {
  const TensorType& type = node.input(0).type();
  const WorkRange all{0, type.shape.elements()};
  const auto sum = bytes_at(p.output<void>(), all, type.dtype);
  Exchange exchange;
  exchange.kept = {{bytes_at(p.input<void>(0), all, type.dtype), sum}};  // what it adds itself
  exchange.summed = {{.bytes = sum}};
  exchange.dtype = type.dtype;
  return exchange;
}

// Another for each exchange of a graph.
int next_tag(const Graph& graph) { return static_cast<int>(exchanges(graph).size()); }

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
// Those that have the same piece on their hosts.
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
  return add_pieces(own, exchanged(graph, kScatterPieces, own, NodeOptions(scatter), at), options,
                    at);
}

Output gather(Output piece, const Peers& peers, const Cuts& cuts, At at) {
  Graph& graph = piece.graph();
  return exchanged(graph, kGatherPieces, {&piece, 1},
                   NodeOptions(GatherOptions{peers, next_tag(graph), cuts}), at);
}

Output sum_among(std::span<const Output> own, const Peers& peers, int towers, bool mean, At at) {
  const Cuts cuts = even_cuts(own[0].shape().elements(), peers.size);
  const PieceOptions options{{peers.rank, peers.size}, towers, mean, cuts, true};
  return gather(sum_of_piece(own, peers, options, at), peers, cuts, at);
}

}  // namespace

const Op kScatterPieces{.name = "ScatterPieces",
                        .inputs = kVariadic,
                        .shape = scatter_shape,
                        .no_gradient = kExchangeHasNoGradient,
                        .exchange = scatter_exchange,
                        .reference = messages_alone};

const Op kAddPieces{.name = "AddPieces",
                    .inputs = kVariadic,
                    .shape = add_shape,
                    .no_gradient = kExchangeHasNoGradient,
                    .split = WorkSplit::kElements,
                    .in_place = InPlace::kFirst,
                    .reference = add_kernel};

const Op kGatherPieces{.name = "GatherPieces",
                       .inputs = 1,
                       .shape = gather_pieces_shape,
                       .no_gradient = kExchangeHasNoGradient,
                       .in_place = InPlace::kFirst,
                       .exchange = gather_pieces_exchange,
                       .reference = messages_alone,
                       .half = true};

const Op kPassOn{.name = "PassOn",
                 .inputs = 1,
                 .shape = pass_on_shape,
                 .no_gradient = kExchangeHasNoGradient,
                 .exchange = pass_on_exchange,
                 .reference = messages_alone};

const Op kMpiAllReduce{.name = "MpiAllReduce",
                       .inputs = 1,
                       .shape = mpi_all_reduce_shape,
                       .no_gradient = kExchangeHasNoGradient,
                       .exchange = mpi_all_reduce_exchange,
                       .reference = messages_alone,
                       .cpu_only = "MPI sums memory of hosts"};

std::vector<Node*> exchanges(const Graph& graph) { return graph.nodes(kCollection); }

std::int64_t row_bytes(const Node& node) {
  const auto of_pieces = [&](const Cuts& cuts) {
    return cuts.back() * static_cast<std::int64_t>(size_of(node.input(0).type().dtype));
  };
  if (&node.op() == &kScatterPieces) return of_pieces(node.options<ScatterOptions>().cuts);
  if (&node.op() == &kPassOn) return of_pieces(node.options<PassOnOptions>().cuts);
  return node.output_type(0).bytes();
}

PieceSum piece_sum(const KernelPlan& plan) {
  const auto& [place, towers, mean, cuts, whole] = plan.options<PieceOptions>();
  const int rank = place.rank, size = place.size;
  const std::vector<TreeNode> all = all_covering_nodes(size, towers);
  const auto first = std::ranges::lower_bound(all, rank * towers, {}, &TreeNode::begin);
  PieceSum sum{.additions = {},
               .divisor = mean ? size * towers : 1,
               .first_own = static_cast<int>(first - all.begin()),
               .own = static_cast<int>(covering_nodes_of(rank, size, towers).size()),
               .piece = piece_of(cuts, rank),
               .whole = whole};
  sum.additions = additions_in_order(all, {0, size * towers});
  return sum;
}

WorkRange PieceSum::in_piece(const Pointers& p) const {
  if (!whole) return {p.begin(), p.end()};
  return {std::clamp(p.begin() - piece.begin, std::int64_t{0}, piece.size()),
          std::clamp(p.end() - piece.begin, std::int64_t{0}, piece.size())};
}

std::int64_t even_unit(int size) { return kCutUnit * size; }

Cuts even_cuts(std::int64_t elements, int size) {
  const std::int64_t units = (elements + kCutUnit - 1) / kCutUnit;
  Cuts cuts;
  for (int r = 0; r <= size; ++r) cuts.push_back(std::min(elements, units * r / size * kCutUnit));
  return cuts;
}

std::vector<std::int64_t> piece_sizes(const Cuts& cuts) {
  std::vector<std::int64_t> sizes;
  for (std::size_t r = 0; r + 1 < cuts.size(); ++r) sizes.push_back(cuts[r + 1] - cuts[r]);
  return sizes;
}

Output add_pieces(std::span<const Output> own, Output others, const PieceOptions& options, At at) {
  std::vector<Output> inputs(own.begin(), own.end());
  inputs.push_back(others);
  return others.graph().add(kAddPieces, inputs, at, NodeOptions(options)).output();
}

Output scatter_sum(std::span<const Output> own, ProcessPlace place, int towers, bool mean,
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

Output pass_on(Output piece, ProcessPlace place, const Cuts& cuts, int arriving, At at) {
  Graph& graph = piece.graph();
  const PassOnOptions options{place.rank, place.size, arriving, next_tag(graph), cuts};
  return exchanged(graph, kPassOn, {&piece, 1}, NodeOptions(options), at);
}

Output gather_pieces(Output piece, ProcessPlace place, const Cuts& cuts, At at) {
  return gather(piece, all_of(place), cuts, at);
}

Output mpi_all_reduce(Output tensor, At at) {
  return exchanged(tensor.graph(), kMpiAllReduce, {&tensor, 1}, {}, at);
}

Output gather_over_processes(Output rows, ProcessPlace place, At at) {
  return gather(rows, all_of(place), {}, at);
}

}  // namespace belfry
