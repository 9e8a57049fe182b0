// Checks by the builder of a training graph: of options, and of the towers that it has built.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "belfry/towers/replicate.h"
#include "belfry/trainers/data/dataset.h"

namespace belfry {

// Fields become placeholders that are found by name. Throws InvalidArgument for names that are
// empty or equal, or have one of ":/ ".
void require_field_names(std::span<const Dataset::Field> fields);

// Throws OptionMistake, with the nearest name, for a scope of GradientOptions::recompute that
// contains no node of the model.
void require_recompute_scopes(const TowerRecord& tower, const std::vector<std::string>& scopes);

// Warns, once per process, of each of these scopes in which the backward pass recomputes nothing. A
// node in several of them counts for the first.
void warn_of_useless_scopes(const Graph& graph, const std::vector<std::string>& scopes);

// Whether a tower uses one of its variables more than once.
bool uses_a_variable_twice(const Graph& graph, std::span<const Variable> variables);

}  // namespace belfry
