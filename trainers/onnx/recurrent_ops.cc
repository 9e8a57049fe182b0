#include "belfry/ops/recurrent/recurrent.h"
#include "belfry/trainers/onnx/op_writers_impl.h"

namespace belfry::onnx {
namespace {

// What a step of a cell gets: the gates of x and of h [batch, gates], and its states [batch,
// hidden], h first. It returns its new states.
struct CellStep {
  OnnxGraph& g;
  std::string x_gates, h_gates;
  Names states;
  std::int64_t hidden;

  Names gates(const std::string& of, std::int64_t count) const {
    return g.add("Split", {of, g.ints(Ints(static_cast<std::size_t>(count), hidden))},
                 {{"axis", std::int64_t{1}}}, static_cast<std::size_t>(count));
  }
  std::string sum(const std::string& a, const std::string& b) const { return g.add("Add", {a, b}); }
  std::string product(const std::string& a, const std::string& b) const {
    return g.add("Mul", {a, b});
  }
  std::string sigmoid(const std::string& x) const { return g.add("Sigmoid", {x}); }
  std::string tanh(const std::string& x) const { return g.add("Tanh", {x}); }
};

Names lstm_step(const CellStep& s) {
  const Names gates = s.gates(s.sum(s.x_gates, s.h_gates), 4);
  const std::string kept = s.product(s.sigmoid(gates[1]), s.states[1]);
  const std::string c = s.sum(kept, s.product(s.sigmoid(gates[0]), s.tanh(gates[2])));
  return {s.product(s.sigmoid(gates[3]), s.tanh(c)), c};
}

Names gru_step(const CellStep& s) {
  const Names of_x = s.gates(s.x_gates, 3), of_h = s.gates(s.h_gates, 3);
  const std::string r = s.sigmoid(s.sum(of_x[0], of_h[0])), z = s.sigmoid(s.sum(of_x[1], of_h[1]));
  const std::string candidate = s.tanh(s.sum(of_x[2], s.product(r, of_h[2])));
  const std::string change = s.g.add("Sub", {s.states[0], candidate});
  return {s.sum(candidate, s.product(z, change))};
}

// The places of inputs and outputs of the ops.
struct Cell {
  Names (*step)(const CellStep&);
  Ints states;        // inputs
  std::int64_t bias;  // of h; -1: none
  std::size_t lengths;
  Ints last;  // outputs with the last states; y is output 1
};

// A Scan over the gates of x, as LSTM and GRU of ONNX would multiply x, which the ops do not have.
class RecurrenceWriter {
 public:
  RecurrenceWriter(OnnxGraph& g, const Node& node, const Cell& cell)
      : g_(g),
        node_(node),
        cell_(cell),
        dtype_(node.input(0).dtype()),
        hidden_(node.input(1).shape()[0]),
        gates_(node.input(0).shape()[2]),
        time_(node.input(0).shape()[1]),
        weights_(g.in(node.input(1))) {}

  void write() {
    Names inputs;
    for (const std::int64_t state : cell_.states) inputs.push_back(input(state));
    inputs.push_back(g_.in(node_.input(0)));
    Ints axes{1}, directions{std::int64_t{node_.options<RecurrenceOptions>().reverse}};
    if (has_lengths()) {
      lengths_ = g_.reshape(g_.cast(input(static_cast<std::int64_t>(cell_.lengths)), DType::kI64),
                            {-1, 1});
      inputs.push_back(times());
      axes.push_back(0);
      directions.push_back(directions[0]);
    }
    const Attributes attributes{{"body", body()},
                                {"num_scan_inputs", static_cast<std::int64_t>(axes.size())},
                                {"scan_input_axes", axes},
                                {"scan_input_directions", directions},
                                {"scan_output_axes", Ints{1}},
                                {"scan_output_directions", Ints{directions[0]}}};
    const Names outputs = g_.add("Scan", inputs, attributes, cell_.states.size() + 1);
    for (std::size_t i = 0; i < cell_.last.size(); ++i) g_.set(output(cell_.last[i]), outputs[i]);
    g_.set(node_.output(1), outputs.back());
  }

 private:
  bool has_lengths() const { return node_.inputs().size() > cell_.lengths; }
  std::string input(std::int64_t i) { return g_.in(node_.input(static_cast<std::size_t>(i))); }
  Output output(std::int64_t i) { return node_.output(static_cast<std::size_t>(i)); }

  std::string times() {
    Ints times;
    for (std::int64_t t = 0; t < time_; ++t) times.push_back(t);
    return g_.ints(times);
  }

  // One time: states, gates, and perhaps the time -> states, y.
  ProtoMessage body() {
    const TensorType state{{kUnknownSize, hidden_}, dtype_};
    std::vector<OnnxGraph::Ending> inputs;
    Names states;
    for (std::size_t i = 0; i < cell_.states.size(); ++i) {
      states.push_back(g_.unique("state"));
      inputs.push_back({states.back(), state});
    }
    const std::string gates = g_.unique("gates"), time = g_.unique("time");
    inputs.push_back({gates, {{kUnknownSize, gates_}, dtype_}});
    if (has_lengths()) inputs.push_back({time, {{}, DType::kI64}});
    const std::string bias = cell_.bias < 0 ? "" : input(cell_.bias);
    return g_.subgraph(inputs, [&] {
      std::string of_h = g_.add("MatMul", {states[0], weights_});
      if (!bias.empty()) of_h = g_.add("Add", {of_h, bias});
      Names now = cell_.step({g_, gates, of_h, states, hidden_});
      std::string y = now[0];
      if (has_lengths()) {
        const std::string runs = g_.add("Less", {time, lengths_});
        y = g_.add("Where", {runs, y, g_.number(0, dtype_)});
        for (std::size_t i = 0; i < now.size(); ++i)
          now[i] = g_.add("Where", {runs, now[i], states[i]});
      } else {
        y = g_.add("Identity", {y});  // an output of its own
      }
      std::vector<OnnxGraph::Ending> outputs;
      for (const std::string& name : now) outputs.push_back({name, state});
      outputs.push_back({y, state});
      return outputs;
    });
  }

  OnnxGraph& g_;
  const Node& node_;
  const Cell& cell_;
  const DType dtype_;
  const std::int64_t hidden_, gates_, time_;
  const std::string weights_;
  std::string lengths_;
};

void write_lstm(OnnxGraph& g, const Node& node) {
  static const Cell cell{lstm_step, {2, 3}, -1, 4, {3, 4}};
  RecurrenceWriter(g, node, cell).write();
}

void write_gru(OnnxGraph& g, const Node& node) {
  static const Cell cell{gru_step, {2}, 3, 4, {3}};
  RecurrenceWriter(g, node, cell).write();
}

}  // namespace

std::vector<OpWriter> recurrent_writers() { return {{&kLstm, write_lstm}, {&kGru, write_gru}}; }

}  // namespace belfry::onnx
