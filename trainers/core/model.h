// A model as users write it: a function of a tower and one tensor per field of the data.
#pragma once
#include <concepts>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "belfry/towers/tower.h"

namespace belfry {

// Wraps a callable (Tower&, Output, ..., Output) -> Output: inputs with a batch dimension in, a
// scalar loss out; or an empty Output if the function names its losses (Tower::loss()). Takes
// lambdas, functions and objects with operator(), with up to kMostInputs inputs. It is empty by
// default, and if made from a null function pointer or an empty std::function.
class ModelFunction {
 public:
  static constexpr std::size_t kMostInputs = 32;

  ModelFunction() = default;
  template <class F>
  requires(!std::same_as<std::remove_cvref_t<F>, ModelFunction>)
      ModelFunction(F function) {  // NOLINT
    [&]<std::size_t... N>(std::index_sequence<N...>) {
      static_assert(
          (takes<F>(std::make_index_sequence<N>()) || ...),
          "a model takes (Tower&, Output...), with at most 32 Outputs, one for each field "
          "of the data, and returns an Output");
      (set<N>(function), ...);
    }
    (std::make_index_sequence<kMostInputs + 1>());
  }

  explicit operator bool() const { return !arities().empty(); }
  // The numbers of inputs that it can be called with, ascending.
  std::vector<std::size_t> arities() const;

  // Calls the function. Throws InvalidArgument if it takes another number of inputs, or returns no
  // Output or anything but a floating-point scalar; or if it returns one beside the losses that it
  // names.
  Output operator()(Tower& tower, std::span<const Output> inputs) const;
  // The same, and what the function returns becomes the loss of the tower.
  void build(Tower& tower, std::span<const Output> inputs) const;

 private:
  using Call = std::function<Output(Tower&, std::span<const Output>)>;

  template <class F, std::size_t... I>
  static constexpr bool takes(std::index_sequence<I...>) {
    return std::is_invocable_r_v<Output, F&, Tower&, decltype((void)I, Output())...>;
  }
  template <std::size_t N, class F>
  void set(const F& function) {
    if constexpr (takes<F>(std::make_index_sequence<N>()))
      [&]<std::size_t... I>(std::index_sequence<I...>) {
        // Empty for a function pointer that is null and for an empty std::function.
        std::function<Output(Tower&, decltype((void)I, Output())...)> call(function);
        if (!call) return;
        if (calls_.size() <= N) calls_.resize(N + 1);
        calls_[N] = [call](Tower& tower, std::span<const Output> inputs) {
          return call(tower, inputs[I]...);
        };
      }
    (std::make_index_sequence<N>());
  }

  std::vector<Call> calls_;  // by their number of inputs
};

}  // namespace belfry
