// LSTM and GRU as cuDNN computes them, by plain loops from its order of weights.
#include <cmath>
#include <cstring>

#include "belfry/framework/base/require.h"
#include "belfry/tests/cuda/host_queue.h"

namespace belfry::cuda {
namespace {

using Doubles = std::vector<double>;

double squash(double x) { return 1 / (1 + std::exp(-x)); }

// The tensors of a call, in f64.
struct HostNetwork {
  HostNetwork(const Recurrence& recurrence, const RecurrenceTensors& tensors) : of(recurrence) {
    for (int row = 0; row < of.batch; ++row)
      require<InternalError>(tensors.lengths[row] == of.time, "a length is not the time");
    x = read(tensors.x, std::int64_t{of.batch} * of.time * of.features);
    weights = read(tensors.weights, of.weights());
    h = read(tensors.h, state());
    c = of.has_c() ? read(tensors.c, state()) : Doubles(size(state()));
  }

  static std::size_t size(std::int64_t n) { return static_cast<std::size_t>(n); }
  std::int64_t state() const { return std::int64_t{of.batch} * of.hidden; }
  std::int64_t columns() const { return of.columns(); }

  Doubles read(const void* from, std::int64_t count) const {
    Doubles to(size(count));
    visit_floating(
        of.dtype, [&]<class T>(T) { std::copy_n(static_cast<const T*>(from), count, to.begin()); });
    return to;
  }
  void write(const Doubles& from, void* to) const {
    visit_floating(of.dtype, [&]<class T>(T) {
      std::transform(from.begin(), from.end(), static_cast<T*>(to),
                     [](double value) { return static_cast<T>(value); });
    });
  }

  // The weight of a gate's element for element `k` of x or h, and its bias.
  std::size_t of_x(std::int64_t j, std::int64_t k) const { return size(j * of.features + k); }
  std::size_t of_h(std::int64_t j, std::int64_t k) const {
    return size(columns() * of.features + j * of.hidden + k);
  }
  std::size_t bias_of_x(std::int64_t j) const {
    return size(columns() * (of.features + of.hidden) + j);
  }
  std::size_t bias_of_h(std::int64_t j) const { return size(columns()) + bias_of_x(j); }
  std::size_t place(std::int64_t row, std::int64_t t, std::int64_t n) const {
    return size((row * of.time + t) * n);
  }

  // What one time of one row computes.
  struct Step {
    Doubles h, c;          // before
    Doubles gates, fresh;  // activated; the hidden gate of a GRU that r multiplies
    Doubles next_h, next_c;
  };
  Step step(std::int64_t row, std::int64_t t, Doubles before_h, Doubles before_c) const {
    Step s{std::move(before_h),
           std::move(before_c),
           Doubles(size(columns())),
           Doubles(size(of.hidden)),
           {},
           {}};
    s.next_h = s.h;
    s.next_c = s.c;
    Doubles hidden(size(columns()));
    for (std::int64_t j = 0; j < columns(); ++j) {
      double& gate = s.gates[size(j)] = weights[bias_of_x(j)];
      for (std::int64_t k = 0; k < of.features; ++k)
        gate += weights[of_x(j, k)] * x[place(row, t, of.features) + size(k)];
      hidden[size(j)] = weights[bias_of_h(j)];
      for (std::int64_t k = 0; k < of.hidden; ++k)
        hidden[size(j)] += weights[of_h(j, k)] * s.h[size(k)];
    }
    const std::size_t n = size(of.hidden);
    for (std::size_t j = 0; j < n; ++j) {
      const auto sum = [&](std::size_t gate) {
        return s.gates[gate * n + j] + hidden[gate * n + j];
      };
      const auto set = [&](std::size_t gate, double value) { s.gates[gate * n + j] = value; };
      if (of.has_c()) {
        const double i = squash(sum(0)), f = squash(sum(1)), g = std::tanh(sum(2)),
                     o = squash(sum(3));
        s.next_c[j] = f * s.c[j] + i * g;
        s.next_h[j] = o * std::tanh(s.next_c[j]);
        set(0, i), set(1, f), set(2, g), set(3, o);
      } else {
        const double r = squash(sum(0)), z = squash(sum(1));
        s.fresh[j] = hidden[2 * n + j];
        const double g = std::tanh(s.gates[2 * n + j] + r * s.fresh[j]);
        s.next_h[j] = (1 - z) * g + z * s.h[j];
        set(0, r), set(1, z), set(2, g);
      }
    }
    return s;
  }
  std::vector<Step> steps(std::int64_t row) const {
    const auto part = [&](const Doubles& all) {
      const auto first = all.begin() + row * of.hidden;
      return Doubles(first, first + of.hidden);
    };
    std::vector<Step> all;
    for (std::int64_t t = 0; t < of.time; ++t)
      all.push_back(t == 0 ? step(row, t, part(h), part(c))
                           : step(row, t, all.back().next_h, all.back().next_c));
    return all;
  }

  // The gradients of the gates of x and of h, from those of the states after the step; dc becomes
  // that of c before it. Returns what reaches h before the step, but not through weights.
  Doubles back(const Step& s, const Doubles& dh, Doubles& dc, Doubles& dx_gates,
               Doubles& dh_gates) const {
    const std::size_t n = size(of.hidden);
    Doubles direct(n);
    for (std::size_t j = 0; j < n; ++j) {
      const auto gate = [&](std::size_t number) { return s.gates[number * n + j]; };
      const auto set = [&](std::size_t number, double of_x, double of_h) {
        dx_gates[number * n + j] = of_x;
        dh_gates[number * n + j] = of_h;
      };
      if (of.has_c()) {
        const double i = gate(0), f = gate(1), g = gate(2), o = gate(3), y = std::tanh(s.next_c[j]);
        dc[j] += dh[j] * o * (1 - y * y);
        const double of_i = dc[j] * g * i * (1 - i), of_f = dc[j] * s.c[j] * f * (1 - f),
                     of_g = dc[j] * i * (1 - g * g), of_o = dh[j] * y * o * (1 - o);
        set(0, of_i, of_i), set(1, of_f, of_f), set(2, of_g, of_g), set(3, of_o, of_o);
        dc[j] *= f;
      } else {
        const double r = gate(0), z = gate(1), g = gate(2);
        const double of_g = dh[j] * (1 - z) * (1 - g * g);
        const double of_r = of_g * s.fresh[j] * r * (1 - r);
        const double of_z = dh[j] * (s.h[j] - g) * z * (1 - z);
        set(0, of_r, of_r), set(1, of_z, of_z), set(2, of_g, of_g * r);
        direct[j] = dh[j] * z;
      }
    }
    return direct;
  }

  const Recurrence& of;
  Doubles x, weights, h, c;
};

// What a forward call saves: every byte has this value.
constexpr int kSavedByte = 0x5a;

void spoil_memory(void* memory, std::int64_t bytes) {
  std::memset(memory, 0xff, static_cast<std::size_t>(bytes));
}

}  // namespace

void HostQueue::recur(const RecurrenceCall& call) {
  spoil_memory(call.workspace, call.algorithm.workspace_bytes);
  const HostNetwork net(call.recurrence, call.tensors);
  const Recurrence& of = call.recurrence;
  Doubles y, last_h, last_c;
  for (std::int64_t row = 0; row < of.batch; ++row) {
    const std::vector<HostNetwork::Step> steps = net.steps(row);
    for (const HostNetwork::Step& s : steps) y.insert(y.end(), s.next_h.begin(), s.next_h.end());
    last_h.insert(last_h.end(), steps.back().next_h.begin(), steps.back().next_h.end());
    last_c.insert(last_c.end(), steps.back().next_c.begin(), steps.back().next_c.end());
  }
  net.write(y, call.y);
  net.write(last_h, call.last_h);
  if (of.has_c()) net.write(last_c, call.last_c);
  std::memset(call.tensors.saved, kSavedByte, static_cast<std::size_t>(of.saved_bytes));
}

void HostQueue::recur_back(const RecurrenceGradCall& call) {
  spoil_memory(call.workspace, call.algorithm.workspace_bytes);
  const Recurrence& of = call.recurrence;
  const auto* const saved = static_cast<const unsigned char*>(call.tensors.saved);
  require<InternalError>(
      std::all_of(saved, saved + of.saved_bytes, [](int byte) { return byte == kSavedByte; }),
      "a gradient gets what no forward call has saved");
  spoil_memory(call.tensors.saved, of.saved_bytes);
  const HostNetwork net(of, call.tensors);
  const std::int64_t n = of.hidden;
  const Doubles dy = net.read(call.dy, net.state() * of.time);
  Doubles dx(net.x.size()), dweights = net.read(call.dweights, of.weights());
  Doubles all_dh = net.read(call.dlast_h, net.state());
  Doubles all_dc =
      of.has_c() ? net.read(call.dlast_c, net.state()) : Doubles(HostNetwork::size(net.state()));
  for (std::int64_t row = 0; row < of.batch; ++row) {
    const std::vector<HostNetwork::Step> steps = net.steps(row);
    Doubles dh(all_dh.begin() + row * n, all_dh.begin() + (row + 1) * n);
    Doubles dc(all_dc.begin() + row * n, all_dc.begin() + (row + 1) * n);
    for (std::int64_t t = of.time - 1; t >= 0; --t) {
      const HostNetwork::Step& s = steps[HostNetwork::size(t)];
      for (std::int64_t j = 0; j < n; ++j)
        dh[HostNetwork::size(j)] += dy[net.place(row, t, n) + HostNetwork::size(j)];
      Doubles of_x(s.gates.size()), of_h(s.gates.size());
      dh = net.back(s, dh, dc, of_x, of_h);
      for (std::int64_t j = 0; j < of.columns(); ++j) {
        const double grad_x = of_x[HostNetwork::size(j)], grad_h = of_h[HostNetwork::size(j)];
        for (std::int64_t k = 0; k < of.features; ++k) {
          const std::size_t at = net.place(row, t, of.features) + HostNetwork::size(k);
          dx[at] += grad_x * net.weights[net.of_x(j, k)];
          dweights[net.of_x(j, k)] += grad_x * net.x[at];
        }
        for (std::int64_t k = 0; k < n; ++k) {
          dh[HostNetwork::size(k)] += grad_h * net.weights[net.of_h(j, k)];
          dweights[net.of_h(j, k)] += grad_h * s.h[HostNetwork::size(k)];
        }
        dweights[net.bias_of_x(j)] += grad_x;
        dweights[net.bias_of_h(j)] += grad_h;
      }
    }
    std::ranges::copy(dh, all_dh.begin() + row * n);
    std::ranges::copy(dc, all_dc.begin() + row * n);
  }
  net.write(dx, call.dx);
  net.write(all_dh, call.dh);
  if (of.has_c()) net.write(all_dc, call.dc);
  net.write(dweights, call.dweights);
}

}  // namespace belfry::cuda
